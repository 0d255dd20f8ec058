"""What other tools read of a run: TREC's files by ir_measures and ranx, and questions with their passages."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rag_eval.chunking.fixed_token import FixedTokenChunker
from rag_eval.chunking.sentence import SentenceChunker
from rag_eval.config.models import BenchmarkConfig
from rag_eval.errors import ConfigurationError
from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports.exports import _file_names, _run_lines, export_run
from rag_eval.results.run_scores import read_scores
from rag_eval.sample import CORPUS, GROUND_TRUTH
from rag_eval.tokens import count_tokens
from rag_eval.types.ids import generate_chunk_id
from tests.chain import run_benchmark
from tests.results.made_runs import make_run, write_data

PAIRS = {"chunk_recall@5": "R@5", "chunk_mrr@5": "RR@5", "chunk_map@5": "AP@5", "chunk_ndcg@5": "nDCG@5"}
TEXTS = [
    "The ferry leaves at nine. It stops at the pier. It returns by night.",
    "=1+1 is a ferry. The pier has a lamp. The ferry waits for guests.",
    "Guests pay at the pier. The lamp is red. The ferry is blue.",
]


@pytest.fixture(scope="module")
def chunk_level(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run on chunk ids, of documents and questions whose names have blanks."""
    folder = tmp_path_factory.mktemp("export")
    (folder / "docs").mkdir()
    for number, text in enumerate(TEXTS):
        (folder / "docs" / f"a page {number}.md").write_text(text)
    chunker = SentenceChunker(30)
    chunks = [chunk for text in TEXTS for chunk in chunker.chunk(text)]
    lines = [
        {
            "id": f"q {word}",
            "query": f"Which {word} is it at the pier?",
            "relevant_chunk_ids": [generate_chunk_id(chunk) for chunk in chunks if word in chunk],
            "metadata": {"chunker": chunker.name},
        }
        for word in ("ferry", "lamp", "uests")
    ]
    (folder / "truth.jsonl").write_text("\n".join(map(json.dumps, lines)))
    config = BenchmarkConfig(
        corpus=folder / "docs",
        ground_truth=folder / "truth.jsonl",
        evaluation_type="chunk-level",
        chunkers=[chunker],
        retrieval=["bm25", "vector"],
        k=[2, 5],
        metrics=["chunk_recall", "chunk_mrr", "chunk_map", "chunk_ndcg"],
        objective="chunk_recall@5",
    )
    workspace = Workspace(root=folder / ".rag-eval")
    return workspace, run_benchmark(workspace, config)


def test_ir_measures_has_the_same_numbers(chunk_level: Any, tmp_path: Path) -> None:
    ir_measures = pytest.importorskip("ir_measures")
    workspace, outcome = chunk_level
    done = export_run(workspace, outcome, "trec", tmp_path)
    assert done.notes == []
    qrels = list(ir_measures.read_trec_qrels(str(tmp_path / "qrels.txt")))
    measures = {name: ir_measures.parse_measure(peer) for name, peer in PAIRS.items()}
    runs = [path for path in done.files if path.suffix == ".run"]
    assert len(runs) == len(outcome.configurations) == 2
    for one, path in zip(outcome.configurations, runs, strict=True):
        found = list(ir_measures.read_trec_run(str(path)))
        theirs = ir_measures.calc_aggregate(measures.values(), qrels, found)
        ours = {measure: one.metrics[name] for name, measure in measures.items()}
        assert theirs == pytest.approx(ours, abs=1e-9)
        assert 0 < ours[measures["chunk_mrr@5"]] <= 1


def test_equal_scores_keep_their_order_in_single_precision() -> None:
    hits = [{"rank": rank, "score": 0.1 + 1e-12, "chunk_id": f"{9 - rank} %"} for rank in (1, 2, 3)]
    again = {**hits[0], "rank": 4}
    columns = [line.split(" ") for line in _run_lines({"a query": [*hits, again]}, "tag")]
    assert {len(row) for row in columns} == {6}
    assert [row[2] for row in columns] == ["8%20%25", "7%20%25", "6%20%25"]
    scores = [np.float32(row[4]) for row in columns]
    assert scores[0] > scores[1] > scores[2] > np.float32(0.0999)


