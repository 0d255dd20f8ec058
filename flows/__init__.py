"""Prefect flows, each of which reads as a list of the pipeline's tasks."""
