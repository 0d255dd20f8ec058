"""Import ground truth from other formats.

An importer is a function from a path to ``ImportedTruth``; its other parameters are options of ``rag-eval truth
import``. To add one, write its file and its test, and register it here.
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
    """Read a source with one of the ``IMPORTERS``, or of ``others``, which get the source as text.

    Options that are None are left to the importer.

    Raises:
        ConfigurationError: On an unknown kind, or an option that the importer does not have.
        GroundTruthError: If the source cannot be read.
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
            raise ConfigurationError(f"--{name} does not apply to {kind}: remove it")
    return read(str(source) if kind in others else Path(source), **given)
