"""Evaluations: run a retriever on ground truth, score it, and tell where recall is lost."""
