"""Define the vocabulary: frozen values for documents, spans, chunks, queries and results."""
