"""Read, write and check ground truth: what answers each query."""
