"""What is too much for one page is left out by rule, and said."""

import json

import pytest

from rag_eval.reports.question_data import kinds_of, pack_overlay
from rag_eval.reports.question_tables import Questions, affordable, questions_of
from rag_eval.results.run_scores import read_scores
from rag_eval.tables import QUERIES, table_of
from tests.reports.conftest import Kept


@pytest.fixture(scope="module")
def questions(sample_run: Kept) -> Questions:
    scores = read_scores(sample_run.workspace, sample_run.outcome)
    return questions_of(sample_run.workspace, sample_run.outcome, scores)


def test_everything_fits_on_the_sample(questions: Questions) -> None:
    assert affordable(questions) == questions
    overlay = pack_overlay(questions)
    assert len(overlay.manifest["configurations"]) == 12
    assert overlay.notes == []
    # Twelve configurations of four chunkers: what they share is carried once.
    assert sum(section.name.startswith("chunks-") for section in overlay.sections) == 4


def test_kinds_are_what_tells_questions_apart() -> None:
    metadata = [{"hard": number % 2, "source": "a model", "note": f"n {number}", "part": ["x"]} for number in range(6)]
    rows = [(f"q{number}", "?", False, json.dumps(one)) for number, one in enumerate(metadata)]
    labels, by_query = kinds_of(table_of(QUERIES, rows), [1] * 6)
    # What all share and what nobody shares is no kind.
    assert labels == ["hard: 0", "hard: 1"]
    assert by_query == [[0], [1]] * 3
    labels, by_query = kinds_of(table_of(QUERIES, rows), [1, 2, 4, 3, 1, 0])
    assert labels[2:] == ["relevant passages: 1", "relevant passages: 2", "relevant passages: 3 or more"]
    assert by_query == [[0, 2], [1, 3], [0, 4], [1, 4], [0, 2], [1]]


def test_of_too_many_configurations_the_best_stay(questions: Questions) -> None:
    kept = affordable(questions, most_hits=72 * 10 * 3)
    assert [side.name for side in kept.configurations] == [side.name for side in questions.configurations[:3]]
    assert kept.notes == ["The questions show the best 3 of 12 configurations."]


def test_of_too_many_scores_those_of_the_ranking_stay(questions: Questions) -> None:
    at_cut = affordable(questions, most_scores=72 * 12 * 5)
    names = ("span_recall", "tokens_retrieved", "span_precision", "span_iou", "span_ndcg")
    assert list(at_cut.metrics) == [f"{name}@5" for name in names]
    assert len(at_cut.notes) == 1
    alone = affordable(questions, most_scores=100)
    assert list(alone.metrics) == ["span_recall@5"]
    assert alone.notes[-1] == "The questions show these scores only: span_recall@5."
