"""Questions that nothing answers, in data shaped like SQuAD 2.0: in the report and in a sweep."""

import json
from pathlib import Path

import pytest

from rag_eval.chunking.recursive import RecursiveCharacterChunker
from rag_eval.config.models import BenchmarkConfig
from rag_eval.ground_truth.importing import import_truth
from rag_eval.ground_truth.importing.output import write_import
from rag_eval.ground_truth.truth_files import read_token_level
from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports.markdown_report import report_markdown
from rag_eval.reports.no_answer import NoAnswer, no_answer
from rag_eval.reports.report import build_report
from rag_eval.reports.write import report_html
from rag_eval.retrieval.selection import Selection
from rag_eval.sample import CORPUS, GROUND_TRUTH
from rag_eval.types.documents import Corpus
from tests.chain import run_benchmark
from tests.reports.conftest import Kept

THINGS = ["glacier", "sonata", "harvest", "comet", "treaty", "cathedral", "volcano", "marathon", "tapestry", "beacon"]
ASKED = [
    "Who restored the {} after the flood?",
    "How old is the {} that travellers describe?",
    "Which settings does the {} need to be deployed?",
    "What does the service return when the {} fails?",
    "Why was the {} moved to another town?",
    "When is the {} invoiced?",
    "How many users can share one {}?",
    "Is there a limit for the {} in the free plan?",
]
IMPOSSIBLE = [question.format(thing) for thing in THINGS for question in ASKED]


def squad(folder: Path) -> Path:
    """The sample's documents and questions with as many that nothing answers, in the format of SQuAD 2.0."""
    truth = [item for item in read_token_level(GROUND_TRUTH) if not item.unanswerable]
    articles = []
    for number, document in enumerate(Corpus.from_folder(CORPUS, "**/*.md")):
        questions = [
            {
                "id": item.query.id,
                "question": item.query.text,
                "is_impossible": False,
                "answers": [{"answer_start": span.start, "text": span.text} for span in item.relevant_spans],
            }
            for item in truth
            if {span.doc_id for span in item.relevant_spans} == {document.id}
        ]
        impossible = IMPOSSIBLE if number == 0 else []
        questions += [
            {"id": f"no-{i}", "question": one, "is_impossible": True, "answers": []} for i, one in enumerate(impossible)
        ]
        title = document.id.replace("/", " ").removesuffix(".md")
        articles.append({"title": title, "paragraphs": [{"context": document.content, "qas": questions}]})
    path = folder / "squad.json"
    path.write_text(json.dumps({"version": "v2.0", "data": articles}), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> BenchmarkConfig:
    folder = tmp_path_factory.mktemp("squad")
    found = import_truth("squad", str(squad(folder)), {})
    write_import(found, folder / "truth.jsonl", folder / "corpus")
    return BenchmarkConfig(
        corpus=folder / "corpus",
        ground_truth=folder / "truth.jsonl",
        chunkers=[RecursiveCharacterChunker(chunk_size=600, chunk_overlap=0)],
        retrieval=["bm25", "vector"],
    )


@pytest.fixture(scope="module")
def kept(config: BenchmarkConfig, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    workspace = Workspace(root=tmp_path_factory.mktemp("work"))
    return Kept(workspace, run_benchmark(workspace, config))


@pytest.fixture(scope="module")
def found(kept: Kept) -> NoAnswer:
    told = no_answer(kept.workspace, kept.outcome)
    assert told is not None
    return told


def test_every_configuration_has_a_threshold_that_keeps_the_rate(found: NoAnswer, kept: Kept) -> None:
    assert [one.name for one in found.configurations] == [one.name for one in kept.outcome.ranked()]
    for one in found.configurations:
        assert one.returned.n == len(IMPOSSIBLE)
        assert one.returned.value > 0.9
        assert one.threshold is not None
        assert one.threshold.false_hits.value <= 0.05
        assert one.threshold.interval[0] < 0.05 < one.threshold.interval[1]


def test_as_a_score_threshold_it_gives_the_rate_that_was_told(
    config: BenchmarkConfig, found: NoAnswer, kept: Kept
) -> None:
    bm25 = next(one for one in found.configurations if "bm25" in one.name)
    assert bm25.threshold is not None
    swept = [Selection(score_threshold=score) for score in (bm25.threshold.score, -1.0)]
    outcome = run_benchmark(kept.workspace, config.model_copy(update={"retrieval": ["bm25"], "selection": swept}))
    told = no_answer(kept.workspace, outcome)
    assert told is not None
    rates = {one.name: one.returned.count for one in told.configurations}
    expected = [bm25.threshold.false_hits.count, bm25.returned.count]
    assert sorted(rates.values()) == sorted(expected)
    # The scores that a threshold sees are those before it: what it is advised to be does not depend on it.
    assert {one.threshold.score for one in told.configurations if one.threshold} == {bm25.threshold.score}


def test_the_report_has_a_section_as_text_and_on_the_page(found: NoAnswer, kept: Kept) -> None:
    report = build_report(kept.workspace, kept.outcome)
    text, page = report_markdown(report), report_html(report)
    assert "## Questions without an answer" in text
    assert "80 questions declared unanswerable" in text
    assert [f">{cell}<" in page for row in found.rows() for cell in row] == [True] * 10
    assert '<a href="#no-answer">No answer</a>' in page


def test_a_run_without_such_questions_has_no_section(kept: Kept) -> None:
    report = build_report(kept.workspace, kept.outcome.model_copy(update={"unanswerable": 0}))
    assert report.no_answer is None
    assert "Questions without an answer" not in report_markdown(report) + report_html(report)
