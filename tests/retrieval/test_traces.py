"""Retrievals in traces that the SDKs of OpenTelemetry and LangSmith wrote, and a system measured by them."""

import json
from pathlib import Path
from typing import Any

import pytest
from langsmith.run_trees import RunTree
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from rag_eval.config.loading import load_config
from rag_eval.errors import ConfigurationError
from rag_eval.ground_truth.plain_data import read_queries
from rag_eval.pipeline.workspace import Workspace
from rag_eval.retrieval.traces import TracedSystem, read_traces
from tests.chain import run_benchmark

TEXT = "The ferry leaves at nine.\n\nThe pier is red.\n\nGuests pay on board.\n"
FOUND = {
    "When does the ferry leave?": ["The ferry leaves at nine.", "The pier is red."],
    "Where does one pay?": ["The pier is red.", "Nobody wrote this."],
}


def openinference(query: str, texts: list[str]) -> dict[str, Any]:
    attributes: dict[str, Any] = {"openinference.span.kind": "RETRIEVER", "input.value": query}
    for number, text in enumerate(texts):
        attributes[f"retrieval.documents.{number}.document.content"] = text
        attributes[f"retrieval.documents.{number}.document.score"] = 1.0 - number / 10
        attributes[f"retrieval.documents.{number}.document.metadata"] = json.dumps({"source": "/data/a.md"})
    return attributes


def gen_ai(query: str, texts: list[str]) -> dict[str, Any]:
    listed = [{"id": f"d{n}", "score": 0.9, "content": text} for n, text in enumerate(texts)]
    return {
        "gen_ai.operation.name": "retrieval",
        "gen_ai.retrieval.query.text": query,
        "gen_ai.retrieval.documents": json.dumps(listed),
    }


