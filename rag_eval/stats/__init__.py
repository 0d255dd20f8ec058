"""How sure a figure is: intervals over documents, paired tests, and the configurations that may be the best."""
