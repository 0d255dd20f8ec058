"""Documents: watching a folder for changes."""
