"""Remote services: LangSmith, orq.ai and the outbox that holds what could not be sent."""
