"""Two runs compared: differences, verdicts, single queries, and data that must be the same."""

import re
from pathlib import Path

import pytest

from rag_eval.config.models import BenchmarkConfig
from rag_eval.errors import ConfigurationError
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.compare import compare_runs, name_pairs
from rag_eval.results.runs import data_differences
from tests.results.made_runs import LARGE_NAME, SMALL_NAME, Store, make_run, write_data


def other_data(folder: Path, config: BenchmarkConfig, *, corpus: bool) -> BenchmarkConfig:
    """The benchmark on other data: one more document, or one query less."""
    changed = write_data(folder, documents=12)
    if corpus:
        (folder / "docs" / "more.md").write_text("More.")
    else:
        lines = (folder / "truth.jsonl").read_text(encoding="utf-8").splitlines()
        (folder / "truth.jsonl").write_text("\n".join(lines[1:]), encoding="utf-8")
    return config.model_copy(update={"corpus": changed.corpus, "ground_truth": changed.ground_truth})


def test_a_worse_run_is_worse_and_a_slightly_worse_one_cannot_be_told_apart(store: Store) -> None:
    found = compare_runs(store.workspace, store.good, store.much_worse)
    assert found.metrics == ["span_recall@3", "tokens_retrieved@3", "span_precision@3"]
    assert len(found.rows) == 6
    assert (found.queries, found.differences, found.unpaired()) == (60, [], {})
    by_metric = {(row.metric, row.before): row.comparison for row in found.rows}
    recall = by_metric["span_recall@3", LARGE_NAME]
    assert recall.verdict == "worse"
    assert recall.difference == pytest.approx(-0.3)
    assert (recall.better, recall.worse, recall.equal) == (0, 18, 42)
    # Fewer tokens are better, even when nothing was found.
    assert by_metric["tokens_retrieved@3", LARGE_NAME].verdict == "better"
    assert by_metric["tokens_retrieved@3", LARGE_NAME].difference < 0
    slight = compare_runs(store.workspace, store.good, store.slightly_worse, metrics=["span_recall@3"])
    assert {row.comparison.verdict for row in slight.rows} == {"no difference shown"}
    back = compare_runs(store.workspace, store.much_worse, store.good, metrics=["span_recall@3"])
    assert {row.comparison.verdict for row in back.rows} == {"better"}


def test_the_configurations_of_a_metric_come_best_first(store: Store) -> None:
    found = compare_runs(store.workspace, store.good, store.much_worse)
    for metric in found.metrics:
        rows = found.by_metric(metric)
        assert {(row.metric, row.after) for row in rows} == {(metric, SMALL_NAME), (metric, LARGE_NAME)}
    # Large chunks bring more of what is sought and of everything else: fewer tokens are better.
    assert [row.after for row in found.by_metric("span_recall@3")] == [LARGE_NAME, SMALL_NAME]
    assert [row.after for row in found.by_metric("tokens_retrieved@3")] == [SMALL_NAME, LARGE_NAME]


def test_single_queries_are_given_worst_first(store: Store) -> None:
    found = compare_runs(store.workspace, store.slightly_worse, store.much_worse, metrics=["span_recall@3"])
    changes = found.query_changes(found.rows[1])
    assert len(changes) == found.rows[1].comparison.better + found.rows[1].comparison.worse
    assert [change.gain for change in changes] == sorted(change.gain for change in changes)
    worst = changes[0]
    assert (worst.before, worst.after, worst.gain) == (1, 0, -1)
    assert worst.text.startswith("Where is cabin")
    assert worst.document == f"{int(worst.query_id[1:].split('-')[0]):02}.md"


def test_what_a_query_gains_is_what_it_costs_less(store: Store) -> None:
    for metric, sign in (("span_recall@3", 1), ("tokens_retrieved@3", -1)):
        found = compare_runs(store.workspace, store.slightly_worse, store.much_worse, metrics=[metric])
        changes = found.query_changes(found.rows[1])
        assert changes
        assert [one.gain for one in changes] == [sign * (one.after - one.before) for one in changes]


def test_configurations_are_paired_by_name_or_as_asked(store: Store) -> None:
    good, failed = store.good, store.partly_failed
    found = compare_runs(store.workspace, good, failed)
    assert {row.after for row in found.rows} == {SMALL_NAME}
    assert found.unpaired() == {LARGE_NAME: ("scored", "failed")}
    pairs = name_pairs(good, good, [f"{SMALL_NAME}={LARGE_NAME}"])
    (row,) = compare_runs(store.workspace, good, good, pairs=pairs, metrics=["span_precision@1"]).rows
    assert (row.before, row.after, row.comparison.verdict) == (SMALL_NAME, LARGE_NAME, "worse")
    assert (row.name, found.rows[0].name) == (f"{SMALL_NAME} → {LARGE_NAME}", SMALL_NAME)
    assert name_pairs(good, failed, [SMALL_NAME]) == {SMALL_NAME: SMALL_NAME}
    missing = rf"not both runs have the configuration '{re.escape(LARGE_NAME)}'.*: use one of"
    with pytest.raises(ConfigurationError, match=missing):
        name_pairs(good, failed, [LARGE_NAME])
    with pytest.raises(ConfigurationError, match="twice: name each once"):
        name_pairs(good, good, [SMALL_NAME, f"{SMALL_NAME}={LARGE_NAME}"])
    with pytest.raises(ConfigurationError, match=r"has no scores by 'span_iou@3'.*: use one of .* others"):
        compare_runs(store.workspace, good, good, metrics=["span_iou@3"])


