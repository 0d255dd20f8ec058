"""A run's scores: collected from the tables, kept in the run's folder, read again when the tables are gone."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

from rag_eval.config.models import BenchmarkConfig
from rag_eval.errors import ArtifactError, ConfigurationError
from rag_eval.pipeline.document_steps import chunk
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.housekeeping import clear
from rag_eval.results.run_scores import SCORES_FILE, RunScores, collect_scores, keep_scores, main_documents, read_scores
from tests.chain import load_documents
from tests.made_tables import chunk_truth, plain_chunks, span_truth
from tests.results.made_runs import LARGE, LARGE_NAME, ODD, SMALL, SMALL_NAME, Store, make_run, write_data


def mean_of(scores: RunScores, configuration: str, metric: str) -> float:
    return float(scores.paired(metric).subset([configuration]).values.mean(axis=1)[0])


def test_scores_are_those_of_the_summary_and_know_their_documents(store: Store) -> None:
    scores = collect_scores(store.workspace, store.slightly_worse)
    assert scores.configurations == (SMALL_NAME, LARGE_NAME)
    assert len(scores.queries) == store.slightly_worse.answerable == 60
    for one in store.slightly_worse.configurations:
        for metric, mean in one.metrics.items():
            assert mean_of(scores, one.name, metric) == pytest.approx(mean)
    first = scores.queries[0]
    assert (first.query_id, first.document, first.text) == ("q0-0", "00.md", f"Where is cabin0x0{ODD}?")
    assert {"recall_within_tokens@1000", "tokens_fetched"} <= set(scores.metrics)
    assert mean_of(scores, LARGE_NAME, "recall_within_tokens@4000") == pytest.approx(0.95)


def test_what_was_kept_is_read_again_without_the_tables(own_store: Store) -> None:
    workspace, run = own_store.workspace, own_store.good
    collected = collect_scores(workspace, run)
    clear(workspace)
    with pytest.raises(ArtifactError, match="is missing from the workspace"):
        collect_scores(workspace, run)
    kept = read_scores(workspace, run)
    assert (kept.metrics, kept.configurations, kept.queries) == (
        collected.metrics,
        collected.configurations,
        collected.queries,
    )
    np.testing.assert_array_equal(kept.values, collected.values)
    (one,) = read_scores(workspace, run, "span_recall@3").metrics
    assert one == "span_recall@3"
    (workspace.runs / run.run / SCORES_FILE).unlink()
    with pytest.raises(ArtifactError, match="run again"):
        read_scores(workspace, run)


@pytest.mark.parametrize(("limit", "metrics"), [(300, 2), (119, 1), (1, 1)])
def test_no_group_of_rows_has_a_part_of_a_metric(
    own_store: Store, monkeypatch: pytest.MonkeyPatch, limit: int, metrics: int
) -> None:
    monkeypatch.setattr("rag_eval.results.run_scores._ROW_GROUP", limit)
    workspace, run = own_store.workspace, own_store.good
    keep_scores(workspace, run)
    file = pq.ParquetFile(workspace.runs / run.run / SCORES_FILE).metadata
    *full, _ = [file.row_group(number).num_rows for number in range(file.num_row_groups)]
    assert set(full) == {metrics * 2 * 60}  # of two configurations and sixty queries


def test_other_programs_can_read_the_file(store: Store) -> None:
    frame = pl.read_parquet(store.workspace.runs / store.good.run / SCORES_FILE)
    assert frame.columns == ["metric", "cut", "size", "configuration", "query_id", "query", "document", "value"]
    mean = frame.filter(metric="span_recall", cut="hits", size=3, configuration=LARGE_NAME)["value"].mean()
    assert mean == pytest.approx(store.good.configurations[1].metrics["span_recall@3"])


def test_a_ranking_has_the_best_first_and_who_may_be_best(store: Store) -> None:
    scores = read_scores(store.workspace, store.much_worse)
    ranking = scores.ranking("span_precision@1")
    assert [placed.name for placed in ranking] == [SMALL_NAME, LARGE_NAME]
    assert [placed.among_best for placed in ranking] == [True, False]
    assert scores.ranking("tokens_retrieved@1")[0].name == SMALL_NAME


def test_a_metric_or_configuration_that_is_not_there_is_named_with_what_is(store: Store) -> None:
    scores = read_scores(store.workspace, store.good, "span_recal@3")
    with pytest.raises(ConfigurationError, match=r"by 'span_recal@3' \(did you mean span_recall@3\?\): use one of"):
        scores.paired("span_recal@3")
    with pytest.raises(ConfigurationError, match="no configuration 'x': use one of"):
        mean_of(scores, "x", "span_recall@3")


def test_a_run_whose_configurations_all_failed_has_no_scores(own_store: Store) -> None:
    failed = make_run(own_store.workspace, own_store.config, failing=[SMALL_NAME, LARGE_NAME])
    for scores in (read_scores(own_store.workspace, failed), collect_scores(own_store.workspace, failed)):
        assert scores.configurations == ()
        with pytest.raises(ConfigurationError, match="every configuration failed"):
            scores.paired("span_recall@3")


@pytest.mark.parametrize("damage", ["cut", "rows", "order", "columns"])
def test_a_damaged_file_is_made_up_for_by_the_tables_or_is_one_sentence(own_store: Store, damage: str) -> None:
    sound = read_scores(own_store.workspace, own_store.good)
    path = own_store.workspace.runs / own_store.good.run / SCORES_FILE
    table = pq.read_table(path)
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-50])
    else:
        half = table.num_rows // 2
        other = {
            "rows": table.slice(0, table.num_rows - 7),
            "order": table.take([*range(half, table.num_rows), *range(half)]).slice(3),
            "columns": table.drop_columns("query"),
        }
        pq.write_table(other[damage], path)
    np.testing.assert_array_equal(read_scores(own_store.workspace, own_store.good).values, sound.values)
    clear(own_store.workspace)
    with pytest.raises(ArtifactError, match=r"scores\.parquet'"):
        read_scores(own_store.workspace, own_store.good)


def test_chunk_level_scores_belong_to_documents_too(tmp_path: Path) -> None:
    data = write_data(tmp_path, documents=7, queries=2)
    workspace = Workspace(root=tmp_path / ".rag-eval")
    documents = workspace.read_tables(load_documents(workspace, data))
    chunks = chunk(documents, LARGE)[0].to_pylist()
    name = LARGE.name
    lines = [
        {
            "query": row["content"],
            "relevant_chunk_ids": [row["chunk_id"].replace("pa_chunk_", "chunk_")],
            "metadata": {"chunker": name},
        }
        for row in chunks
    ]
    truth = tmp_path / "chunks.jsonl"
    truth.write_text("\n".join(map(json.dumps, lines)))
    settings = {"evaluation_type": "chunk-level", "chunkers": [LARGE], "k": [1, 2]}
    config = BenchmarkConfig(corpus=data.corpus, ground_truth=truth, retrieval=["bm25"], **settings)  # type: ignore[arg-type]
    run = make_run(workspace, config)
    scores = read_scores(workspace, run)
    assert [query.document for query in scores.queries] == [row["doc_id"] for row in chunks]
    assert mean_of(scores, LARGE_NAME, "chunk_recall@2") == 1
    assert mean_of(scores, LARGE_NAME, "recall_within_tokens@4000") == 1
    assert keep_scores(workspace, run).metrics == scores.metrics
    assert SMALL.chunk_size < LARGE.chunk_size


def test_a_query_belongs_to_the_document_with_most_of_its_truth() -> None:
    rows = [("q", "b", 0, 5), ("q", "a", 0, 3), ("q", "a", 10, 12), ("r", "b", 0, 5), ("r", "c", 0, 6)]
    spans = span_truth([(query, doc, start, end, "x" * (end - start)) for query, doc, start, end in rows])
    assert main_documents(spans) == {"q": "a", "r": "c"}
    chunks = [("1", "b", 0, "x"), ("2", "a", 0, "y"), ("2", "c", 0, "y"), ("3", "c", 1, "z")]
    truth = [("q", "1"), ("q", "2"), ("r", "2"), ("r", "3"), ("s", "unknown")]
    found = main_documents(chunk_truth(truth), plain_chunks(chunks))
    assert found == {"q": "a", "r": "c", "s": ""}
