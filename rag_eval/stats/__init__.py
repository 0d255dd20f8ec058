"""How sure a figure is: intervals over documents, paired tests, groups of the best, recall at equal cost."""
