"""A system measured by hits that were recorded elsewhere."""

import json
from pathlib import Path
from typing import Any

import pytest

from rag_eval.config.loading import load_config
from rag_eval.errors import ConfigurationError
from rag_eval.pipeline.workspace import Workspace
from rag_eval.retrieval.recorded_hits import RecordedHits
from rag_eval.types.evidence import Query
from rag_eval.types.ids import QueryId, QueryText
from tests.chain import run_benchmark

TEXT = "The ferry leaves at nine.\n\nThe pier is red.\n\nGuests pay on board.\n"
QUERIES = [
    Query(QueryId("q 1"), QueryText("When does the ferry leave?")),
    Query(QueryId("q2"), QueryText("Where does one pay?")),
]
TEXTS = [["The ferry leaves at nine.", "The pier is red."], ["The pier is red.", "Nobody wrote this."]]


def lines(*rows: Any) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


FILES = {
    "ours.jsonl": lines(*({"query": one.text, "hits": hits} for one, hits in zip(QUERIES, TEXTS, strict=True))),
    "ids.ndjson": lines(*({"query_id": one.id, "hits": hits} for one, hits in zip(QUERIES, TEXTS, strict=True))),
    "ragas.jsonl": "\ufeff"
    + lines(
        *({"user_input": one.text, "retrieved_contexts": hits} for one, hits in zip(QUERIES, TEXTS, strict=True)),
    ),
    "langsmith.jsonl": lines(
        *(
            {
                "id": "a run",
                "run_type": "retriever",
                "inputs": {"query": one.text},
                "outputs": {"documents": [{"page_content": text, "metadata": {}, "type": "Document"} for text in hits]},
            }
            for one, hits in zip(QUERIES, TEXTS, strict=True)
        )
    ),
    "trec.run": "q%201 Q0 a.md:27-43 2 0.5 tag\nq%201 Q0 a.md:0-25 1 0.9 tag\nq2 Q0 a.md:27-43 1 1 tag\n"
    "q2 Q0 other 2 0.5 tag\n",
}


@pytest.mark.parametrize("name", FILES)
def test_a_system_is_measured_by_recorded_hits(name: str, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text(TEXT)
    (tmp_path / name).write_text(FILES[name])
    spans = [(0, 25), (45, 64)]
    (tmp_path / "truth.jsonl").write_text(
        lines(
            *(
                {
                    "id": query.id,
                    "query": query.text,
                    "relevant_spans": [
                        {"doc_id": "a.md", "start": start, "end": end, "text": TEXT[start:end]},
                    ],
                }
                for query, (start, end) in zip(QUERIES, spans, strict=True)
            )
        )
    )
    (tmp_path / "benchmark.yaml").write_text(
        f"corpus: docs\nground_truth: truth.jsonl\nsystem: {{type: hits, path: {name}}}\nk: [1, 2]\n"
        "metrics: [span_recall]\n"
    )
    outcome = run_benchmark(Workspace(root=tmp_path / "work"), load_config(tmp_path / "benchmark.yaml"))
    (one,) = outcome.configurations
    assert one.name == f"hits {name}"
    assert one.metrics["span_recall@2"] == 0.5
    before = RecordedHits(tmp_path / name).identity
    (tmp_path / name).write_text("")
    assert RecordedHits(tmp_path / name).identity != before


def test_a_query_that_is_not_in_the_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "hits.jsonl"
    path.write_text(lines({"query": " When does the ferry leave? ", "hits": []}))
    assert RecordedHits(path).search_many(QUERIES[:1], 5) == [[]]
    with pytest.raises(ConfigurationError, match=r"has no hits for 1 question of 2, first 'Where does one pay\?'"):
        RecordedHits(path).search_many(QUERIES, 5)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("hits.jsonl", "no JSON", r"line 1: .*[Ii]nvalid JSON"),
        ("hits.jsonl", lines({"query": "q", "hits": []}, {"query": "q"}), "line 2: hits: it is missing: give a value"),
        ("hits.jsonl", lines({"query": "q", "hits": "x"}), "line 1: hits: expected a list, found the text 'x'"),
        ("hits.run", "q1 Q0 a.md 1 0.5", "line 1: expected six columns of a TREC run"),
        ("hits.run", "q1 Q0 a.md 1 high tag", "line 1: expected six columns of a TREC run"),
        ("hits.run", "q1 Q0 a.md 1 nan tag", "line 1: expected six columns of a TREC run"),
        ("hits.jsonl", lines({"hits": []}), "line 1: give the text of the query, or its query_id"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        RecordedHits(tmp_path / name).search_many(QUERIES, 5)
