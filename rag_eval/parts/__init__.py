"""Parts: classes whose fields are their settings, the kinds that name them, and the questions one can ask of them.

::

    CHUNKER = Kind("chunker", {"markdown": "rag_eval.chunking.markdown:MarkdownChunker"})
    CHUNKER.make({"type": "markdown", "max_chunk_size": 500}) == MarkdownChunker(500)
"""

from rag_eval.parts.definition import (
    Location,
    PythonOnly,
    Running,
    Searching,
    Setting,
    Shown,
    as_data,
    check_extras,
    digest,
    fresh,
    has_location,
    identity,
    is_part,
    is_remote,
    keeps_data,
    label,
    located,
    part,
    parts_in,
    replaced,
    settings_of,
    type_name,
    versions_of,
    without,
)
from rag_eval.parts.kinds import Kind, PartOf, PartRecord, PartsOf, describe

__all__ = [
    "Kind",
    "Location",
    "PartOf",
    "PartRecord",
    "PartsOf",
    "PythonOnly",
    "Running",
    "Searching",
    "Setting",
    "Shown",
    "as_data",
    "check_extras",
    "describe",
    "digest",
    "fresh",
    "has_location",
    "identity",
    "is_part",
    "is_remote",
    "keeps_data",
    "label",
    "located",
    "part",
    "parts_in",
    "replaced",
    "settings_of",
    "type_name",
    "versions_of",
    "without",
]
