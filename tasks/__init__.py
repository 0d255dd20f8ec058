"""The tasks of the pipeline, one module for each step: import them into a flow of your own."""

STEPS = ("corpus", "ground_truth", "chunk", "embed", "index", "retrieve", "score")
"""The modules with the tasks of each step, in the order of the pipeline."""
