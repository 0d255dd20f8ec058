"""Ground truth: reading, writing and checking what answers each query."""
