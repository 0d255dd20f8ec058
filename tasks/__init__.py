"""The tasks of the pipeline, one module for each step: import them into a flow of your own."""

STEPS = ("corpus", "ground-truth", "chunk", "embed", "index", "retrieve", "score")
"""Tags that tell to which step a task run belongs, in the order of the pipeline."""
