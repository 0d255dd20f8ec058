"""Send a run to a collector of OpenTelemetry as a trace."""

import json
import os
from collections.abc import Mapping
from urllib.parse import unquote

from rag_eval.results.outcome import BenchmarkOutcome, StageWork
from rag_eval.retry import RetryPolicy
from rag_eval.services.http_upload import Receiver
from rag_eval.services.langsmith_experiments import service_id

ENDPOINT, HEADERS = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_HEADERS"
TRACES_ENDPOINT, TRACES_HEADERS = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"
COLLECTOR = Receiver("the OpenTelemetry endpoint", ENDPOINT, HEADERS)
SECONDS = 30.0


def traces_address() -> str | None:
    """Return the address for traces from the variables of OpenTelemetry; None without one."""
    for_traces, general = (os.environ.get(name, "").strip() for name in (TRACES_ENDPOINT, ENDPOINT))
    return for_traces or (f"{general.rstrip('/')}/v1/traces" if general else None)


def send_trace(outcome: BenchmarkOutcome, address: str, policy: RetryPolicy) -> None:
    """Send the trace of a run; raises ``ServiceError`` when the collector does not take it."""
    pairs = (pair.partition("=") for pair in (os.environ.get(TRACES_HEADERS) or os.environ.get(HEADERS, "")).split(","))
    headers = {name.strip(): unquote(value.strip()) for name, sign, value in pairs if sign}
    COLLECTOR.post(address, headers, json.dumps(run_trace(outcome)).encode(), timeout=SECONDS, policy=policy)


def run_trace(outcome: BenchmarkOutcome) -> dict[str, object]:
    """Return a run as OTLP: a span for the run, below it one for each configuration, and below that its steps.

    Durations are measured. When a step began is not known, so that steps follow one another, and each configuration
    begins where the steps that all share have ended.
    """
    trace_id = service_id("trace", outcome.run).hex
    spans: list[dict[str, object]] = []

    def add(name: str, parent: str, start: float, seconds: float, failed: bool, **values: object) -> str:
        span_id = service_id("span", outcome.run, parent, name).hex[:16]
        attributes = [
            {"key": f"rag_eval.{key}", "value": _otlp_value(value)}
            for key, value in values.items()
            if value is not None
        ]
        spans.append(
            {
                "traceId": trace_id,
                "spanId": span_id,
                "parentSpanId": parent,
                "name": name,
                "kind": 1,
                "startTimeUnixNano": str(int(start * 1e9)),
                "endTimeUnixNano": str(int((start + seconds) * 1e9)),
                "attributes": attributes,
                "status": {"code": 2 if failed else 1},
            }
        )
        return span_id

    def add_steps(parent: str, start: float, steps: Mapping[str, StageWork]) -> float:
        for name, step in steps.items():
            effort = {} if step.effort is None else {"tokens": step.effort.tokens, "cost_usd": step.effort.cost}
            add(name, parent, start, step.seconds, step.work == "failed", work=step.work, **effort)
            start += step.seconds
        return start

    values = {"run": outcome.run, "objective": outcome.ranking_metric, "documents": outcome.documents}
    root = add("rag-eval run", "", outcome.started.timestamp(), outcome.seconds, not outcome.configurations, **values)
    start = add_steps(root, outcome.started.timestamp(), outcome.stages)
    for configuration in outcome.configurations:
        seconds = sum(step.seconds for step in configuration.stages.values())
        score = configuration.metrics[outcome.ranking_metric]
        values = {"score": score, "tokens": configuration.tokens, "cost_usd": configuration.cost}
        add_steps(add(configuration.name, root, start, seconds, False, **values), start, configuration.stages)
    for name, failure in outcome.failures.items():
        seconds = sum(step.seconds for step in failure.stages.values())
        add_steps(add(name, root, start, seconds, True, reason=failure.reason), start, failure.stages)
    service = [{"key": "service.name", "value": {"stringValue": "rag-eval"}}]
    scope = {"scope": {"name": "rag-eval"}, "spans": spans}
    return {"resourceSpans": [{"resource": {"attributes": service}, "scopeSpans": [scope]}]}


def _otlp_value(value: object) -> dict[str, object]:
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": str(value)}