def test_runs_without_a_common_configuration_are_refused(own_store: Store) -> None:
    one = make_run(own_store.workspace, own_store.config, failing=[SMALL_NAME])
    with pytest.raises(ConfigurationError, match=r"no configuration of the same name: .*--configuration BEFORE=AFTER"):
        compare_runs(own_store.workspace, one, own_store.partly_failed)


@pytest.mark.parametrize("corpus", [True, False])
def test_other_data_is_refused_by_name_and_compared_on_common_queries_if_allowed(
    own_store: Store, tmp_path: Path, corpus: bool
) -> None:
    other = make_run(own_store.workspace, other_data(tmp_path / "other", own_store.config, corpus=corpus))
    asked = "the ground truth differs: 61 questions, of which 60 have an answer"
    what, count = ("the corpus differs: 12 documents", "13") if corpus else (asked, "60")
    with pytest.raises(ConfigurationError, match=rf"{what} \(\w{{12}}…\) in .* and {count} .*--allow-different"):
        compare_runs(own_store.workspace, own_store.good, other)
    found = compare_runs(own_store.workspace, own_store.good, other, allow_different=True)
    assert len(found.differences) == 1
    assert found.differences[0].endswith(" (new more.md)") == corpus
    assert found.queries == (60 if corpus else 59)
    assert {row.comparison.verdict for row in found.rows} == {"no difference shown"}


@pytest.mark.parametrize("shards", [1, 5])
def test_documents_that_differ_are_named_as_far_as_they_are_few(own_store: Store, tmp_path: Path, shards: int) -> None:
    config = write_data(tmp_path / "other", documents=12)
    edited = sorted((tmp_path / "other" / "docs").iterdir())[-4:]
    for path in edited:
        path.write_text(path.read_text(encoding="utf-8") + "More.", encoding="utf-8")
    (tmp_path / "other" / "docs" / "z.md").write_text("New.")
    changed = {"corpus": config.corpus, "shards": shards}
    other = make_run(own_store.workspace, own_store.config.model_copy(update=changed))
    names = ", ".join(path.name for path in edited[:3])
    (told,) = data_differences(own_store.good, other, own_store.workspace)
    assert told.endswith(f" (changed {names} and 1 more; new z.md)")
    assert data_differences(own_store.good, other) == [told.partition(" (changed")[0]]
    assert data_differences(other, own_store.good, own_store.workspace)[0].endswith("; gone z.md)")


def test_the_same_documents_in_more_shards_are_the_same_data(own_store: Store) -> None:
    other = make_run(own_store.workspace, own_store.config.model_copy(update={"shards": 4}))
    assert len(other.inputs.documents) == 4
    assert compare_runs(own_store.workspace, own_store.good, other).differences == []


def test_a_file_that_one_run_alone_could_read_is_named_in_any_number_of_shards(
    own_store: Store, tmp_path: Path
) -> None:
    config = write_data(tmp_path / "other", documents=12)
    (tmp_path / "other" / "docs" / "z.md").write_text("Read in time.")
    other = make_run(own_store.workspace, own_store.config.model_copy(update={"corpus": config.corpus, "shards": 4}))
    other = other.model_copy(update={"corpus": own_store.good.corpus})  # the folder as it was
    (told,) = data_differences(own_store.good, other, own_store.workspace)
    assert told.startswith("the same files were read differently: no loaders in ")
    assert told.endswith(" (new z.md)")


def test_what_was_read_counts_and_not_how_the_file_was_written(own_store: Store, tmp_path: Path) -> None:
    config = write_data(tmp_path / "same")
    truth = tmp_path / "same" / "truth.jsonl"
    truth.write_text("\n" + truth.read_text(encoding="utf-8") + "\n\n", encoding="utf-8")
    run = make_run(own_store.workspace, config)
    assert run.ground_truth.digest != own_store.good.ground_truth.digest
    assert data_differences(own_store.good, run) == []


def test_runs_that_share_no_query_or_no_evaluation_type_are_never_compared(own_store: Store, tmp_path: Path) -> None:
    config = write_data(tmp_path / "other", documents=2, queries=1)
    truth = tmp_path / "other" / "truth.jsonl"
    text = truth.read_text(encoding="utf-8").replace('"id": "q', '"id": "other')
    truth.write_text(text, encoding="utf-8")
    other = make_run(own_store.workspace, config)
    with pytest.raises(ConfigurationError, match="no query in common"):
        compare_runs(own_store.workspace, own_store.good, other, allow_different=True)
    chunk_level = own_store.config.model_copy(update={"evaluation_type": "chunk-level"})
    run = own_store.good.model_copy(update={"config": chunk_level})
    with pytest.raises(ConfigurationError, match=r"is token-level and .* is chunk-level"):
        compare_runs(own_store.workspace, own_store.good, run, allow_different=True)


def test_few_documents_are_resampled_by_query(tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path / ".rag-eval")
    config = write_data(tmp_path, documents=2, queries=12)
    found = compare_runs(workspace, make_run(workspace, config), make_run(workspace, config, lost=0.5))
    assert (found.rows[0].comparison.unit, found.rows[0].comparison.units) == ("queries", 24)
    assert found.rows[0].comparison.verdict == "worse"
