"""The benchmark file: its models, loading and JSON schema."""
