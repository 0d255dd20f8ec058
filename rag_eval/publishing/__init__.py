"""Where results are sent: LangSmith and others."""
