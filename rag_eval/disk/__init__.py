"""What is kept on disk or in a bucket: files, digests, locks, Arrow tables, rows by key, storage."""
