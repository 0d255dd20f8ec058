"""Prefect flows: the pipeline's sentences."""
