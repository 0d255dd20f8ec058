"""The formats that can be imported, by name."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rag_eval.choices import choices, suggestion
from rag_eval.errors import ConfigurationError
from rag_eval.ground_truth.importing.beir import read_beir
from rag_eval.ground_truth.importing.chroma import read_chroma
from rag_eval.ground_truth.importing.langsmith import read_langsmith
from rag_eval.ground_truth.importing.legalbench_rag import read_legalbench_rag
from rag_eval.ground_truth.importing.result import ImportedTruth
from rag_eval.ground_truth.importing.squad import read_squad


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """What may be said about a source beside where it is; None is the reader's own choice."""

    corpus: Path | None = None
    glob: str | None = None
    split: str | None = None


@dataclass(frozen=True, slots=True)
class Kind:
    """A format: its reader, and which options it takes."""

    read: Callable[..., ImportedTruth]
    takes: frozenset[str] = frozenset()
    is_file: bool = True


KINDS = {
    "chroma": Kind(read_chroma, frozenset({"corpus", "glob"})),
    "legalbench-rag": Kind(read_legalbench_rag, frozenset({"corpus", "glob"})),
    "beir": Kind(read_beir, frozenset({"split"})),
    "squad": Kind(read_squad),
    "langsmith": Kind(read_langsmith, is_file=False),
}


def import_truth(kind: str, source: str | Path, options: ImportOptions | None = None) -> ImportedTruth:
    """Read a source of one of the ``KINDS``: a path, or a dataset's name for ``langsmith``.

    Raises ``ConfigurationError`` on an unknown kind or an option it does not take, ``GroundTruthError`` when the
    source cannot be used.
    """
    if kind not in KINDS:
        raise ConfigurationError(f"there is no kind {kind!r}{suggestion(kind, KINDS)}: {choices(KINDS, kind)}")
    chosen = KINDS[kind]
    given = {
        name: value
        for name in ("corpus", "glob", "split")
        if (value := getattr(options or ImportOptions(), name)) is not None
    }
    for name in given:
        if name not in chosen.takes:
            raise ConfigurationError(f"--{name} says nothing about {kind}: leave it out")
    return chosen.read(Path(source) if chosen.is_file else str(source), **given)
