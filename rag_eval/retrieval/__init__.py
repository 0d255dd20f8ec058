"""Finding the chunks that answer a query: by vectors, by words, by both, or by a system you already have."""
