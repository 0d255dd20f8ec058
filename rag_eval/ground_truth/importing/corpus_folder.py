"""The documents of an import as a folder of files."""

import os
from collections.abc import Sequence
from pathlib import Path

from rag_eval.errors import ArtifactError
from rag_eval.files import scratch_path, write_atomically, writing
from rag_eval.ground_truth.importing.names import refuse_traversal
from rag_eval.types.document import Document


def write_corpus(folder: Path, documents: Sequence[Document], *, overwrite: bool = False) -> int:
    """Write each document under its id, and give the number of other files that stand in the folder.

    A new folder appears whole or not at all. In one that is there, files with the same content are left alone; one
    with other content is replaced only with ``overwrite``. Raises ``ArtifactError`` when that is not asked for or the
    folder cannot be written, ``GroundTruthError`` on an id that leads out of it; then nothing was written.
    """
    for document in documents:
        refuse_traversal(document.id)
    if not folder.exists():
        with scratch_path(folder.parent) as scratch:
            for document in documents:
                _write(scratch / document.id, document)
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


def _write(path: Path, document: Document) -> None:
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(document.content.encode("utf-8"))


def _is_there(path: Path, document: Document) -> bool:
    try:
        return path.read_bytes() == document.content.encode("utf-8")
    except OSError:
        return False
