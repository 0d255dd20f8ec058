"""Files, digests, locks, Arrow tables and storage: what is kept on disk or in a bucket."""
