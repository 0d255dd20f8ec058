"""Ground truth from files, LangSmith and a user's own code, and what several sources give together."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langsmith import utils as langsmith_utils

from rag_eval.config.loading import load_config
from rag_eval.config.models import BenchmarkConfig, BenchmarkRecord
from rag_eval.config.truth_sources import read_sources
from rag_eval.errors import ConfigurationError, GroundTruthError, ServiceError
from rag_eval.ground_truth.sources import FileTruth, join_truth
from rag_eval.ground_truth.truth_files import read_token_level
from rag_eval.pipeline.ground_truth_steps import pulled_truth
from rag_eval.pipeline.inputs import TruthSource
from rag_eval.pipeline.references import TruthRef
from rag_eval.pipeline.workspace import Workspace
from rag_eval.services.langsmith_client import LangSmithService, langsmith_client
from rag_eval.services.langsmith_datasets import push_truth
from rag_eval.services.langsmith_truth import LangSmithTruth
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.evidence import ChunkLevelGroundTruth, Query, TokenLevelGroundTruth
from rag_eval.types.ids import ChunkId, DocumentId, QueryId, QueryText
from tests.chain import load_inputs
from tests.doubles.langsmith_fixtures import no_langsmith_settings, server
from tests.doubles.langsmith_server import KEY, LangSmithServer

__all__ = ["no_langsmith_settings", "server"]

TEXT = "Boats leave at nine. The quay is closed on Sundays. Dogs travel free."
Push = Callable[..., None]


def item(query: str, words: str, query_id: str = "", **more: Any) -> TokenLevelGroundTruth:
    start = TEXT.index(words)
    span = CharacterSpan(DocumentId("a.md"), start, start + len(words), words)
    asked = Query(QueryId(query_id), QueryText(query)) if query_id else Query.from_text(query)
    return TokenLevelGroundTruth(asked, [span], **more)


WHEN, CLOSED, DOGS = (
    item("When do boats leave?", "Boats leave at nine."),
    item("When is the quay closed?", "closed on Sundays"),
    item("What do dogs pay?", "Dogs travel free."),
)


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "a.md").write_text(TEXT, encoding="utf-8")
    return folder


@pytest.fixture
def push(server: LangSmithServer, monkeypatch: pytest.MonkeyPatch) -> Push:
    """Puts ground truth into a dataset of the server, which the environment names."""
    monkeypatch.setenv("LANGSMITH_API_KEY", KEY)
    monkeypatch.setenv("LANGSMITH_ENDPOINT", server.url)
    langsmith_utils.get_env_var.cache_clear()

    def put(name: str, *items: Any) -> None:
        client = langsmith_client(auto_batch_tracing=False)
        push_truth(LangSmithService(client), name, items, delete_others=True)
        client.close()

    return put


def write(path: Path, *items: TokenLevelGroundTruth) -> Path:
    lines = [
        {
            "id": one.query.id,
            "query": one.query.text,
            "relevant_spans": [
                {"doc_id": span.doc_id, "start": span.start, "end": span.end, "text": span.text}
                for span in one.relevant_spans
            ],
            "unanswerable": one.unanswerable,
        }
        for one in items
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def load(docs: Path, sources: object, *, reanchor: bool = False) -> TruthRef:
    """The ground truth of sources as a run loads it."""
    given = {"corpus": docs, "ground_truth": sources, "chunkers": ["markdown"], "copies": "off"}
    config = BenchmarkConfig.model_validate(given)
    return load_inputs(Workspace(root=docs.parent / "work"), config, reanchor=reanchor).truth


def questions(docs: Path, truth: TruthRef) -> dict[str, list[str | None]]:
    """Each question with the origins of its answers."""
    workspace = Workspace(root=docs.parent / "work")
    texts = {row["query_id"]: row["text"] for row in workspace.read_table(truth.queries).to_pylist()}
    found: dict[str, list[str | None]] = {text: [] for text in texts.values()}
    for row in workspace.read_table(truth.answers).to_pylist():
        found[texts[row["query_id"]]].append(row["origin"])
    return found


def test_a_file_a_dataset_and_a_function_are_joined_and_origins_tell_them_apart(
    docs: Path, push: Push, write_module: Callable[[str], Path]
) -> None:
    push("reviewed", CLOSED)
    folder = write_module(
        "def dogs(corpus, words):\n"
        "    text = corpus.documents[0].content\n"
        "    start = text.index(words)\n"
        "    span = {'doc_id': 'a.md', 'start': start, 'end': start + len(words), 'text': words}\n"
        "    return [{'query': 'What do dogs pay?', 'relevant_spans': [span]}]\n"
    )
    (folder / "bench.yaml").write_text(
        f"corpus: {docs}\nchunkers: markdown\n"
        f"ground_truth:\n  - {write(docs.parent / 't.jsonl', WHEN)}\n  - langsmith: reviewed\n"
        "  - {type: 'own_truth:dogs', words: Dogs travel free.}\n"
    )
    sources = load_config(folder / "bench.yaml").ground_truth
    assert questions(docs, load(docs, sources)) == {
        "When do boats leave?": ["file t.jsonl"],
        "When is the quay closed?": ["langsmith reviewed"],
        "What do dogs pay?": ['own_truth:dogs words="Dogs travel free."'],
    }


@pytest.fixture
def write_module(tmp_path: Path) -> Callable[[str], Path]:
    def put(code: str) -> Path:
        folder = tmp_path / "bench"
        folder.mkdir()
        (folder / "own_truth.py").write_text(code)
        return folder

    return put


def test_one_file_is_as_it_always_was_and_is_written_down_as_its_path(docs: Path) -> None:
    path = write(docs.parent / "t.jsonl", WHEN, DOGS)
    truth = load(docs, path)
    assert set(map(tuple, questions(docs, truth).values())) == {(None,)}
    config = BenchmarkConfig(corpus=docs, ground_truth=path, chunkers=["markdown"])
    assert config.model_dump()["ground_truth"] == str(path)
    assert BenchmarkRecord.model_validate(config.model_dump()).ground_truth == path
    source = TruthSource.of(config, truth)
    assert (source.path, source.digest) == (path, FileTruth(path).observe("token-level").digest)


def test_sources_survive_being_written_down() -> None:
    given = ["t.jsonl", {"langsmith": "reviewed"}]
    config = BenchmarkConfig(corpus=Path("docs"), ground_truth=given, chunkers=["markdown"])
    assert config.ground_truth == [FileTruth(Path("t.jsonl")), LangSmithTruth("reviewed")]
    assert BenchmarkConfig.model_validate(config.model_dump(mode="json")) == config
    record = BenchmarkRecord.model_validate(config.model_dump())
    assert record.ground_truth == [{"type": "file", "path": "t.jsonl"}, {"type": "langsmith", "dataset": "reviewed"}]


def test_a_dataset_is_pulled_every_time_and_known_by_what_it_holds(docs: Path, push: Push) -> None:
    source = LangSmithTruth("reviewed")
    push("reviewed", CLOSED)
    first = source.observe("token-level").digest
    push("reviewed", CLOSED)
    assert source.observe("token-level").digest == first
    push("reviewed", CLOSED, DOGS)
    assert source.observe("token-level").digest != first


def test_what_was_pulled_is_a_file_and_serves_while_langsmith_is_away(
    docs: Path, push: Push, server: LangSmithServer, caplog: pytest.LogCaptureFixture
) -> None:
    push("reviewed", CLOSED)
    truth = load(docs, {"langsmith": "reviewed"})
    path = pulled_truth(Workspace(root=docs.parent / "work"), LangSmithTruth("reviewed"))
    assert path == docs.parent / "work" / "truth" / "langsmith-reviewed.jsonl"
    assert [one.relevant_spans for one in read_token_level(path)] == [CLOSED.relevant_spans]
    server.fail_after(0, "GET", "/info", 503)
    with caplog.at_level(logging.WARNING):
        again = load(docs, {"langsmith": "reviewed"})
    assert (again.queries.digest, again.answers.digest) == (truth.queries.digest, truth.answers.digest)
    assert f"using the questions that were pulled last: {path}" in caplog.text
    with pytest.raises(ServiceError, match="it answered 503"):
        load(docs, {"langsmith": "other"})


def test_a_key_that_is_refused_is_no_absence(docs: Path, push: Push, monkeypatch: pytest.MonkeyPatch) -> None:
    push("reviewed", CLOSED)
    load(docs, {"langsmith": "reviewed"})
    monkeypatch.setenv("LANGSMITH_API_KEY", "wrong")
    langsmith_utils.get_env_var.cache_clear()
    with pytest.raises(ServiceError, match="it refused the key, 401"):
        load(docs, {"langsmith": "reviewed"})


CHUNKS = ChunkLevelGroundTruth(Query.from_text("Which?"), [ChunkId("chunk_0123456789ab")])


def test_what_a_dataset_cannot_be_used_for_is_one_sentence(docs: Path, push: Push) -> None:
    with pytest.raises(GroundTruthError, match="there is no LangSmith dataset 'nowhere': check its name"):
        load(docs, {"langsmith": "nowhere"})
    push("ids", CHUNKS)
    with pytest.raises(GroundTruthError, match=r"'ids' has chunk-level ground truth .* and the evaluation is token"):
        load(docs, {"langsmith": "ids"})
    push("old", CLOSED)
    (docs / "a.md").write_text("A new page. " + TEXT)
    with pytest.raises(GroundTruthError, match=r"langsmith old, .*the text is at .*; rag-eval run --reanchor carries"):
        load(docs, {"langsmith": "old"})
    truth = load(docs, {"langsmith": "old"}, reanchor=True)
    (row,) = Workspace(root=docs.parent / "work").read_table(truth.answers).to_pylist()
    assert row["start"] == CLOSED.relevant_spans[0].start + len("A new page. ")


def test_without_a_key_a_dataset_is_refused_before_anything_runs(docs: Path) -> None:
    with pytest.raises(ConfigurationError, match="set LANGSMITH_API_KEY"):
        load(docs, {"langsmith": "reviewed"})


def test_a_source_of_ones_own_that_gives_nothing_is_refused(docs: Path) -> None:
    class Empty:
        name = "empty"

        def load(self, corpus: object) -> list[object]:
            return []

    with pytest.raises(GroundTruthError, match="empty returned no queries"):
        load(docs, Empty())
    with pytest.raises(ConfigurationError, match="is not a truth-source: give a function of the corpus, or an object"):
        read_sources(object())


NOBODY = TokenLevelGroundTruth(Query.from_text("Who is the captain?"), [], unanswerable=True)


def test_the_same_question_counts_once_and_a_different_answer_is_refused() -> None:
    louder = item("WHEN do  boats leave?", "Boats leave at nine.", "other-id")
    joined = join_truth([("file a", [WHEN, DOGS]), ("langsmith b", [louder, CLOSED, NOBODY])])
    assert [one.query.text for one in joined] == [one.query.text for one in (WHEN, DOGS, CLOSED, NOBODY)]
    assert [list(one.origins.values()) for one in joined] == [["file a"], ["file a"], ["langsmith b"], []]
    other = item("When do boats leave?", "nine", "other-id")
    with pytest.raises(
        GroundTruthError, match=r"file a and langsmith b both have the question 'When do boats leave\?'"
    ):
        join_truth([("file a", [WHEN]), ("langsmith b", [other])])
    same_id = item("What do cats pay?", "Dogs travel free.", DOGS.query.id)
    with pytest.raises(GroundTruthError, match=f"different questions with the id '{DOGS.query.id}'"):
        join_truth([("file a", [DOGS]), ("langsmith b", [same_id])])


def test_two_sources_do_not_write_the_same_file() -> None:
    with pytest.raises(ConfigurationError, match="two sources write the same file: give each its own file"):
        read_sources([{"generate": {"model": "a"}}, {"generate": {"model": "b"}}])


def test_an_origin_that_is_told_stays() -> None:
    told = item("When do boats leave?", "Boats leave at nine.", origins={WHEN.relevant_spans[0]: "the harbour master"})
    ((span, origin),) = join_truth([("file a", [told]), ("file b", [DOGS])])[0].origins.items()
    assert (span, origin) == (WHEN.relevant_spans[0], "the harbour master")


def test_a_source_of_unanswerable_questions_may_be_joined_but_not_be_all_there_is(docs: Path) -> None:
    nobody, when = write(docs.parent / "nobody.jsonl", NOBODY), write(docs.parent / "when.jsonl", WHEN)
    truth = load(docs, [nobody, when])
    assert truth.queries.rows == 2
    with pytest.raises(GroundTruthError, match=r"every query of file nobody\.jsonl is declared unanswerable"):
        load(docs, nobody)
