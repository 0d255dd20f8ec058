"""Ground truth from other people's formats: nothing is lost without a word."""
