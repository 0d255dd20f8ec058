"""What a running system retrieved, read from its traces: spans of OpenTelemetry, or runs of LangSmith."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from rag_eval.errors import ConfigurationError, preview
from rag_eval.formatting import counted
from rag_eval.parts import Shown, part
from rag_eval.storage.files import file_sha256, read_text

DEEPEST = 50
"""So many lists and objects within each other are looked into."""


@dataclass(frozen=True, slots=True)
class TracedDocument:
    """What was retrieved: its text, and what its trace tells of where that comes from."""

    page_content: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    score: float | None = None


@dataclass(frozen=True, slots=True)
class TracedRetrieval:
    """A question that was searched, what was retrieved for it, best first, and when that began, in seconds."""

    query: str
    documents: Sequence[TracedDocument]
    at: float | None = None


def read_traces(path: Path) -> list[TracedRetrieval]:
    """Return the retrievals in a file of JSON, or of JSON lines, in its order; whatever else it holds is passed over.

    Retrievals are the spans of OpenTelemetry that OpenInference calls RETRIEVER or the GenAI conventions call retrieval
    (as OTLP, as the SDK prints them, or with nested attributes), and LangSmith's runs of the type retriever. Raises
    ``ConfigurationError`` when the file cannot be read, is no JSON, or has no retrieval.
    """
    text = read_text(path).removeprefix("\ufeff")
    try:
        try:
            read = [json.loads(text)]
        except ValueError:
            read = [json.loads(line) for line in text.split("\n") if line.strip()]
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{str(path)!r} is neither JSON nor JSON lines ({error}): export it again") from None
    found = retrievals_in(read)
    if not found:
        raise ConfigurationError(
            f"{str(path)!r} has no retrieval: give spans that OpenInference calls RETRIEVER or the GenAI conventions "
            "retrieval, or LangSmith's runs of the type retriever, with their query and documents"
        )
    return found


def retrievals_in(values: Sequence[Any]) -> list[TracedRetrieval]:
    """Return the retrievals in what was read from JSON: the earliest first where all tell when they began."""
    found = [one for value in values for one in _retrievals(value, 0)]
    return sorted(found, key=lambda one: one.at or 0.0) if all(one.at is not None for one in found) else found


def _retrievals(value: Any, depth: int) -> Iterator[TracedRetrieval]:
    """The retrievals in a value: itself, or what it holds, such as the spans of OTLP and the runs below a run."""
    if depth > DEEPEST:
        return
    if isinstance(value, list):
        for one in value:
            yield from _retrievals(one, depth + 1)
    elif isinstance(value, dict):
        own = _from_run(value) if "run_type" in value else _from_span(value)
        if own is not None:
            yield replace(own, at=_time(value))
        for name, one in value.items():
            if isinstance(one, list | dict) and name not in ("attributes", "inputs", "outputs"):
                yield from _retrievals(one, depth + 1)


def _time(value: Mapping[str, Any]) -> float | None:
    """When a span or a run began; None where it does not tell."""
    told = next((value[name] for name in ("startTimeUnixNano", "start_time") if name in value), None)
    try:
        return float(str(told)) / 1e9 if str(told).isdigit() else datetime.fromisoformat(str(told)).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


def _from_run(run: Mapping[str, Any]) -> TracedRetrieval | None:
    """A run of LangSmith: the only text among its inputs, or that called query, input or question; its documents."""
    inputs, outputs = run.get("inputs"), run.get("outputs")
    if run["run_type"] != "retriever" or not isinstance(inputs, dict) or not isinstance(outputs, dict):
        return None
    texts = {name: one for name, one in inputs.items() if isinstance(one, str)}
    named = [texts[name] for name in ("query", "input", "question") if name in texts]
    query = next(iter(named or (texts.values() if len(texts) == 1 else [])), None)
    return _retrieval(query, outputs.get("documents", outputs.get("output")))


def _from_span(span: Mapping[str, Any]) -> TracedRetrieval | None:
    attributes = span.get("attributes")
    if not isinstance(attributes, dict | list):
        return None
    told = dict(_flat("", _plain(attributes), 0))
    by_kind = {
        "RETRIEVER": ("openinference.span.kind", "input.value", "retrieval.documents"),
        "retrieval": ("gen_ai.operation.name", "gen_ai.retrieval.query.text", "gen_ai.retrieval.documents"),
    }
    for kind, (name, query, documents) in by_kind.items():
        if told.get(name) == kind:
            return _retrieval(told.get(query), _listed(told, documents))
    return None


def _listed(told: Mapping[str, Any], root: str) -> Any:
    """The documents of a span: a JSON text, or an attribute for each field of each; None where it tells none."""
    if isinstance(told.get(root), str):
        return _parsed(told[root])
    documents: dict[int, dict[str, Any]] = {}
    pattern = re.compile(re.escape(root) + r"\.(\d{1,6})\.(?:document\.)?([^.]+)(?:\.(.+))?")
    for name, value in told.items():
        match = pattern.fullmatch(name)
        if match and (match[3] is None or match[2] == "metadata"):
            document = documents.setdefault(int(match[1]), {})
            where = document if match[3] is None else document.setdefault("metadata", {})
            if isinstance(where, dict):
                where[match[3] or match[2]] = value
    return [documents[number] for number in sorted(documents)] or None


def _plain(value: Any) -> Any:
    """Attributes as a mapping: OTLP has them as a list of keys with values that tell their type."""
    if isinstance(value, list) and value and all(isinstance(one, dict) and "key" in one for one in value):
        return {str(one["key"]): _plain_value(one.get("value")) for one in value}
    return value


def _plain_value(value: Any) -> Any:
    if not isinstance(value, dict) or len(value) != 1:
        return value
    ((kind, held),) = value.items()
    if kind == "arrayValue" and isinstance(held, dict):
        return [_plain_value(one) for one in held.get("values") or []]
    if kind == "kvlistValue" and isinstance(held, dict):
        return _plain(held.get("values") or [])
    return held if kind in ("stringValue", "doubleValue", "boolValue", "intValue") else value


def _flat(prefix: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """Nested attributes by their dotted names."""
    items = enumerate(value) if isinstance(value, list) else value.items() if isinstance(value, dict) else ()
    if not prefix or (items and depth <= DEEPEST):
        for name, one in items:
            yield from _flat(f"{prefix}.{name}" if prefix else str(name), one, depth + 1)
    else:
        yield prefix, value


def _parsed(text: str) -> Any:
    """What a JSON text holds; None where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _retrieval(query: Any, documents: Any) -> TracedRetrieval | None:
    """A retrieval; None where the query or the documents are not told, which is not the same as finding nothing."""
    if not isinstance(query, str) or not query.strip() or not isinstance(documents, list):
        return None
    told = [{"text": one} if isinstance(one, str) else one for one in documents]
    return TracedRetrieval(query.strip(), [_document(one) for one in told if isinstance(one, dict)])


