"""Where the first two configurations of a run differ, where they lose, and what could be tried."""

import json
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from rag_eval import sample
from rag_eval.chunking.recursive import RecursiveTokenChunker
from rag_eval.config.loading import load_config
from rag_eval.metrics.losses import LOSS_PARTS
from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports.markdown_report import why_lines
from rag_eval.reports.report import Report, build_report
from rag_eval.reports.why import Why, why
from rag_eval.results.run_scores import read_scores
from tests.chain import run_benchmark
from tests.reports.conftest import Kept


@pytest.fixture
def report(sample_report: Report) -> Report:
    return sample_report


@pytest.fixture(scope="module")
def words_alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Kept, Why]:
    """One configuration that searches by words."""
    workspace = Workspace(root=tmp_path_factory.mktemp("words"))
    sets = {"chunkers": [RecursiveTokenChunker(100)], "returns": [None], "k": [1, 3]}
    grid = load_config(sample.BENCHMARK).model_copy(update=sets)
    alone = grid.model_copy(update={"retrieval": [one for one in grid.retrieval if one == grid.retrieval[1]]})
    kept = Kept(workspace, run_benchmark(workspace, alone))
    return kept, build_report(workspace, kept.outcome).why


def test_the_losses_of_the_first_two_add_up_to_what_they_miss_by_the_objective(
    report: Report, words_alone: tuple[Kept, Why]
) -> None:
    kept, within = words_alone
    assert kept.outcome.ranking_metric == "recall_within_tokens@2000"
    assert (within.k, within.kind) == (2000, "tokens")
    (one,), (losses,) = kept.outcome.configurations, within.losses.values()
    assert sum(losses.values()) == pytest.approx(1 - one.metrics[kept.outcome.ranking_metric], abs=1e-9)
    assert "not in the first 2,000 tokens" in "\n".join(why_lines(within))
    assert (report.why.k, report.why.kind) == (5, "hits")
    assert len(report.why.losses) == 12
    for one, losses in zip(report.verdict.contenders, report.why.losses.items(), strict=False):
        assert losses[0] == one.name
        assert [*losses[1]] == [*LOSS_PARTS]
        assert sum(losses[1].values()) == pytest.approx(1 - one.outcome.metrics["span_recall@5"], abs=1e-9)


def test_slices_are_those_of_the_questions_of_the_run(report: Report) -> None:
    keys = {one.slice.key for one in report.why.slices}
    assert {"relevant passages", "words copied from its passages"} <= keys
    sizes = [abs(one.comparison.difference) for one in report.why.slices]
    assert sizes == sorted(sizes, reverse=True)
    assert ("no document" in report.why.finding) == all(
        one.comparison.verdict == "no difference shown" for one in report.why.slices
    )


def test_no_experiment_promises_more_than_is_missed(report: Report) -> None:
    first = report.verdict.contenders[0]
    gains = [one.gain for one in report.why.experiments if one.gain is not None]
    assert gains == sorted(gains, reverse=True)
    assert len(report.why.experiments) <= 3
    assert gains
    assert all(0 < gain <= 1 - first.mean + 1e-9 for gain in gains)


def characters(row: dict[str, Any]) -> set[tuple[str, int]]:
    return {(row["doc_id"], place) for place in range(row["start"], row["end"])}


def test_a_reranker_could_at_most_bring_up_what_was_fetched(words_alone: tuple[Kept, Why]) -> None:
    kept, found = words_alone
    (one,) = kept.outcome.configurations
    of = {one.setting.split(":")[0]: one for one in found.experiments}
    assert set(of) == {"rerankers", "retrieval", "context"}
    reached = read_scores(kept.workspace, kept.outcome).paired(kept.outcome.ranking_metric).values.mean()
    found_in: dict[str, set[tuple[str, int]]] = {}
    for hit in kept.workspace.read_table(one.hits).filter(pc.field("rank") <= 50).to_pylist():  # what is reranked
        found_in.setdefault(hit["query_id"], set()).update(characters(hit))
    wanted: dict[str, set[tuple[str, int]]] = {}
    for span in kept.workspace.read_table(kept.outcome.inputs.truth.answers).to_pylist():
        assert span["member"] == 0
        wanted.setdefault(span["query_id"], set()).update(characters(span))
    recalls = [len(marked & found_in.get(query, set())) / len(marked) for query, marked in wanted.items()]
    assert of["rerankers"].gain == pytest.approx(sum(recalls) / len(recalls) - reached)
    assert of["retrieval"].cost == f"{one.chunks.count} texts to embed"
    assert found.slices == []


def test_what_it_proposes_can_be_written_in_a_benchmark(
    report: Report, words_alone: tuple[Kept, Why], tmp_path: Path
) -> None:
    for one in [*report.why.experiments, *words_alone[1].experiments]:
        if not one.setting.startswith("rag-eval "):
            chunkers = "" if one.setting.startswith("chunkers") else "\nchunkers: markdown"
            (tmp_path / "b.yaml").write_text(f"corpus: docs\nground_truth: truth.jsonl{chunkers}\n{one.setting}\n")
            assert load_config(tmp_path / "b.yaml").configurations()


def test_markdown_and_json_have_all_of_it(report: Report) -> None:
    text = "\n".join(why_lines(report.why))
    assert report.why.finding.replace("_", "\\_") in text or "no document" in text
    for one in report.why.experiments:
        assert f"**{one.title}.**" in text.replace("\\", "")
    data = json.loads(json.dumps(report.why.to_data()))
    assert len(data["slices"]) == len(report.why.slices)
    assert {"key", "value", "n", "difference", "p_adjusted"} <= set(data["slices"][0])
    assert [one["title"] for one in data["experiments"]] == [one.title for one in report.why.experiments]


def test_without_tables_the_verdict_is_not_explained(report: Report, sample_run: Kept, tmp_path: Path) -> None:
    scores = read_scores(sample_run.workspace, report.outcome)
    found = why(Workspace(root=tmp_path), scores, report.verdict)
    assert (found.slices, found.losses, found.experiments) == ([], {}, [])
