"""Choose among the configurations of a large grid, and estimate what a benchmark costs."""
