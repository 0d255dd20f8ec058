"""Writing an import: the ground truth as a native file, and its documents as a folder."""

import os
from dataclasses import dataclass
from pathlib import Path

from rag_eval.errors import ArtifactError, ConfigurationError
from rag_eval.files import scratch_path, writing
from rag_eval.ground_truth.importing.corpus_folder import write_corpus
from rag_eval.ground_truth.importing.result import ImportedTruth
from rag_eval.ground_truth.writing import write_chunk_level, write_token_level

DEFAULT_CORPUS = Path("corpus")


@dataclass(frozen=True, slots=True)
class WrittenImport:
    """Where an import was written."""

    truth: Path
    corpus: Path | None
    """The folder that the documents' ids are relative to; None when the source says nothing of documents."""
    other_files: int
    """How many files stand in a folder that was there and are not of the import."""


def write_import(
    found: ImportedTruth, output: Path, corpus_output: Path | None = None, *, overwrite: bool = False
) -> WrittenImport:
    """Write the truth, and the documents to ``corpus_output``; files with the same content already are no obstacle.

    Without ``corpus_output`` documents that lie in a folder stay there, and texts that the source itself holds go to
    a folder ``corpus`` beside the truth. Raises ``ArtifactError`` when something else is in the way and ``overwrite``
    is not asked for, ``ConfigurationError`` when there are no documents to write.
    """
    if corpus_output is not None and not found.documents:
        raise ConfigurationError("--corpus-output has nothing to hold, this source has no documents: leave it out")
    if output.is_dir():
        raise ArtifactError(f"{str(output)!r} is a folder: give a file for the ground truth")
    corpus, others = found.corpus_folder, 0
    with scratch_path(output.parent) as scratch:
        _write_truth(scratch, found)
        if output.exists() and not overwrite and output.read_bytes() != scratch.read_bytes():
            raise ArtifactError(
                f"{str(output)!r} is there and has other content: give another --output, or --overwrite"
            )
        # The truth names the documents, so they are there before it is.
        if corpus_output is not None or (found.documents and corpus is None):
            corpus = corpus_output or output.parent / DEFAULT_CORPUS
            others = write_corpus(corpus, found.documents, overwrite=overwrite)
        with writing(output):
            os.replace(scratch, output)
    return WrittenImport(output, corpus, others)


def _write_truth(path: Path, found: ImportedTruth) -> None:
    if found.chunk_level:
        write_chunk_level(path, found.chunk_level)
    else:
        write_token_level(path, found.token_level)
