"""Write imported ground truth and its documents, and summarise it."""

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from rag_eval.errors import ArtifactError, ConfigurationError, GroundTruthError, preview
from rag_eval.ground_truth.importing.importer import ImportedTruth, refuse_traversal
from rag_eval.ground_truth.truth_files import write_truth
from rag_eval.storage.files import scratch_path, write_atomically, writing
from rag_eval.types.documents import Document
from rag_eval.types.evidence import ChunkLevelGroundTruth
from rag_eval.types.ids import EvaluationType


def write_corpus(folder: Path, documents: Sequence[Document], *, overwrite: bool = False) -> int:
    """Write each document under its id, and return the number of other files in the folder.

    A new folder is created completely or not at all. Files with other content are replaced only with ``overwrite``.

    Raises:
        ArtifactError: If a file would be replaced, or the folder cannot be written.
        GroundTruthError: If an id leads out of the folder.
    """
    for document in documents:
        refuse_traversal(document.id)
        if Path(document.id).anchor:
            raise GroundTruthError(f"the document id {preview(document.id)} leads out of its folder: make it relative")
    if not folder.exists():
        with scratch_path(folder.parent) as scratch:
            for document in documents:
                path = scratch / document.id
                with writing(path):
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(document.content.encode("utf-8"))
            with writing(folder):
                os.replace(scratch, folder)
        return 0
    if not folder.is_dir():
        raise ArtifactError(f"{str(folder)!r} is a file: give a folder for the documents")
    changed = [document for document in documents if not _is_there(folder / document.id, document)]
    taken = [document.id for document in changed if (folder / document.id).exists()]
    if taken and not overwrite:
        raise ArtifactError(
            f"{len(taken)} files in {str(folder)!r} would be replaced, first {taken[0]!r}: "
            "give another folder, or --overwrite"
        )
    for document in changed:
        write_atomically(folder / document.id, document.content.encode("utf-8"))
    ours = {folder / document.id for document in documents}
    return sum(path.is_file() and path not in ours for path in folder.rglob("*"))


def _is_there(path: Path, document: Document) -> bool:
    try:
        return path.read_bytes() == document.content.encode("utf-8")
    except OSError:
        return False


DEFAULT_CORPUS = Path("corpus")
DEFAULT_ENDING = ".md"


@dataclass(frozen=True, slots=True)
class ImportSummary:
    """The counts of an import, what was left out or changed, and where it was written."""

    evaluation_type: EvaluationType
    queries: int
    unanswerable: int
    answers: int
    """Number of spans or chunk ids."""
    documents: int
    left_out: Mapping[str, Sequence[str]]
    mended: Mapping[str, Sequence[str]]
    truth: Path
    corpus: Path | None
    """The folder of the documents; None if the source has none."""
    other_files: int
    """Number of other files in the folder."""
    endings: Sequence[str]
    """Suffixes of the documents."""

    @classmethod
    def of(cls, found: ImportedTruth, truth: Path, corpus: Path | None, other_files: int) -> "ImportSummary":
        """Summarise an import that was written."""
        return cls(
            evaluation_type="chunk-level" if isinstance(found.truth[0], ChunkLevelGroundTruth) else "token-level",
            queries=len(found.truth),
            unanswerable=sum(item.unanswerable for item in found.truth),
            answers=sum(len(item.groups) for item in found.truth),
            documents=len(found.documents),
            left_out=found.notes.left_out,
            mended=found.notes.mended,
            truth=truth,
            corpus=corpus,
            other_files=other_files,
            endings=sorted({PurePosixPath(document.id).suffix for document in found.documents}),
        )

    @property
    def next_command(self) -> str | None:
        """The command that runs a benchmark on the import; None without documents."""
        if self.corpus is None:
            return None
        words = ["rag-eval", "run", "--corpus", str(self.corpus), "--truth", str(self.truth)]
        if list(self.endings) != [DEFAULT_ENDING]:
            words += ["--glob", f"**/*{self.endings[0]}" if len(self.endings) == 1 else "**/*"]
        return shlex.join(words)

    def as_data(self) -> dict[str, object]:
        paths = {"truth": str(self.truth), "corpus": None if self.corpus is None else str(self.corpus)}
        return asdict(self) | paths | {"next": self.next_command}


def write_import(
    found: ImportedTruth, output: Path, corpus_output: Path | None = None, *, overwrite: bool = False
) -> ImportSummary:
    """Write the ground truth and its documents.

    Args:
        found: The import.
        output: The ground-truth file.
        corpus_output: The folder for the documents; by default those in a folder stay there, and others are written to
            ``corpus`` next to the file.
        overwrite: Replace files with other content.

    Raises:
        ArtifactError: If a file would be replaced or cannot be written.
        ConfigurationError: If there are no documents for ``corpus_output``.
    """
    if corpus_output is not None and not found.documents:
        raise ConfigurationError("this source has no documents: remove --corpus-output")
    if output.is_dir():
        raise ArtifactError(f"{str(output)!r} is a folder: give a file for the ground truth")
    corpus, others = found.corpus_folder, 0
    with scratch_path(output.parent) as scratch:
        write_truth(scratch, found.truth)
        if output.exists() and not overwrite and output.read_bytes() != scratch.read_bytes():
            raise ArtifactError(
                f"{str(output)!r} already exists with other content: give another --output, or --overwrite"
            )
        if corpus_output is not None or (found.documents and corpus is None):
            corpus = corpus_output or output.parent / DEFAULT_CORPUS
            others = write_corpus(corpus, found.documents, overwrite=overwrite)
        with writing(output):
            os.replace(scratch, output)
    return ImportSummary.of(found, output, corpus, others)
