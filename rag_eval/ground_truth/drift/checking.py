"""Whether ground truth still matches its corpus, before it is used."""

from collections.abc import Sequence
from pathlib import Path

from rag_eval.errors import GroundTruthError
from rag_eval.ground_truth.check import check_against_corpus
from rag_eval.ground_truth.drift.reanchoring import documents_that_no_longer_match
from rag_eval.types.document import Corpus
from rag_eval.types.ground_truth import TokenLevelGroundTruth


def check_still_matches(
    truth: Sequence[TokenLevelGroundTruth], corpus: Corpus, source: str | Path | None = None
) -> None:
    """Raise the ``GroundTruthError`` of ``check_against_corpus``; where documents have changed, it says what helps."""
    try:
        check_against_corpus(truth, corpus, source)
    except GroundTruthError as error:
        if not documents_that_no_longer_match(truth, corpus):
            raise
        raise GroundTruthError(
            f"{error}; rag-eval truth reanchor carries spans over to documents that have changed, "
            "and rag-eval run --reanchor does so for one run"
        ) from None
