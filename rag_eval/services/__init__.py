"""Remote services: LangSmith and orq.ai."""
