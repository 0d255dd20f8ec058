"""Quantify certainty: intervals over documents, paired tests, and the configurations that may be the best."""
