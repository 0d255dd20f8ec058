"""A local page to review ground truth in the text of its documents."""
