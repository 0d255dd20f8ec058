"""Documents in shards: the same tables from any number of them, and an edit costs its shard."""

import json
import shutil
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from rag_eval.chunking.recursive import RecursiveTokenChunker
from rag_eval.config.loading import load_config
from rag_eval.config.models import BenchmarkConfig
from rag_eval.metrics.passage_tokens import Slices
from rag_eval.pipeline import document_steps, search_steps
from rag_eval.pipeline.caches import TokenCounts, token_counts
from rag_eval.pipeline.document_steps import CorpusSource, StoredDocuments, default_shards
from rag_eval.pipeline.hits import found_chunks
from rag_eval.pipeline.inputs import BenchmarkInputs
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.outcome import Evaluated
from rag_eval.retrieval import bm25
from rag_eval.retrieval.tokenizers import WordTokenizer
from rag_eval.sample import CORPUS, GROUND_TRUTH
from rag_eval.tables import HITS, documents_to_table
from rag_eval.tokens import count_tokens
from rag_eval.types.documents import Corpus, Document
from rag_eval.types.ids import DocumentId
from tasks.chunk import add_context, chunk
from tasks.corpus import load_corpus
from tasks.embed import embed
from tasks.index import index_words, sum_vectors
from tests.chain import cache_key, cut, evaluate, load_inputs, load_truth

FETCHED = 20
GRID = f"""
chunkers: [{{type: recursive-token, chunk_size: 100}}]
context: headings
retrieval: [vector, bm25, hybrid]
stores: [lancedb, {{type: lancedb, index: {{type: ivf-pq, num_partitions: 2, num_sub_vectors: 8}}}}]
selection: {{near_duplicates: 0.8}}
rerankers: lexical
returns: section
fetch_k: {FETCHED}
k: [1, 5]
"""


def benchmark(folder: Path, corpus: Path, shards: int, truth: Path = GROUND_TRUTH, grid: str = GRID) -> BenchmarkConfig:
    file = folder / "benchmark.yaml"
    file.write_text(f"corpus: {corpus}\nground_truth: {truth}\nshards: {shards}\n{grid}")
    return load_config(file)


def evaluated(folder: Path, config: BenchmarkConfig) -> tuple[dict[str, Evaluated], BenchmarkInputs]:
    workspace = Workspace(root=folder / "work")
    inputs = load_inputs(workspace, config)
    return {one.name: evaluate(workspace, one, inputs) for one in config.configurations()}, inputs


def digests(found: Evaluated) -> dict[str, str]:
    assert found.hits.passages is not None
    tables = found.hits.stages | {"passages": found.hits.passages, "scores": found.scores.table}
    return {name: one.digest for name, one in tables.items()}


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
    folder = tmp_path_factory.mktemp("whole")
    return evaluated(folder, benchmark(folder, corpus, 1, every_third))[0]


@pytest.mark.parametrize(("shards", "spare"), [(7, 32), (64, 0)], ids=["7", "64, asked again"])
def test_any_number_of_shards_gives_the_same_tables(
    tmp_path: Path,
    corpus: Path,
    every_third: Path,
    shards: int,
    spare: int,
    whole: dict[str, Evaluated],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search_steps, "SPARE", spare)  # without any, shards have to be asked for more
    monkeypatch.setattr(bm25, "TEXTS_AT_ONCE", 20)
    monkeypatch.setattr(document_steps, "MOST_CHARACTERS", 0)
    parts, inputs = evaluated(tmp_path, benchmark(tmp_path, corpus, shards, every_third))
    count = len(inputs.documents)
    assert 5 <= count <= min(shards, 26)
    assert parts.keys() == whole.keys()
    assert len(whole) == 5
    for name, found in parts.items():
        # An approximate index is one for all shards, trained by chance; exact ones are one for each.
        is_exact = "ivf-pq" not in name
        assert len(found.indexes) == (0 if "bm25" in name else count if is_exact else 1), name
        assert digests(found).keys() == digests(whole[name]).keys()
        assert digests(found) == digests(whole[name]) or not is_exact, name


def shard_keys(folder: Path, config: BenchmarkConfig) -> dict[str, set[str | None]]:
    """The cache keys, or the digests of what is made, of the steps that work on one shard."""
    workspace, (one,) = Workspace(root=folder / "work"), config.configurations()
    sources = CorpusSource.of(config.corpus, config.glob).shards(config.shards)
    inputs = load_inputs(workspace, config)
    found = evaluate(workspace, one, inputs)
    bare = cut(workspace, one.model_copy(update={"context": None}), inputs)
    vectors: list[pa.Table] = list(found.steps["embed"])
    keys: dict[str, list[str | None]] = {
        "load corpus": [cache_key(load_corpus, source, workspace) for source in sources],
        "chunk": [cache_key(chunk, shard, one.chunker, workspace) for shard in inputs.documents],
        "add context": [
            cache_key(add_context, *both, one.context, workspace) for both in zip(bare, inputs.documents, strict=True)
        ],
        "embed": [cache_key(embed, shard, one.embedder, workspace) for shard in found.chunks],
        "index words": [cache_key(index_words, shard, WordTokenizer(), workspace) for shard in found.chunks],
        "sum vectors": [cache_key(sum_vectors, *both, workspace) for both in zip(found.chunks, vectors, strict=True)],
        "index vectors": [index.digest for index in found.indexes],
        "search": [ranking.hits.digest for ranking in found.steps["search"][: len(sources)]],  # type: ignore[attr-defined]
    }
    assert {len(set(some)) for some in keys.values()} == {len(sources)}
    return {name: set(some) for name, some in keys.items()}


