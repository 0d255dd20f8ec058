"""Documents in shards: the same tables from any number of them, and an edit costs its shard."""

import json
import shutil
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rag_eval.benchmark.engine import Evaluated, InMemoryInputs, evaluate, run_in_memory
from rag_eval.benchmark.records import Doing, do_once
from rag_eval.benchmark.stage import Stage

from rag_eval.benchmark import search_stages, stages
from rag_eval.benchmark.config import Configuration
from rag_eval.benchmark.config_files import load_config
from rag_eval.benchmark.inputs import BenchmarkInputs
from rag_eval.chunking.recursive import RecursiveTokenChunker
from rag_eval.embedding.local import LocalEmbedder
from rag_eval.ground_truth.sources import FileTruth, read_truth
from rag_eval.metrics.score_tables import Slices
from rag_eval.pipeline.caches import TokenCounts
from rag_eval.pipeline.document_steps import CorpusSource
from rag_eval.pipeline.ground_truth_steps import ground_truth
from rag_eval.pipeline.step import Context
from rag_eval.pipeline.workspace import Workspace
from rag_eval.retrieval import bm25
from rag_eval.retrieval.searching import VectorSearch
from rag_eval.sample import CORPUS, GROUND_TRUTH
from rag_eval.stores.lance import LanceDBVectorStore
from rag_eval.tables import documents_to_table, truth_to_tables
from rag_eval.tokens import count_tokens
from rag_eval.types.documents import Corpus, Document
from rag_eval.types.ids import DocumentId

GRID = """
ground_truth: {truth}
corpus: {corpus}
chunkers: [{{type: recursive-token, chunk_size: 100}}]
context: headings
retrieval: [vector, bm25, {{type: hybrid, fusion: [z-score, rrf]}}]
stores: [lancedb, memory, {{type: lancedb, index: {{type: ivf-pq, num_partitions: 2, num_sub_vectors: 8}}}}]
selection: [none, {{near_duplicates: 0.8, fetch_k: 20}}]
rerankers: lexical
returns: section
k: [1, 5]
"""


class Counting:
    """Runs stages in a workspace and counts what each had to do."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.computed: Counter[str] = Counter()

    def __call__(self, stage: Stage, *inputs: Any) -> Any:
        class Each(Doing):
            def each(_, work: Any, pieces: list[Any]) -> list[Any]:
                done = [work(piece) for piece in pieces]
                self.computed[stage.name] += sum(not one.was_kept for one in done)
                return done

        return do_once(self.workspace, stage, inputs, Each()).result


def evaluated(
    folder: Path, corpus: Path, grid: str, shards: int | None, truth_file: Path = GROUND_TRUTH
) -> tuple[Any, ...]:
    file = folder / "benchmark.yaml"
    file.write_text(grid.format(truth=truth_file, corpus=corpus))
    config, workspace = load_config(file), Workspace(root=folder / "work")
    run = Counting(workspace)
    documents = run(stages.load_corpus, CorpusSource.of(config.corpus, config.glob), shards)
    truth = ground_truth(run, config.ground_truth, documents, config.evaluation_type, True, config.copies)
    inputs = BenchmarkInputs.of(config, documents, truth)
    return run, {one.name: evaluate(run, one, inputs) for one in config.configurations()}, documents


def digests(found: Evaluated) -> dict[str, str | None]:
    tables = {"scores": found.scores, "passages": found.passages, **found.hits}
    return {name: one and one.digest for name, one in tables.items()}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample, and documents without a character."""
    folder = tmp_path_factory.mktemp("corpus") / "docs"
    shutil.copytree(CORPUS, folder)
    for number in range(12):
        (folder / f"empty-{number}.md").touch()
    return folder


