"""What a run retrieved and nobody judged: in the report, and pooled and judged by the command."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rag_eval import ChunkLevelGroundTruth, Corpus, Query, generate_chunk_id
from rag_eval.chunking.fixed_token import FixedTokenChunker
from rag_eval.chunking.markdown import MarkdownChunker
from rag_eval.cli.main import app
from rag_eval.config.models import BenchmarkConfig
from rag_eval.ground_truth.pooling import PassageGrade, draw_sample, with_grades
from rag_eval.ground_truth.sources import FileTruth
from rag_eval.ground_truth.truth_files import Truth, read_chunk_level, read_token_level, write_truth
from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports.markdown_report import report_markdown
from rag_eval.reports.report import build_report
from rag_eval.reports.unjudged import UnjudgedReport, pooled_truth, unjudged_of
from rag_eval.reports.write import report_html
from rag_eval.results.outcome import BenchmarkOutcome
from rag_eval.sample import CORPUS, GROUND_TRUTH
from rag_eval.types.evidence import PERSON, judgements
from tests.chain import run_benchmark
from tests.doubles.openai_fixtures import KEY
from tests.doubles.openai_server import JSON, OpenAIServer

MODEL = "judge-1"
WORDS = ("ferry", "kr", "master")
PART = re.compile(r"<<<(question|passage) (\w+)>>>\n(.*?)\n<<<end of \1 \2>>>", re.DOTALL)


def config(truth: Path, **changes: Any) -> BenchmarkConfig:
    given: dict[str, Any] = {
        "chunkers": [MarkdownChunker(800), FixedTokenChunker(120)],
        "retrieval": ["bm25"],
        "k": [1, 3],
        "objective": "span_precision@3",
    }
    return BenchmarkConfig(corpus=CORPUS, ground_truth=[FileTruth(truth)], **given | changes)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, BenchmarkOutcome]:
    workspace = Workspace(root=tmp_path_factory.mktemp("unjudged"))
    return workspace, run_benchmark(workspace, config(GROUND_TRUTH))


def judge(body: JSON) -> str:
    """Take passages with one of the words for relevant."""
    parts = {name: text for name, _, text in PART.findall(body["messages"][-1]["content"])}
    is_relevant = any(word in parts["passage"] for word in WORDS)
    return json.dumps({"reason": "It says so.", "grade": 3 if is_relevant else 0})


def graded(items: list[Truth], judge: str, grades: dict[Any, int]) -> list[Truth]:
    return with_grades(items, judge, {key: PassageGrade(reason="", grade=grade) for key, grade in grades.items()})  # type: ignore[arg-type]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with OpenAIServer(api_key=KEY) as running:
        running.reply = judge
        yield running


def pool(kept: tuple[Workspace, BenchmarkOutcome], output: Path, *more: str, code: int = 0) -> str:
    found = CliRunner().invoke(app, ["truth", "pool", "--workspace", str(kept[0].root), "-o", str(output), *more])
    assert found.exit_code == code, found.output
    told = f"{found.output} {found.exception}" if code else found.output
    assert KEY not in told
    return told


def test_the_report_tells_what_is_unjudged_and_what_that_leaves_open(
    kept: tuple[Workspace, BenchmarkOutcome],
) -> None:
    workspace, outcome = kept
    report = build_report(workspace, outcome)
    found = report.unjudged
    assert isinstance(found, UnjudgedReport)
    assert found.titles == ("configuration", "unjudged", "span_precision@3", "at most")
    for one in found.configurations:
        # Nothing was judged, so that all but the truth is unjudged.
        assert one.unjudged == pytest.approx(1 - one.value)
        assert one.most == pytest.approx(1.0)
        assert one.precision is None
    first, page = found.configurations[0], report_html(report)
    said = f"{100 * first.unjudged:.1f} % of what {first.name} retrieves is unjudged"
    assert said in page
    assert said in report_markdown(report)
    assert "cannot be higher than 1.000, nor lower than shown." in page
    assert all(f">{cell}<" in page for row in found.rows() for cell in row)


def test_recall_has_a_bound_above_and_own_metrics_none(
    kept: tuple[Workspace, BenchmarkOutcome], tmp_path: Path
) -> None:
    recall = unjudged_of(kept[0], run_benchmark(kept[0], config(GROUND_TRUTH, objective="recall_within_tokens@500")))
    assert recall is not None
    assert all(one.most is not None and one.value < one.most < 1 for one in recall.configurations)
    assert "but lower if relevant text was not retrieved" in " ".join(recall.sentences)
    ranked = unjudged_of(kept[0], run_benchmark(kept[0], config(GROUND_TRUTH, objective="span_ndcg@3")))
    assert ranked is not None
    assert all(one.most is None for one in ranked.configurations)


def test_what_was_retrieved_is_pooled_and_graded_by_a_model(
    kept: tuple[Workspace, BenchmarkOutcome], server: OpenAIServer, tmp_path: Path
) -> None:
    output = tmp_path / "judged.jsonl"
    told = json.loads(pool(kept, output, "--k", "2", "--sample", "30", "--json"))
    count = told["passages"]["pooled"]
    assert told["passages"] == {"pooled": count, "waiting": count, "relevant": 0, "sampled": 30}
    command = ("--k", "2", "--judge", MODEL, "--base-url", server.base_url)
    said = " ".join(pool(kept, output, *command).split())
    assert f"{MODEL} graded {count:,} passages ({count:,} requests paid" in said
    assert "rag-eval truth review" in said
    assert len(server.requests) == count
    for item in read_token_level(output):
        for one in judgements(item.query):
            is_relevant = any(word in one.passage.text for word in WORDS)  # type: ignore[union-attr]
            assert one.grades == {MODEL: 3 if is_relevant else 0}
            assert one.reasons == {MODEL: "It says so."}
            assert (item.origins.get(one.passage) == f"judged by {MODEL}") == (is_relevant and not one.sampled)  # type: ignore[call-overload]
    # What is graded is not asked again, and what was answered is not paid again.
    pool(kept, output, *command)
    output.unlink()
    again = json.loads(pool(kept, output, *command, "--json"))
    assert len(server.requests) == count
    assert (again["judge"]["graded"], again["judge"]["paid_calls"]) == (count, 0)
    with_marks = server.requests[0].body["messages"][-1]["content"]
    assert {name for name, _, _ in PART.findall(with_marks)} == {"question", "passage"}


def test_a_budget_ends_asking_and_the_same_again_goes_on(
    kept: tuple[Workspace, BenchmarkOutcome], server: OpenAIServer, tmp_path: Path
) -> None:
    output = tmp_path / "judged.jsonl"
    prices = ("--input-price", "1", "--output-price", "10", "--concurrency", "1")
    asked = ("--k", "1", "--judge", "judge-3", "--base-url", server.base_url, *prices)
    said = pool(kept, output, *asked, "--max-cost", "0.02", code=1)
    assert "have no grade: run again with a higher --max-cost" in " ".join(said.split())
    some = [one for item in read_token_level(output) for one in judgements(item.query)]
    done = [one for one in some if one.grades]
    assert 0 < len(done) < len(some)
    least = min((one.configurations, -one.rank) for one in done)
    assert all((one.configurations, -one.rank) <= least for one in some if not one.grades)
    before = len(server.requests)
    pool(kept, output, *asked)
    assert len(server.requests) <= before + len(some) - len(done)
    assert all(one.grades for item in read_token_level(output) for one in judgements(item.query))


def test_chunk_ids_are_pooled_graded_and_estimated_too(server: OpenAIServer, tmp_path: Path) -> None:
    chunker = MarkdownChunker(800)
    chunks = [
        chunk for document in Corpus.from_folder(CORPUS, "**/*.md") for chunk in chunker.chunk_with_positions(document)
    ]
    truth = []
    for item in read_token_level(GROUND_TRUTH)[:25]:
        held = [c for c in chunks for s in item.relevant_spans if c.to_span().overlaps(s)]
        if held:
            query = Query.from_text(item.query.text, {"chunker": chunker.name})
            truth.append(ChunkLevelGroundTruth(query, [generate_chunk_id(held[0].content)]))
    write_truth(tmp_path / "chunks.jsonl", truth)
    workspace, output = Workspace(root=tmp_path / "workspace"), tmp_path / "judged.jsonl"
    asked = {"evaluation_type": "chunk-level", "chunkers": [chunker], "objective": "chunk_precision@3"}
    outcome = run_benchmark(workspace, config(tmp_path / "chunks.jsonl", **asked))
    command = ("--judge", MODEL, "--base-url", server.base_url, "--json")
    told = json.loads(pool((workspace, outcome), output, "--k", "3", "--sample", "20", *command))
    assert told["judge"]["graded"] == told["passages"]["pooled"] > 20
    items = read_chunk_level(output)
    texts = {generate_chunk_id(chunk.content): chunk.content for chunk in chunks}
    for item in items:
        for one in judgements(item.query):
            assert one.grades == {MODEL: 3 if any(word in texts[one.passage] for word in WORDS) else 0}  # type: ignore[index]
    sample = {(item.query.id, one.passage): 0 for item in items for one in judgements(item.query) if one.sampled}
    write_truth(output, graded(items, PERSON, sample))
    found = unjudged_of(workspace, run_benchmark(workspace, config(output, **asked)))
    assert found is not None
    (only,) = found.configurations
    assert only.unjudged == 0.0
    assert only.precision is not None
    assert only.precision.powered.mean < only.precision.model.mean


def test_people_who_judge_a_sample_correct_the_model(kept: tuple[Workspace, BenchmarkOutcome], tmp_path: Path) -> None:
    """A model that takes too much for relevant: its precision is too high, and the sample puts that right."""
    workspace, outcome = kept
    pooled = pooled_truth(workspace, outcome, 3)
    items = draw_sample(pooled, 120, 0)
    every = [(item.query.id, one) for item in items for one in judgements(item.query)]
    really = {(query_id, one.passage): 3 * (len(one.passage.text) % 5 == 0) for query_id, one in every}  # type: ignore[union-attr]
    model = {key: max(grade, 3 * (len(key[1].text) % 3 == 0)) for key, grade in really.items()}  # type: ignore[union-attr]
    by_both = graded(
        graded(items, MODEL, model),
        PERSON,
        {(q, one.passage): really[q, one.passage] for q, one in every if one.sampled},
    )
    found, values = {}, {}
    for name, truth in (
        ("all", graded(items, PERSON, really)),
        ("model", graded(pooled, MODEL, model)),
        ("both", by_both),
    ):
        write_truth(tmp_path / f"{name}.jsonl", truth)
        done = run_benchmark(workspace, config(tmp_path / f"{name}.jsonl"))
        found[name] = unjudged_of(workspace, done)
        values[name] = {one.name: one.metrics["span_precision@3"] for one in done.configurations}
    estimated = found["both"]
    assert estimated is not None
    assert estimated.judge == MODEL
    assert (estimated.pooled, estimated.waiting) == (len(every), 0)
    assert estimated.relevance is not None
    share = sum(grade > 0 for grade in really.values()) / len(really)
    assert estimated.relevance.model.mean == pytest.approx(sum(grade > 0 for grade in model.values()) / len(model))
    assert estimated.relevance.powered.low is not None
    assert estimated.relevance.powered.high is not None
    assert estimated.relevance.powered.low < share < estimated.relevance.powered.high
    for one in estimated.configurations:
        assert one.precision is not None
        # The model alone is what the truth with its grades gives, however much of it people changed since.
        assert one.precision.model.mean == pytest.approx(values["model"][one.name])
        powered, human = one.precision.powered, one.precision.human
        assert powered.low is not None
        assert powered.high is not None
        assert powered.low < values["all"][one.name] < powered.high
        assert powered.high - powered.low < human.high - human.low  # type: ignore[operator]
        assert one.precision.model.mean > values["all"][one.name]
    assert estimated.titles[-1] == "estimated precision"
    assert f"People judged 120 of {len(every):,} pooled passages" in " ".join(estimated.sentences)
    assert found["model"] is not None
    assert found["model"].relevance is None
