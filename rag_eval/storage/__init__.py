"""Store files, locks, Arrow tables named by digest, and objects in buckets."""