@pytest.fixture(scope="module")
def every_third(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A third of the questions about the sample, which are about all of its documents."""
    file = tmp_path_factory.mktemp("truth") / "truth.jsonl"
    head, *lines = GROUND_TRUTH.read_text("utf-8").splitlines(keepends=True)
    file.write_text(head + "".join(lines[::3]), "utf-8")
    return file


@pytest.fixture(scope="module")
def whole(corpus: Path, every_third: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Evaluated]:
    found: dict[str, Evaluated] = evaluated(tmp_path_factory.mktemp("whole"), corpus, GRID, 1, every_third)[1]
    return found


@pytest.mark.parametrize(("shards", "likely"), [(7, None), (64, 2)], ids=["7", "64, asked again"])
def test_any_number_of_shards_gives_the_same_tables(
    tmp_path: Path,
    corpus: Path,
    every_third: Path,
    shards: int,
    likely: int | None,
    whole: dict[str, Evaluated],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if likely is not None:  # so few that most shards have to be asked for more
        monkeypatch.setattr(search_stages, "_likely", lambda most, count: most if count is None else likely)
        monkeypatch.setattr(bm25, "TEXTS_AT_ONCE", 20)
        monkeypatch.setattr(stages, "MOST_CHARACTERS", 0)
    _, parts, documents = evaluated(tmp_path, corpus, GRID, shards, every_third)
    assert 5 <= len(documents) <= min(shards, 26)
    assert len(whole) == 20
    for name in whole:
        is_exact = "ivf-pq" not in name
        # An approximate index is one for all shards, trained by chance; exact ones are one for each.
        assert len(parts[name].indexes) in (0, len(documents) if is_exact else 1), name
        assert digests(parts[name]).keys() == digests(whole[name]).keys()
        assert digests(parts[name]) == digests(whole[name]) or not is_exact, name


def test_an_edit_of_a_document_computes_its_shard_alone(tmp_path: Path) -> None:
    corpus = tmp_path / "docs"
    shutil.copytree(CORPUS, corpus)
    grid = "\n".join(GRID.splitlines()[:5]) + "\nretrieval: [hybrid]\ncopies: off\n"
    first, before, documents = evaluated(tmp_path, corpus, grid, 16)
    cutting, searching = ("load-corpus", "chunk", "contextualise"), ("index", "retrieve-by-vector", "count-words")
    per_shard = (*cutting, "embed", *searching, "sum-vectors")
    assert {first.computed[name] for name in per_shard} == {len(documents)}
    edited = sorted(corpus.glob("**/*.md"))[3]
    edited.write_text(edited.read_text() + "\n\nA ferry that nobody has heard of leaves at noon.\n")
    second, after, renewed = evaluated(tmp_path, corpus, grid, 16)
    assert len({one.digest for one in renewed} - {one.digest for one in documents}) == 1
    assert {name: second.computed[name] for name in per_shard} == dict.fromkeys(per_shard, 1)
    assert before.keys() == after.keys()
    again, _, _ = evaluated(tmp_path, corpus, grid, 16)
    assert not again.computed


def test_twice_as_many_shards_are_their_halves_and_a_large_corpus_has_64(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    workspace, source = Workspace(root=tmp_path), CorpusSource.of(CORPUS, "**/*.md")

    def members(shards: int | None) -> list[set[str]]:
        read = stages.load_corpus(workspace, source, shards)
        return [{*workspace.read_table(one).column("doc_id").to_pylist()} for one in read]

    few, many = members(4), members(8)
    assert sorted(name for one in few for name in one) == sorted(name for one in many for name in one)
    assert all(sum(one <= whole for whole in few) == 1 for one in many)
    assert len(members(None)) == 1
    assert not caplog.records
    monkeypatch.setattr(stages, "LARGE_CORPUS", 4_000)
    monkeypatch.setattr(stages, "LARGEST_DOCUMENT", 1_000)
    assert members(None) == members(64)
    assert "a document is never divided between shards" in caplog.text


def test_shards_in_memory_and_a_store_with_a_place_of_its_own_give_the_same(tmp_path: Path) -> None:
    truth = truth_to_tables(read_truth(GROUND_TRUTH, "token-level"))
    found = []
    for shards in (1, 5):
        documents = run_in_memory(stages.load_corpus, CorpusSource.of(CORPUS, "**/*.md"), shards)
        assert len(documents) == shards
        parts: dict[str, Any] = dict.fromkeys(Configuration.model_fields)
        parts |= {"chunker": RecursiveTokenChunker(100), "retrieval": VectorSearch(), "embedder": LocalEmbedder()}
        one = Configuration.model_construct(**parts | {"store": LanceDBVectorStore(tmp_path / "store")})
        inputs = InMemoryInputs("token-level", documents, truth, ["span_recall"], [5], 20)
        found.append(evaluate(run_in_memory, one, inputs).scores)
    assert found[0].equals(found[1])


def test_documents_are_read_when_they_are_asked_for_and_few_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = Corpus.from_folder(CORPUS)
    monkeypatch.setattr(stages, "MOST_CHARACTERS", 3 * max(len(one.content) for one in corpus))
    stored = stages.StoredDocuments([documents_to_table(corpus)])
    for one in corpus:
        assert stored[one.id] == one
        assert stored[one.id] is stored[one.id]
        assert sum(len(document.content) for document in stored._read.values()) <= stages.MOST_CHARACTERS * 4 / 3
    assert len(stored) == len(stored.digests) == len(corpus)
    assert "no.md" not in stored


def test_documents_and_chosen_chunks_of_several_shards_come_in_the_order_of_their_ids() -> None:
    texts = [DocumentId(name) for name in ("b.md", "d.md", "a.md", "c.md")]
    every = [Document(name, f"The first of {name}. " * 4 + f"The last of {name}. " * 4) for name in texts]
    shards = [documents_to_table(Corpus(some)) for some in (every[:2], every[2:])]
    stored = stages.StoredDocuments(shards)
    assert list(stored) == sorted(texts)
    assert [stored[name].id for name in stored] == sorted(texts)
    chunks = run_in_memory(stages.chunk, shards, RecursiveTokenChunker(20), None)
    last = [shard.num_rows for shard in chunks]
    taken, effort = search_stages.take_chunks.compute(
        chunks, [1, last[0] - 1, *range(last[0], sum(last))], context=Context()
    )
    rows = [(one["doc_id"], one["start"]) for one in taken[0].to_pylist()]
    assert rows == sorted(rows)
    assert {name for name, _ in rows} == {*texts}
    assert (len(taken), effort.total) == (1, len(rows))


def test_a_text_whose_slices_were_counted_is_not_read_again(tmp_path: Path) -> None:
    text = "The last ferry leaves the harbour at 22:40. Rye bread keeps for a week."
    places = np.array([(0, 43), (44, len(text)), (0, len(text))])
    expected = np.array([count_tokens(text[start:end], "cl100k_base") for start, end in places])
    context = Context(Workspace(root=tmp_path))
    for some in ([1, 0], [2, 0, 1, 2], [1, 2]):
        with context.token_counts() as count:
            asked = [Slices(lambda: text, places[some], "0" * 64), Slices(lambda: text, places[some])]
            assert [found.tolist() for found in count(asked, "cl100k_base")] == 2 * [expected[some].tolist()]
    for again in (context.token_counts(), nullcontext(TokenCounts(tmp_path / "cache" / "tokens" / "slices"))):
        with again as count:
            (found,) = count([Slices(pytest.fail, places, "0" * 64)], "cl100k_base")
            assert found.tolist() == expected.tolist()


def test_counts_that_others_drop_meanwhile_are_still_right(monkeypatch: pytest.MonkeyPatch) -> None:
    text, count = "Rye bread keeps for a week. " * 3, TokenCounts()

    def counted(*ends: int) -> Slices:
        return Slices(lambda: text, np.array([(0, end) for end in ends]))

    list(count([counted(9)], "cl100k_base"))
    both = iter(count([Slices(lambda: "ferry", np.array([(0, 5)])), counted(9, 80)], "cl100k_base"))
    next(both)
    monkeypatch.setattr("rag_eval.pipeline.caches.MOST_REMEMBERED", 0)
    list(count([counted(50)], "cl100k_base"))
    assert next(both).tolist() == [count_tokens(text[:end], "cl100k_base") for end in (9, 80)]


def test_copies_are_found_in_whichever_shard_they_are(tmp_path: Path) -> None:
    corpus, text = tmp_path / "docs", "The last ferry leaves the harbour at 22:40 in summer."
    corpus.mkdir()
    for number in range(40):
        (corpus / f"{number}.md").write_text(f"# {number}\n\n{text * (1 + number % 3)}\n\nNothing else, {number}.\n")
    (corpus / "0.md").write_text(text * 1_200)  # more places than are looked at
    span = {"doc_id": "7.md", "start": 5, "end": 5 + len(text), "text": text}
    (tmp_path / "truth.jsonl").write_text(json.dumps({"query": "When?", "relevant_spans": [span]}) + "\n")
    sources = [FileTruth(tmp_path / "truth.jsonl")]
    found = []
    for shards in (1, 7, 64):
        workspace = Workspace(root=tmp_path / f"work{shards}")
        run = Counting(workspace)
        documents = run(stages.load_corpus, CorpusSource.of(corpus, "*.md"), shards)
        truth = ground_truth(run, sources, documents, "token-level", copies="exact")
        found.append(truth.answers.digest)
        assert truth.answers.rows == 101
        assert set(run.computed) <= {"find-copies", "load-corpus"}
    assert len(set(found)) == 1
