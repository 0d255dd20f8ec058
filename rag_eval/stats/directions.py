"""Which way is up."""

COSTS = ("tokens_retrieved", "tokens_within_budget")
"""Metrics that say what a context costs; of all others, more is better."""


def higher_is_better(metric: str) -> bool:
    """Whether a larger value of the metric, such as ``span_recall@5``, is the better one."""
    return not metric.startswith(COSTS)
