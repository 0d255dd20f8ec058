"""The results as one HTML page, of a size that a browser opens however many samples there are."""

from itertools import islice
from pathlib import Path

from rag_eval.experiments.outputs.base import QuietOutput
from rag_eval.experiments.outputs.json_file import result_stem
from rag_eval.experiments.types import ExperimentResult, ItemResult
from rag_eval.files import write_atomically

MOST_SAMPLES = 2_000
MOST_FAILURES = 1_000


class HtmlOutput(QuietOutput):
    """Writes ``<folder>/<name>-YYYY-MM-DDTHH-MM-SS.html``, named as the JSON file where one was written before.

    The page carries the first ``samples`` samples, and of the further ones so many ``failures``.
    """

    name = "html"

    def __init__(
        self, folder: str | Path = "evaluations", samples: int = MOST_SAMPLES, failures: int = MOST_FAILURES
    ) -> None:
        self._folder = Path(folder)
        self._samples, self._failures = samples, failures

    def finished(self, result: ExperimentResult) -> str:
        """Write the page; raises ``ArtifactError`` when it cannot be written."""
        from rag_eval.reports.experiment_page import experiment_page

        stem = result.path.stem if result.path is not None else f"{result_stem(result)}-{result.run[:8]}"
        path = self._folder / f"{stem}.html"
        samples, note = self._carried(result)
        write_atomically(path, experiment_page(result, samples, note).encode("utf-8", "replace"))
        return str(path)

    def _carried(self, result: ExperimentResult) -> tuple[list[ItemResult], str | None]:
        """The samples of the page, and which were left out."""
        samples = list(islice(result.results, self._samples))
        if result.total <= self._samples:
            return samples, None
        left = result.failed - sum(len(item.errors) for item in samples)
        found: list[ItemResult] = []
        for item in islice(result.results, self._samples, None) if left else ():
            if item.errors:
                found.append(item)
                left -= len(item.errors)
            if not left or len(found) == self._failures:
                break
        failed = f" and {'the first ' if left else ''}{len(found):,} later ones that failed" if found else ""
        place = f"; all are in {result.path.name}" if result.path is not None else ""
        return samples + found, f"Shown are the first {self._samples:,} of {result.total:,} samples{failed}{place}."
