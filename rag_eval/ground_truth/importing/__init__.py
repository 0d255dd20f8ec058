"""Ground truth from other people's formats, by the name of the format.

An importer is a function from a path to ``ImportedTruth``; the parameters that it has beside the path are its options,
of those that ``rag-eval truth import`` has.
A new one is its file, its test and a line here. Nothing is lost without a note.
"""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from rag_eval.errors import ConfigurationError
from rag_eval.formatting import choices, suggestion

if TYPE_CHECKING:
    from rag_eval.ground_truth.importing.importer import ImportedTruth

IMPORTERS = {
    "chroma": "rag_eval.ground_truth.importing.chroma_dataset:read_chroma",
    "legalbench-rag": "rag_eval.ground_truth.importing.legalbench_rag:read_legalbench_rag",
    "beir": "rag_eval.ground_truth.importing.beir:read_beir",
    "squad": "rag_eval.ground_truth.importing.squad:read_squad",
}


def import_truth(
    kind: str,
    source: str | Path,
    others: "Mapping[str, Callable[[str], ImportedTruth]] | None" = None,
    **options: object,
) -> "ImportedTruth":
    """Read a source of one of the ``IMPORTERS``, or of those handed over, which are given the source as text.

    An option that is None is left to the importer. Raises ``ConfigurationError`` on an unknown kind or an option it
    does not take, ``GroundTruthError`` when the source cannot be used.
    """
    others = others or {}
    known = (*IMPORTERS, *others)
    if kind not in known:
        raise ConfigurationError(f"there is no kind {kind!r}{suggestion(kind, known)}: {choices(known, kind)}")
    read: Callable[..., ImportedTruth] = others[kind] if kind in others else resolve_name(IMPORTERS[kind])
    given = {name: value for name, value in options.items() if value is not None}
    takes = list(inspect.signature(read).parameters)[1:]
    for name in given:
        if name not in takes:
            raise ConfigurationError(f"--{name} says nothing about {kind}: leave it out")
    return read(str(source) if kind in others else Path(source), **given)
