"""A local page to review ground truth on the documents' own text."""