def _document(told: Mapping[str, Any]) -> TracedDocument:
    """A document of a trace; one without a text keeps its rank."""
    text = next((told[name] for name in ("page_content", "content", "text") if isinstance(told.get(name), str)), "")
    metadata, score = told.get("metadata"), told.get("score")
    metadata = _parsed(metadata) if isinstance(metadata, str) else metadata
    own = score if isinstance(score, float) or (type(score) is int and abs(score) < 2**53) else None
    text = text.encode("utf-8", "replace").decode()  # JSON can hold half a surrogate pair
    return TracedDocument(text, metadata if isinstance(metadata, dict) else {}, own)


def _check_file(path: Path) -> Path:
    if not path.is_file():
        raise ValueError(f"there is no file {preview(str(path))}: check the path")
    return path


@part
class TracedSystem:
    """A system as its traces show it: each question is answered with what was retrieved when it was asked last.

    Raises ``ConfigurationError`` when the file has no retrieval for a question, as that is not known to find nothing.
    """

    file: Annotated[
        Path,
        AfterValidator(_check_file),
        Shown,
        Field(description="The traces: JSON or JSON lines of OpenTelemetry, OpenInference or LangSmith."),
    ]

    @property
    def identity(self) -> str:
        """What tells these traces from others."""
        try:
            return file_sha256(self.file)
        except OSError as error:
            raise ConfigurationError(f"{str(self.file)!r} cannot be read ({error.strerror}): check the path") from None

    @property
    def label(self) -> str:
        """The name of the file."""
        return f"traces {self.file.name}"

    @cached_property
    def _by_query(self) -> dict[str, Sequence[TracedDocument]]:
        return {one.query: one.documents for one in read_traces(self.file)}

    def search(self, query: str, k: int) -> Sequence[TracedDocument]:
        """Return what was retrieved for one query."""
        return self.search_many([query], k)[0]

    def search_many(self, queries: Sequence[str], k: int) -> list[Sequence[TracedDocument]]:
        """Return what was retrieved for every query."""
        known = self._by_query
        missing = [query for query in queries if query.strip() not in known]
        if missing:
            of = f"{counted(len(missing), 'questions')} of {len(queries):,}, first {preview(missing[0])}"
            raise ConfigurationError(
                f"{self.label} have no retrieval for {of}: trace them too, or leave them out of the ground truth"
            )
        return [known[query.strip()][:k] for query in queries]
