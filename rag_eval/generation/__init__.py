"""Generate ground truth with a language model: questions about documents, and where the answers are."""
