"""What an import did, in numbers and words."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from rag_eval.ground_truth.importing.output import WrittenImport
from rag_eval.ground_truth.importing.result import ImportedTruth
from rag_eval.ground_truth.occurrences import count_occurrences
from rag_eval.types.ids import EvaluationType

DEFAULT_ENDING = ".md"


@dataclass(frozen=True, slots=True)
class ImportSummary:
    """The counts of an import, what did not go straight, and where it is."""

    evaluation_type: EvaluationType
    queries: int
    unanswerable: int
    answers: int
    """Spans, or chunk ids."""
    documents: int
    repeated: int
    """How many spans have a text that occurs at more than one place of the documents."""
    repeated_share: float
    """The share of such spans in the truth's characters; 0 without spans."""
    left_out: Mapping[str, Sequence[str]]
    mended: Mapping[str, Sequence[str]]
    truth: Path
    corpus: Path | None
    other_files: int
    endings: Sequence[str]
    """How the documents' names end."""

    @property
    def next_command(self) -> str | None:
        """A command that runs a benchmark on what was imported; None without documents."""
        if self.corpus is None:
            return None
        words = ["rag-eval", "run", "--corpus", str(self.corpus), "--truth", str(self.truth)]
        if list(self.endings) != [DEFAULT_ENDING]:
            words += ["--glob", f"**/*{self.endings[0]}" if len(self.endings) == 1 else "**/*"]
        return shlex.join(words)

    def as_data(self) -> dict[str, object]:
        """Everything as plain data."""
        paths = {"truth": str(self.truth), "corpus": None if self.corpus is None else str(self.corpus)}
        return asdict(self) | paths | {"next": self.next_command}


def summarise(found: ImportedTruth, written: WrittenImport) -> ImportSummary:
    """The summary of an import that was written."""
    texts = [span.text for item in found.token_level for span in item.relevant_spans]
    chunk_ids = sum(len(item.relevant_chunk_ids) for item in found.chunk_level)
    counts = count_occurrences(texts, found.documents)
    repeated = [text for text in texts if sum(counts[text].values()) > 1]
    return ImportSummary(
        evaluation_type="chunk-level" if found.chunk_level else "token-level",
        queries=len(found.truth),
        unanswerable=sum(item.unanswerable for item in found.truth),
        answers=len(texts) + chunk_ids,
        documents=len(found.documents),
        repeated=len(repeated),
        repeated_share=sum(map(len, repeated)) / sum(map(len, texts)) if texts else 0.0,
        left_out=found.notes.left_out,
        mended=found.notes.mended,
        truth=written.truth,
        corpus=written.corpus,
        other_files=written.other_files,
        endings=sorted({PurePosixPath(document.id).suffix for document in found.documents}),
    )
