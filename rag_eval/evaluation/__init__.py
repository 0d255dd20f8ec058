"""Evaluate in memory, for notebooks and LangSmith: ``TokenLevelEvaluation``, ``run_experiment``."""
