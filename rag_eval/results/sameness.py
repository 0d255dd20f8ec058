"""Whether two runs were measured on the same documents and the same truth."""

from rag_eval.errors import ConfigurationError
from rag_eval.pipeline.outcome import BenchmarkOutcome

_DIGITS = 12


def data_differences(before: BenchmarkOutcome, after: BenchmarkOutcome) -> list[str]:
    """What of the corpus and the ground truth differs, a few words each with both digests; empty when nothing does.

    Files are the same when their bytes are, or when what was read from them is: a blank line in a ground-truth file
    makes no other truth.
    """
    found = []
    corpora, truths = (before.corpus, after.corpus), (before.ground_truth, after.ground_truth)
    if corpora[0].digest != corpora[1].digest and before.inputs.documents.digest != after.inputs.documents.digest:
        sides = (
            f"{run.documents:,} documents ({run.corpus.digest[:_DIGITS]}…) in {run.run}" for run in (before, after)
        )
        found.append(f"the corpus differs: {' and '.join(sides)}")
    if truths[0].digest != truths[1].digest and truth_digests(before) != truth_digests(after):
        sides = (
            f"{run.answerable + run.unanswerable:,} queries ({run.ground_truth.digest[:_DIGITS]}…) in {run.run}"
            for run in (before, after)
        )
        found.append(f"the ground truth differs: {' and '.join(sides)}")
    return found


def check_comparable(before: BenchmarkOutcome, after: BenchmarkOutcome, *, allow_different: bool) -> list[str]:
    """What differs between the data of two runs.

    Raises ``ConfigurationError`` when anything does and that is not allowed, and when they are not of one evaluation
    type, which is never allowed.
    """
    types = (before.config.evaluation_type, after.config.evaluation_type)
    if types[0] != types[1]:
        raise ConfigurationError(
            f"{before.run} is {types[0]} and {after.run} is {types[1]}: their scores cannot be compared"
        )
    differences = data_differences(before, after)
    if differences and not allow_different:
        raise ConfigurationError(
            f"the runs were not measured on the same data: {'; '.join(differences)}; "
            "--allow-different compares them on the queries they share; when documents or questions were meant to "
            "change, rag-eval baseline set latest makes the new ones the measure"
        )
    return differences


def truth_digests(run: BenchmarkOutcome) -> tuple[str, str]:
    """The digests of the queries and of the answers, as they were read."""
    return run.inputs.truth.queries.digest, run.inputs.truth.answers.digest