def test_an_edit_of_a_document_computes_its_shard_alone(tmp_path: Path) -> None:
    corpus = tmp_path / "docs"
    shutil.copytree(CORPUS, corpus)
    grid = "chunkers: {type: recursive-token, chunk_size: 100}\ncontext: headings\nretrieval: hybrid\nfetch_k: 50\n"
    config = benchmark(tmp_path, corpus, 16, grid=grid)
    before = shard_keys(tmp_path, config)
    edited = sorted(corpus.glob("**/*.md"))[3]
    edited.write_text(edited.read_text() + "\n\nA ferry that nobody has heard of leaves at noon.\n")
    after = shard_keys(tmp_path, config)
    assert {name: len(after[name] - before[name]) for name in after} == dict.fromkeys(after, 1)


def test_twice_as_many_shards_are_their_halves_and_none_is_empty() -> None:
    source = CorpusSource.of(CORPUS, "**/*.md")

    def members(count: int | None) -> list[set[str]]:
        return [set(shard.names or []) for shard in source.shards(count)]

    few, many = members(4), members(8)
    assert sorted(name for one in few for name in one) == sorted(name for one in many for name in one)
    assert all(sum(one <= whole for whole in few) == 1 for one in many)
    assert all([*few, *many, *members(64)])
    assert len(members(None)) == 1
    assert CorpusSource.joined(source.shards(8)) == source


@pytest.mark.parametrize(
    ("megabytes", "shards"), [(0, 1), (0.5, 1), (2, 1), (4, 2), (5, 2), (30, 16), (128, 64), (9_000, 64)]
)
def test_the_number_of_shards_follows_the_size_of_the_corpus(megabytes: float, shards: int) -> None:
    assert default_shards(int(megabytes * 2**20)) == shards


def test_documents_are_read_when_they_are_asked_for_and_few_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = Corpus.from_folder(CORPUS)
    monkeypatch.setattr(document_steps, "MOST_CHARACTERS", 3 * max(len(one.content) for one in corpus))
    stored = StoredDocuments([documents_to_table(corpus)])
    for one in corpus:
        assert stored[one.id] == one
        assert stored[one.id] is stored[one.id]
        in_memory = sum(len(document.content) for document in stored._read.values())
        assert in_memory <= document_steps.MOST_CHARACTERS * 4 / 3
    assert len(stored) == len(stored.digests) == len(corpus)
    assert "no.md" not in stored


def test_documents_and_chosen_chunks_of_several_shards_come_in_the_order_of_their_ids() -> None:
    names = [DocumentId(name) for name in ("b.md", "d.md", "a.md", "c.md")]
    every = [Document(name, f"The first of {name}. " * 4 + f"The last of {name}. " * 4) for name in names]
    shards = [documents_to_table(Corpus(some)) for some in (every[:2], every[2:])]
    stored = StoredDocuments(shards)
    assert list(stored) == sorted(names)
    assert [stored[name].id for name in stored] == sorted(names)
    chunks = [document_steps.chunk(shard, RecursiveTokenChunker(20))[0] for shard in shards]
    chosen = found_chunks(chunks, HITS.empty_table(), pa.array(["a.md", "b.md", "d.md"]))
    rows = [(one["doc_id"], one["start"]) for one in chosen.to_pylist()]
    assert rows == sorted(rows)
    assert {name for name, _ in rows} == {"a.md", "b.md", "d.md"}
    assert len(rows) > 6


def test_a_text_whose_slices_were_counted_is_not_read_again(tmp_path: Path) -> None:
    text = "The last ferry leaves the harbour at 22:40. Rye bread keeps for a week."
    places = np.array([(0, 43), (44, len(text)), (0, len(text))])
    expected = np.array([count_tokens(text[start:end], "cl100k_base") for start, end in places])
    workspace = Workspace(root=tmp_path)
    for some in ([1, 0], [2, 0, 1, 2], [1, 2]):
        with token_counts(workspace) as count:
            asked = [Slices(lambda: text, places[some], "0" * 64), Slices(lambda: text, places[some])]
            assert [found.tolist() for found in count(asked, "cl100k_base")] == 2 * [expected[some].tolist()]
    for again in (token_counts(workspace), nullcontext(TokenCounts(tmp_path / "cache" / "tokens" / "slices"))):
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
    found = []
    for shards in (1, 7, 64):
        config = benchmark(tmp_path, corpus, shards, tmp_path / "truth.jsonl")
        workspace = Workspace(root=tmp_path / f"work{shards}")
        sources = CorpusSource.of(corpus, "*.md").shards(shards)
        truth = load_truth(workspace, config, [load_corpus.fn(one, workspace=workspace) for one in sources])
        assert truth.answers.rows == 101
        found.append(truth.answers.digest)
    assert len(set(found)) == 1
