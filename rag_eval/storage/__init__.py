"""Files, locks, Arrow tables named by digest, and object storage."""
