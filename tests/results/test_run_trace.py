"""A run as a trace, sent to a double of an OpenTelemetry collector."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rag_eval.cli.main import app
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.outcome import BenchmarkOutcome, StageWork
from rag_eval.results.publishing import publish_run
from rag_eval.results.run_trace import traces_address
from tests.doubles.loopback import LoopbackServer, Request
from tests.results.made_runs import make_run, write_data

KEY = "key-of-a-collector-0123"


class Collector(LoopbackServer):
    """Takes traces from who has the key."""

    def answer(self, request: Request) -> tuple[int, Any]:
        return (200, {}) if request.headers.get("authorization") == f"Bearer {KEY}" else (401, {})


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with Collector() as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"{server.url}/")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"authorization=Bearer%20{KEY}")
        yield server


@pytest.fixture
def run(tmp_path: Path) -> tuple[Workspace, BenchmarkOutcome]:
    config, workspace = write_data(tmp_path, documents=2, queries=2), Workspace(root=tmp_path / ".rag-eval")
    (*_, last) = config.configurations()
    outcome = make_run(workspace, config, failing=[last.name])
    work = {"chunk": StageWork(work="computed", effort=None, seconds=2.0)}
    done = [one.model_copy(update={"stages": work}) for one in outcome.configurations]
    return workspace, outcome.model_copy(update={"configurations": done})


def test_a_run_is_a_trace(collector: Collector, run: tuple[Workspace, BenchmarkOutcome]) -> None:
    trace_service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    from google.protobuf.json_format import Parse

    workspace, outcome = run
    assert publish_run(workspace, outcome, []) == []
    (request,) = collector.requests
    assert (request.path, request.headers["content-type"]) == ("/v1/traces", "application/json")
    read = Parse(request.body, trace_service.ExportTraceServiceRequest())
    spans = list(read.resource_spans[0].scope_spans[0].spans)
    names = {span.span_id: span.name for span in spans}
    assert len(names) == len(spans)
    (done,) = outcome.configurations
    (failed,) = outcome.failures
    above = {span.name: names.get(span.parent_span_id) for span in spans}
    assert above == {"rag-eval run": None, done.name: "rag-eval run", "chunk": done.name, failed: "rag-eval run"}
    by_name = {span.name: span for span in spans}
    assert by_name["chunk"].end_time_unix_nano - by_name["chunk"].start_time_unix_nano == pytest.approx(2e9, abs=1e3)
    assert by_name[failed].status.code == 2
    told = {one.key: one.value.double_value for one in by_name[done.name].attributes}
    assert told["rag_eval.score"] == done.metrics[outcome.ranking_metric]
    publish_run(workspace, outcome, [])
    assert collector.requests[1].body == request.body, "a trace that is sent again has the same ids"


def test_a_trace_that_is_not_taken_is_reported_without_the_key(
    collector: Collector, run: tuple[Workspace, BenchmarkOutcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, outcome = run
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"authorization=Bearer {KEY[:-1]}")
    (reason,) = publish_run(workspace, outcome, [])
    assert "the OpenTelemetry endpoint did not take the results (it answered 401)" in reason
    assert KEY[:-1] not in reason
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"authorization=Bearer {KEY}")
    sent = CliRunner().invoke(app, ["publish", "--workspace", str(workspace.root)])
    assert sent.exit_code == 0, sent.output
    assert len(collector.requests) == 2


def test_a_key_that_no_header_can_hold_is_reported(
    collector: Collector, run: tuple[Workspace, BenchmarkOutcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20k%C3%A9y")
    (reason,) = publish_run(*run, [])
    assert "has unusable characters): check OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_EXPORTER_OTLP_HEADERS" in reason


def test_where_traces_go(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    assert traces_address() is None
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318")
    assert traces_address() == "http://localhost:4318/v1/traces"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://localhost:1/t")
    assert traces_address() == "http://localhost:1/t"
