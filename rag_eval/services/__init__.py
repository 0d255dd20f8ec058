"""Connect to remote services: LangSmith and orq.ai."""
