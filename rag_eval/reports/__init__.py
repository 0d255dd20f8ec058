"""Present results to people: reports, verdicts, exports and tables."""
