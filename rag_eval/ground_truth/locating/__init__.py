"""Locating excerpts, perhaps altered by whoever quoted them, as exact spans of their documents."""

from rag_eval.ground_truth.locating.locator import Locator
from rag_eval.ground_truth.locating.results import Hint, How, Located, Location, Reason, Rejected

__all__ = ["Hint", "How", "Located", "Location", "Locator", "Reason", "Rejected"]