@pytest.mark.parametrize("objective", ["span_recall@3", "recall_within_tokens@60"])
def test_questions_have_the_passages_that_the_objective_counts(tmp_path: Path, objective: str) -> None:
    write_data(tmp_path, documents=3, queries=4)
    config = BenchmarkConfig(
        corpus=tmp_path / "docs",
        ground_truth=tmp_path / "truth.jsonl",
        chunkers=[FixedTokenChunker(20)],
        retrieval=["vector", "bm25"],
        k=[3],
        objective=objective,
    )
    workspace = Workspace(root=tmp_path / ".rag-eval")
    outcome = run_benchmark(workspace, config)
    (file,) = export_run(workspace, outcome, "jsonl", tmp_path / "out").files
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(lines) == 13 * len(outcome.configurations)
    assert sum(line["unanswerable"] for line in lines) == len(outcome.configurations)
    for line in lines:
        assert len(line["retrieved_contexts"]) == len(line["passages"])
        assert [one["rank"] for one in line["passages"]] == list(range(1, len(line["passages"]) + 1))
        for passage, text in zip(line["passages"], line["retrieved_contexts"], strict=True):
            content = (tmp_path / "docs" / passage["doc_id"]).read_text()
            assert content[passage["start"] : passage["end"]] == text
            assert passage["tokens"] == count_tokens(text, "cl100k_base")
    if objective == "span_recall@3":
        assert max(len(line["passages"]) for line in lines) == 3
    else:
        assert max(sum(one["tokens"] for one in line["passages"]) for line in lines) <= 60
        assert max(len(line["passages"]) for line in lines) > 1


def test_every_configuration_has_its_own_files() -> None:
    assert _file_names(["x-3", "x", "x!", "x?", "…"]) == ["x-3", "x", "x-2", "x-4", "configuration"]


def test_an_unknown_format_is_refused(chunk_level: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"'trek' \(did you mean trec\?\)"):
        export_run(*chunk_level, "trek", tmp_path)


def test_spans_have_no_trec_files(tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path / ".rag-eval")
    outcome = make_run(workspace, write_data(tmp_path, documents=3, queries=4))
    with pytest.raises(ConfigurationError, match="export jsonl"):
        export_run(workspace, outcome, "trec", tmp_path / "out")


def test_passages_that_touch_are_one_and_hold_what_was_scored(tmp_path: Path) -> None:
    objective = "recall_within_tokens@1000"
    config = BenchmarkConfig(
        corpus=CORPUS,
        ground_truth=GROUND_TRUTH,
        copies="off",
        chunkers=[FixedTokenChunker(100)],
        retrieval=["bm25"],
        returns=["section"],
        k=[5],
        objective=objective,
    )
    workspace = Workspace(root=tmp_path / ".rag-eval")
    outcome = run_benchmark(workspace, config)
    export_run(workspace, outcome, "jsonl", tmp_path / "out")
    lines = [json.loads(line) for line in (tmp_path / "out" / "passages.jsonl").read_text("utf-8").splitlines()]
    truth = {one.get("id"): one for one in map(json.loads, GROUND_TRUTH.read_text("utf-8").splitlines())}
    recalls, joined = [], 0
    for line in (one for one in lines if not one["unanswerable"]):
        held: set[tuple[str, int]] = set()
        for row, text in zip(line["passages"], line["retrieved_contexts"], strict=True):
            characters = {(row["doc_id"], at) for at in range(row["start"], row["end"])}
            assert not held & (characters | {(row["doc_id"], row["start"] - 1), (row["doc_id"], row["end"])})
            assert text == (CORPUS / row["doc_id"]).read_bytes().decode()[row["start"] : row["end"]]
            held |= characters
        joined += [row["rank"] for row in line["passages"]] != list(range(1, len(line["passages"]) + 1))
        spans = truth[line["query_id"]]["relevant_spans"]
        wanted = {(one["doc_id"], at) for one in spans for at in range(one["start"], one["end"])}
        recalls.append(len(wanted & held) / len(wanted))
    assert joined
    assert recalls == pytest.approx(read_scores(workspace, outcome).paired(objective).values[0].tolist())


def test_a_passage_that_joins_two_others_is_at_the_best_rank_of_all(tmp_path: Path) -> None:
    times = {1: 4, 7: 3, 3: 2, 5: 1}  # the windows of 1 and 7 are apart, that of 3 overlaps the first, that of 5 both
    lines = [" ".join(["lamp"] * times.get(line, 0) + ["pier"] * (5 - times.get(line, 0))) for line in range(9)]
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text(text := " ".join(f"{line.capitalize()}." for line in lines))
    span = {"doc_id": "a.md", "start": 0, "end": 4, "text": text[:4]}
    (tmp_path / "truth.jsonl").write_text(json.dumps({"query": "lamp", "relevant_spans": [span]}))
    config = BenchmarkConfig(
        corpus=tmp_path / "docs",
        ground_truth=tmp_path / "truth.jsonl",
        chunkers=[SentenceChunker(30)],
        retrieval=["bm25"],
        returns=["window"],
        k=[4],
        objective="span_recall@4",
    )
    workspace = Workspace(root=tmp_path / ".rag-eval")
    (file,) = export_run(workspace, run_benchmark(workspace, config), "jsonl", tmp_path / "out").files
    (passage,) = json.loads(file.read_text())["passages"]
    assert (passage["rank"], passage["start"], passage["end"]) == (1, 0, len(text))
