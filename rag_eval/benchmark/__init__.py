"""The benchmark: configuration, stages, workspace, runs, comparison and gate."""
