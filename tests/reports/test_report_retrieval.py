"""What was searched and what was returned, in a run, its budgets, its losses and its report."""

import json

import pytest

from rag_eval.config.models import BenchmarkConfig
from rag_eval.metrics.losses import LOSS_PARTS
from rag_eval.metrics.metric import DEFAULT_ENCODING
from rag_eval.metrics.score_tables import score_passages
from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports.question_data import pack_overlay
from rag_eval.reports.question_tables import questions_of
from rag_eval.results.outcome import BenchmarkOutcome
from rag_eval.results.run_losses import configuration_losses
from rag_eval.results.run_scores import collect_scores
from rag_eval.retrieval import REWRITER
from rag_eval.retrieval.passages import DocumentPassage, WindowPassage
from rag_eval.sample import CORPUS, GROUND_TRUTH
from rag_eval.tables import TruthTables, documents_from_table
from rag_eval.tokens import count_tokens
from rag_eval.types.documents import Corpus
from tests.chain import run_benchmark
from tests.reports.test_report_packing import unpack


def other_words(question: str) -> list[str]:
    return [question, f"tell me: {question}"]


CONFIG = BenchmarkConfig.model_validate(
    {"corpus": CORPUS, "ground_truth": GROUND_TRUTH, "k": [1, 5], "metrics": ["span_recall", "tokens_retrieved"]}
    | {"chunkers": [{"type": "recursive-token", "chunk_size": 100}], "retrieval": ["bm25"], "context": ["headings"]}
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, BenchmarkOutcome]:
    axes = {"queries": [None, REWRITER.take(other_words)], "returns": [None, WindowPassage()]}
    workspace = Workspace(root=tmp_path_factory.mktemp("work"))
    return workspace, run_benchmark(workspace, CONFIG.model_copy(update=axes))


def test_budgets_scores_and_losses_are_those_of_the_passages(made: tuple[Workspace, BenchmarkOutcome]) -> None:
    workspace, outcome = made
    scores = collect_scores(workspace, outcome)
    truth = outcome.inputs.truth
    tables = TruthTables(workspace.read_table(truth.queries), workspace.read_table(truth.answers))
    documents = documents_from_table(workspace.read_tables(outcome.inputs.documents))
    for place, one in enumerate(outcome.configurations):
        assert (one.passages is None) == ("window" not in one.name)
        if one.passages is None:
            continue
        passages = workspace.read_table(one.passages)
        again = score_passages("token-level", passages, tables, ["recall_within_tokens@500"], documents=documents)
        row = scores.metrics.index("recall_within_tokens@500")
        assert scores.values[row, place].tolist() == again.column("value").to_pylist()
        losses = configuration_losses(workspace, outcome, one, [5])
        assert losses is not None
        assert sum(losses.parts.column("return").to_pylist()) < 0  # more text finds more
        for means in losses.parts.to_pylist():
            assert means["final_recall"] + sum(means[part] for part in LOSS_PARTS) == pytest.approx(1)


def test_the_overlay_draws_passages_and_says_what_was_searched(made: tuple[Workspace, BenchmarkOutcome]) -> None:
    workspace, outcome = made
    asked = questions_of(workspace, outcome, collect_scores(workspace, outcome))
    packed = pack_overlay(asked)
    sections = {section.name: section for section in packed.sections}
    rewritten = {one["name"]: one["rewritten"] for one in packed.manifest["configurations"]}
    for number, side in enumerate(asked.configurations):
        assert rewritten[side.name] == ("queries" in side.name) == (f"searches-{number}" in sections)
        if rewritten[side.name]:
            texts = json.loads(unpack(sections[f"searches-{number}"]))
            assert texts[0] == [f"tell me: {asked.queries.column('text')[0].as_py()}"]
    whole, plain = (
        side.chunks.column("end").to_numpy() - side.chunks.column("start").to_numpy()
        for name in (", window 1", "")
        for side in asked.configurations
        if side.name == f"recursive-token 100/0, bm25, headings{name}"
    )
    assert whole.mean() > 2 * plain.mean()


def test_what_fell_back_is_said(made: tuple[Workspace, BenchmarkOutcome]) -> None:
    workspace, _ = made
    config = CONFIG.model_copy(update={"returns": [DocumentPassage(max_tokens=1400)]})
    (one,) = run_benchmark(workspace, config).configurations
    corpus = Corpus.from_folder(CORPUS)
    long = {document.id for document in corpus if count_tokens(document.content, DEFAULT_ENCODING) > 1400}
    found = workspace.read_table(one.hits).column("doc_id").to_pylist()
    count = sum(doc_id in long for doc_id in found)
    assert 0 < count < len(found)
    told = "hits are returned unchanged, because the text around them exceeds max_tokens"
    assert one.notes == [f"{one.name}: {count:,} {told}."]
