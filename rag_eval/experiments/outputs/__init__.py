"""Outputs of an experiment: files, a page, the terminal, LangSmith and orq.ai."""
