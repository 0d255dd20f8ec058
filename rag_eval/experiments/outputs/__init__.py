"""Where the results of an experiment go."""