def spans(convention: Any) -> list[ReadableSpan]:
    """What OpenTelemetry's SDK records of the retrievals, each below a span of another kind."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    for query, texts in FOUND.items():
        with (
            tracer.start_as_current_span(
                "chain", attributes={"openinference.span.kind": "CHAIN", "input.value": query}
            ),
            tracer.start_as_current_span("search", attributes=convention(query, texts)),
        ):
            pass
    return list(exporter.get_finished_spans())


def nested(attributes: dict[str, Any]) -> dict[str, Any]:
    root: dict[str, Any] = {}
    for name, value in attributes.items():
        *folders, last = name.split(".")
        here = root
        for folder in folders:
            here = here.setdefault(folder, {})
        here[last] = value
    return root


def otlp(found: list[ReadableSpan]) -> str:
    encoder = pytest.importorskip("opentelemetry.exporter.otlp.proto.common.trace_encoder")
    from google.protobuf.json_format import MessageToJson

    return str(MessageToJson(encoder.encode_spans(found)))


def langsmith() -> str:
    lines = []
    for query, texts in FOUND.items():
        chain = RunTree(name="rag", run_type="chain", inputs={"question": query})
        child = chain.create_child(name="search", run_type="retriever", inputs={"query": query, "k": 2})
        child.end(outputs={"documents": [{"page_content": text, "metadata": {"source": "a.md"}} for text in texts]})
        parts = {"name", "run_type", "inputs", "outputs"}
        lines += [one.model_dump_json(include=parts) for one in (chain, child)]
    return "\n".join(lines)


def written() -> dict[str, str]:
    lines = [span.to_json(indent=None) for span in spans(openinference)]
    return {
        "OpenInference, SDK": "\n".join(lines),
        "OpenInference, OTLP": otlp(spans(openinference)),
        "OpenInference, nested": json.dumps([{"attributes": nested(openinference(*one))} for one in FOUND.items()]),
        "GenAI, OTLP": otlp(spans(gen_ai)),
        "GenAI, structured": json.dumps(
            [
                {"attributes": gen_ai(*one) | {"gen_ai.retrieval.documents": [{"content": t} for t in one[1]]}}
                for one in FOUND.items()
            ]
        ),
        "LangSmith": langsmith(),
    }


@pytest.mark.parametrize("name", written())
def test_the_retrievals_of_a_trace_are_read(name: str, tmp_path: Path) -> None:
    kind = "jsonl" if name in ("OpenInference, SDK", "LangSmith") else "json"
    (tmp_path / f"traces.{kind}").write_text(written()[name])
    read = read_traces(tmp_path / f"traces.{kind}")
    assert [one.text for one in read_queries(tmp_path / f"traces.{kind}")] == list(FOUND)
    assert {one.query: [document.page_content for document in one.documents] for one in read} == FOUND
    if name.startswith("OpenInference"):
        assert {document.metadata["source"] for one in read for document in one.documents} == {"/data/a.md"}
        assert [document.score for document in read[0].documents] == [1.0, 0.9]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text(TEXT)
    rows = []
    for query, answer in zip(FOUND, ("The ferry leaves at nine.", "Guests pay on board."), strict=True):
        span = {"doc_id": "a.md", "start": (at := TEXT.index(answer)), "end": at + len(answer), "text": answer}
        rows.append(json.dumps({"query": query, "relevant_spans": [span]}))
    (tmp_path / "truth.jsonl").write_text("\n".join(rows))
    (tmp_path / "benchmark.yaml").write_text(
        "corpus: docs\nground_truth: truth.jsonl\nk: [1, 2]\nsystem: {type: traces, file: traces.jsonl}\n"
        "objective: span_recall@2\n"
    )
    return tmp_path


def test_a_system_is_measured_by_its_traces(folder: Path) -> None:
    (folder / "traces.jsonl").write_text(
        "\n".join(json.dumps({"attributes": openinference(*one)}) for one in FOUND.items())
    )
    workspace = Workspace(root=folder / ".rag-eval")
    outcome = run_benchmark(workspace, load_config(folder / "benchmark.yaml"))
    (one,) = outcome.configurations
    assert one.name == "traces traces.jsonl"
    assert (one.metrics["span_recall@2"], one.unplaced) == (0.5, 1)
    before = TracedSystem(folder / "traces.jsonl").identity
    (folder / "traces.jsonl").write_text(json.dumps({"attributes": openinference("Other?", [])}))
    assert TracedSystem(folder / "traces.jsonl").identity != before


def test_a_question_that_was_not_asked_is_named(folder: Path) -> None:
    (query, texts), _ = FOUND.items()
    (folder / "traces.jsonl").write_text(json.dumps({"attributes": openinference(query, texts)}))
    with pytest.raises(ConfigurationError, match=r"no retrieval for 1 question of 2, first 'Where does one pay\?'"):
        TracedSystem(folder / "traces.jsonl").search_many(list(FOUND), 5)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("no JSON", "is neither JSON nor JSON lines"),
        ("[" * 100_000, "is neither JSON nor JSON lines"),
        ("[]", "has no retrieval"),
        ('{"attributes": {"openinference.span.kind": "RETRIEVER"}}', "has no retrieval"),
        ('{"run_type": "retriever", "inputs": "x", "outputs": 7}', "has no retrieval"),
        ('{"attributes": [{"key": "a", "value": {"arrayValue": 7}}, 5]}', "has no retrieval"),
    ],
)
def test_what_is_no_trace_is_said(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "traces.json").write_text(text)
    with pytest.raises(ConfigurationError, match=told):
        read_traces(tmp_path / "traces.json")


def test_the_last_by_its_time_counts_and_what_is_not_told_is_not_nothing(tmp_path: Path) -> None:
    new, old = ({"run_type": "retriever", "inputs": {"query": "q"}, "outputs": {"output": [year]}} for year in "no")
    runs = [new | {"start_time": "2026-02-01T00:00:00"}, old | {"start_time": "2025-01-01T00:00:00"}]
    untold = [{"attributes": {"openinference.span.kind": "RETRIEVER", "input.value": "other"}}]
    odd = [
        {
            "attributes": [
                {"key": "a", "value": {"arrayValue": {"values": None}}},
                {"key": "b", "value": {"intValue": None}},
            ]
        }
    ]
    (tmp_path / "traces.jsonl").write_text("\ufeff" + "\n".join(map(json.dumps, [*runs, *untold, *odd])))
    system = TracedSystem(tmp_path / "traces.jsonl")
    assert [one.page_content for one in system.search("q", 5)] == ["n"]
    with pytest.raises(ConfigurationError, match="no retrieval for 1 question of 1, first 'other'"):
        system.search("other", 5)
