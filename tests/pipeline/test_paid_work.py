"""What a service charges for is bought once: by whichever thread, process, step or attempt comes to it first."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from prefect.settings import PREFECT_TASKS_REFRESH_CACHE, temporary_settings

from flows.benchmark import benchmark
from rag_eval.chunking.semantic import SemanticChunker
from rag_eval.config.models import BenchmarkConfig, Configuration
from rag_eval.embedding.cache import CachedEmbedder
from rag_eval.embedding.local import LocalEmbedder
from rag_eval.embedding.openai import OpenAIEmbedder
from rag_eval.errors import ServiceError
from rag_eval.parts import replaced
from rag_eval.pipeline.document_caches import cut_documents
from rag_eval.pipeline.document_steps import write_chunks
from rag_eval.pipeline.references import ChunksRef, HitsRef, QueriesRef, RankingRef, TableRef
from rag_eval.pipeline.workspace import Workspace
from rag_eval.retrieval.rerankers import CohereReranker
from rag_eval.retrieval.searching import WordSearch
from rag_eval.tables import chunks_to_table, documents_to_table, truth_to_tables
from rag_eval.types.chunks import PositionAwareChunk
from rag_eval.types.documents import Corpus, Document
from rag_eval.types.evidence import Query, TokenLevelGroundTruth
from rag_eval.types.ids import DocumentId, generate_pa_chunk_id
from tasks.caching import result_storage
from tasks.chunk import chunk
from tasks.embed import embed
from tasks.index import index_words, sum_words
from tasks.retrieve import prepare_queries, retrieve, search
from tests.doubles.cohere_server import KEY, CohereServer
from tests.doubles.loopback import Request
from tests.doubles.openai_server import OpenAIServer
from tests.results.made_runs import write_data

ROOT = Path(__file__).parents[2]
TEXTS = [f"text number {number}" for number in range(40)]
BUYER = """
import json, sys
from rag_eval.embedding.openai import OpenAIEmbedder
from rag_eval.embedding.cache import CachedEmbedder
folder, url, texts = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
embedder = OpenAIEmbedder(model="tiny", base_url=url, max_texts=5)
print("ready", flush=True)
sys.stdin.readline()
CachedEmbedder(embedder, folder).embed(texts)
"""


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(seconds=0.05) as running:
        yield running


def tiny(server: OpenAIServer, **settings: object) -> OpenAIEmbedder:
    return OpenAIEmbedder(model="tiny", base_url=server.base_url, **settings)  # type: ignore[arg-type]


def test_threads_that_want_the_same_vectors_buy_them_once(server: OpenAIServer, tmp_path: Path) -> None:
    ready = threading.Barrier(4)

    def buy(first: int) -> int:
        cached = CachedEmbedder(tiny(server, max_texts=5), tmp_path)
        ready.wait()
        cached.embed(TEXTS[first : first + 25])
        return cached.statistics.misses

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(buy, (0, 5, 10, 15))) == len(TEXTS)
    assert sorted(server.texts) == sorted(TEXTS)
    assert server.most_at_once <= 4  # as many as its concurrency allows, however many want something of it


def test_threads_that_lack_one_text_of_many_buy_it_once(server: OpenAIServer, tmp_path: Path) -> None:
    CachedEmbedder(tiny(server), tmp_path).embed(TEXTS[1:])
    ready = threading.Barrier(4)

    def buy(_: int) -> None:
        cached = CachedEmbedder(tiny(server), tmp_path)
        ready.wait()
        cached.embed(TEXTS)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(buy, range(4)))
    assert server.texts.count(TEXTS[0]) == 1


def test_processes_that_want_the_same_vectors_buy_them_once(server: OpenAIServer, tmp_path: Path) -> None:
    buyers = [
        subprocess.Popen(
            [sys.executable, "-c", BUYER, str(tmp_path), server.base_url, json.dumps(TEXTS[first:])],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for first in (0, 10)
    ]
    for buyer in buyers:
        assert buyer.stdout is not None
        assert buyer.stdout.readline() == "ready\n"
    for buyer in buyers:
        assert buyer.stdin is not None
        buyer.stdin.write("go\n")
        buyer.stdin.flush()
    assert [buyer.communicate(timeout=60)[0] for buyer in buyers] == ["", ""]
    assert sorted(server.texts) == sorted(TEXTS)
    assert list(tmp_path.glob("*.lock")) == []


def test_a_chunker_that_asks_a_service_pays_for_a_sentence_once(server: OpenAIServer, tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path)
    text = " ".join(f"Sentence number {number} is about ships." for number in range(12))
    documents = workspace.write_table("documents", documents_to_table(Corpus([Document(DocumentId("a.md"), text)])))
    embedder = tiny(server, price_per_million_tokens=1000.0)
    for percentile in (90.0, 50.0):
        chunker = SemanticChunker(embedder=embedder, breakpoint_percentile=percentile)
        effort = chunk.fn(documents, chunker, workspace=workspace).effort
        assert effort is not None
        assert effort.fresh == 1
        # What is kept was read all the same, and costs nothing.
        assert effort.tokens
        assert effort.cost == pytest.approx(effort.tokens / 1000 if percentile == 90.0 else 0.0)
    assert len(server.texts) == len(set(server.texts)) > 5


@pytest.mark.usefixtures("prefect_server")
def test_a_run_that_makes_everything_anew_buys_each_text_once(server: OpenAIServer, tmp_path: Path) -> None:
    data = write_data(tmp_path, documents=4, queries=2)
    given = {"embedders": [tiny(server)], "retrieval": ["vector", "hybrid"], "shards": 3}
    config = BenchmarkConfig.model_validate(data.model_dump() | given)
    for refresh in (False, True):
        server.requests.clear()
        workspace = Workspace(root=tmp_path / "work", refresh=refresh)
        with temporary_settings({PREFECT_TASKS_REFRESH_CACHE: refresh}):
            benchmark.with_options(result_storage=result_storage(workspace))(config, workspace)
        assert len(server.texts) == len(set(server.texts)) > 20


def chunk_table(workspace: Workspace, count: int) -> ChunksRef:
    texts = [f"ship {number} leaves at {number}" for number in range(count)]
    chunks = [
        PositionAwareChunk(generate_pa_chunk_id(text), text, DocumentId(f"{number:05}"), 0, len(text))
        for number, text in enumerate(texts)
    ]
    return write_chunks(workspace, chunks_to_table(chunks))


@pytest.mark.skipif(not hasattr(psutil.Process, "io_counters"), reason="this system does not tell what is read")
def test_stored_vectors_are_checked_once_in_a_process(tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path)
    embed.fn(chunk_table(workspace, 3_000), LocalEmbedder(), workspace=workspace)
    stored = sum(path.stat().st_size for path in (workspace.root / "cache" / "embeddings").rglob("*.arrow"))
    few = chunk_table(workspace, 10)
    before = psutil.Process().io_counters().read_chars
    embed.fn(few, LocalEmbedder(), workspace=workspace)
    assert psutil.Process().io_counters().read_chars - before < stored / 10


def test_tokens_read_are_the_same_number_whatever_was_embedded_before(tmp_path: Path) -> None:
    efforts = []
    for name, count in (("at once", 300), ("in two", 200), ("in two", 300)):
        workspace = Workspace(root=tmp_path / name)
        effort = embed.fn(chunk_table(workspace, count), LocalEmbedder(), workspace=workspace).effort
        assert effort is not None
        efforts.append(effort)
    whole, part, rest = efforts
    assert (whole.fresh, part.fresh, rest.fresh) == (300, 200, 100)
    assert rest.tokens == whole.tokens
    assert 0 < (part.tokens or 0) < (whole.tokens or 0)


def ranking(workspace: Workspace, count: int, depth: int) -> tuple[RankingRef, TableRef]:
    """What words find for so many queries among so many chunks, and the queries."""
    chunks = chunk_table(workspace, count)
    places = [Document(DocumentId(f"{number:05}"), f"ship {number} leaves at {number}") for number in range(count)]
    truth = [TokenLevelGroundTruth(Query.from_text(f"When leaves {one.id}?"), [one.span(0, 4)]) for one in places]
    queries = workspace.write_table("queries", truth_to_tables(truth).queries)
    words = WordSearch()
    postings = index_words.fn(chunks, words.tokenizer, workspace=workspace)
    index = sum_words.fn([chunks], [postings], workspace=workspace)
    searched: QueriesRef = prepare_queries.fn(queries, [], workspace=workspace)
    return search.fn(words, index, searched, depth, workspace=workspace), queries


def rerank(workspace: Workspace, found: RankingRef, queries: TableRef, reranker: CohereReranker) -> HitsRef:
    configuration = Configuration.model_validate({"chunker": "markdown", "retrieval": "bm25", "reranker": reranker})
    return retrieve.fn(configuration, [[found]], queries, [], 50, workspace=workspace)


def test_a_reranking_that_fails_on_the_way_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CO_API_KEY", KEY)
    workspace = Workspace(root=tmp_path)
    found, queries = ranking(workspace, 7, 5)
    with CohereServer() as server:
        reranker = CohereReranker(base_url=server.url, max_retries=0)
        server.refused_after = 4
        with pytest.raises(ServiceError, match="it answered 500"):
            rerank(workspace, found, queries, reranker)
        server.refused_after = None
        done = rerank(workspace, found, queries, reranker)
        assert done.effort is not None
        assert (done.effort.fresh, done.effort.total, done.effort.cost) == (3, 7, None)
        assert done.effort.query_seconds > 0
        assert len(server.requests) == 4 + 1 + 3
        again = rerank(workspace, found, queries, reranker)
        assert again.effort is not None
        assert (again.effort.fresh, again.effort.cost, again.last.digest) == (0, 0.0, done.last.digest)
        assert again.effort.query_seconds >= done.effort.query_seconds
        assert len(server.requests) == 8
        # Other candidates, another model and a refresh are other questions.
        rerank(workspace, ranking(workspace, 7, 4)[0], queries, reranker)
        rerank(workspace, found, queries, replaced(reranker, model="other"))
        rerank(workspace.model_copy(update={"refresh": True}), found, queries, reranker)
        assert len(server.requests) == 8 + 3 * 7
        assert rerank(workspace, found, queries, reranker).last.digest == done.last.digest


def test_tokens_of_cuts_are_the_same_number_whatever_was_kept(server: OpenAIServer, tmp_path: Path) -> None:
    chunker = SemanticChunker(embedder=tiny(server))
    texts = ["One is here. Two are there. Three go away.", "Four stay. Five sleep on. Six wake up at night."]
    documents = [Document(DocumentId(f"{n}.md"), text) for n, text in enumerate(texts)]
    efforts = []
    for folder, first in (("step by step", 1), ("at once", 2)):
        workspace = Workspace(root=tmp_path / folder)
        for count in (first, 2):
            efforts.append(cut_documents(workspace, chunker, chunker.name, documents[:count])[1])
    assert efforts[0].tokens
    assert [effort.fresh for effort in efforts] == [1, 1, 2, 0]
    assert efforts[1].tokens == efforts[2].tokens == efforts[3].tokens


RERANK = """
import sys
from pathlib import Path
from rag_eval.pipeline.workspace import Workspace
from rag_eval.retrieval.rerankers import CohereReranker
from tests.pipeline.test_paid_work import ranking, rerank
workspace = Workspace(root=Path(sys.argv[1]))
reranker = CohereReranker(base_url=sys.argv[2], max_retries=0)
print(rerank(workspace, *ranking(workspace, 5, 5), reranker).last.digest)
"""


class DeadlyServer(CohereServer):
    """Kills the process that asks at its n-th request, in the middle of it."""

    victim: "subprocess.Popen[str] | None" = None
    at = 0

    def answer(self, request: Request) -> tuple[int, Any]:
        if len(self.requests) == self.at and self.victim is not None:
            self.victim.kill()
            self.victim.wait()
        return super().answer(request)


def test_a_process_killed_inside_a_reranking_call_repeats_that_call_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CO_API_KEY", KEY)
    workspace = Workspace(root=tmp_path / "killed")
    kills = (1, 4, 6)
    with DeadlyServer() as server:
        for server.at in (*kills, 0):
            command = [sys.executable, "-c", RERANK, str(workspace.root), server.url]
            started = server.victim = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
            said, _ = started.communicate(timeout=300)
            assert started.returncode == (-9 if server.at else 0)
        assert len(server.requests) == 5 + len(kills)
        anew = workspace.model_copy(update={"refresh": True})
        undisturbed = rerank(anew, *ranking(workspace, 5, 5), CohereReranker(base_url=server.url))
        assert said.strip() == undisturbed.last.digest
