"""The stages of a benchmark as plain functions on references: what the Prefect tasks call."""
