"""What a service charges for is bought once: by whichever thread, process, stage or attempt comes to it first."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rag_eval.benchmark import stages
from rag_eval.chunking.semantic import SemanticChunker
from rag_eval.embedding.cache import CachedEmbedder, EmbeddingCache
from rag_eval.embedding.openai import OpenAIEmbedder
from rag_eval.errors import ServiceError
from rag_eval.parts import replaced
from rag_eval.pipeline.references import TableRef
from rag_eval.pipeline.step import Context
from rag_eval.pipeline.workspace import Workspace
from rag_eval.retrieval.rerankers import CohereReranker
from rag_eval.tables import chunks_to_table, documents_to_table, truth_to_tables
from rag_eval.types.chunks import PositionAwareChunk
from rag_eval.types.documents import Corpus, Document
from rag_eval.types.ground_truth import Query, TokenLevelGroundTruth
from rag_eval.types.ids import DocumentId, generate_pa_chunk_id
from tests.benchmark.made_runs import found_by_words
from tests.doubles.cohere_server import KEY, CohereServer
from tests.doubles.loopback import Request
from tests.doubles.openai_server import OpenAIServer, Status

ROOT = Path(__file__).parents[2]
TEXTS = [f"text number {number}" for number in range(40)]
BUYER = """
import json, sys
from rag_eval.embedding.openai import OpenAIEmbedder
from rag_eval.embedding.cache import CachedEmbedder, EmbeddingCache
folder, url, texts = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
embedder = OpenAIEmbedder(model="tiny", base_url=url, max_texts=5)
print("ready", flush=True)
sys.stdin.readline()
CachedEmbedder(embedder, EmbeddingCache(folder)).embed(texts)
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
        cached = CachedEmbedder(tiny(server, max_texts=5), EmbeddingCache(tmp_path))
        ready.wait()
        cached.embed(TEXTS[first : first + 25])
        return cached.statistics.misses

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(buy, (0, 5, 10, 15))) == len(TEXTS)
    assert sorted(server.texts) == sorted(TEXTS)
    assert server.most_at_once <= 4  # as many as its concurrency allows, however many want something of it


def test_threads_that_lack_one_text_of_many_buy_it_once(server: OpenAIServer, tmp_path: Path) -> None:
    CachedEmbedder(tiny(server), EmbeddingCache(tmp_path)).embed(TEXTS[1:])
    ready = threading.Barrier(4)

    def buy(_: int) -> None:
        cached = CachedEmbedder(tiny(server), EmbeddingCache(tmp_path))
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


def test_one_who_fails_leaves_it_to_the_next(server: OpenAIServer, tmp_path: Path) -> None:
    server.faults += [Status(400)]
    cached = CachedEmbedder(tiny(server), EmbeddingCache(tmp_path))
    with pytest.raises(ServiceError):
        cached.embed(TEXTS)
    assert CachedEmbedder(tiny(server), EmbeddingCache(tmp_path)).embed(TEXTS).shape == (40, 8)


def test_a_chunker_that_asks_a_service_pays_for_a_sentence_once(server: OpenAIServer, tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path)
    text = " ".join(f"Sentence number {number} is about ships." for number in range(12))
    documents = workspace.write_table("documents", documents_to_table(Corpus([Document(DocumentId("a.md"), text)])))
    embedder = tiny(server, price_per_million_tokens=1000.0)
    for percentile in (90.0, 50.0):
        chunker = SemanticChunker(embedder=embedder, breakpoint_percentile=percentile)
        effort = stages.chunk(workspace, [documents], chunker, None)[0].effort
        assert effort is not None
        assert effort.fresh == 1
        # What is kept was read all the same, and costs nothing.
        assert effort.tokens
        assert effort.cost == pytest.approx(effort.tokens / 1000 if percentile == 90.0 else 0.0)
    assert len(server.texts) == len(set(server.texts)) > 5


def made_table(workspace: Workspace, count: int) -> tuple[TableRef, TableRef]:
    """So many chunks, and so many queries with truth."""
    places = [Document(DocumentId(f"{number}.md"), f"ship {number} leaves at {number}") for number in range(count)]
    chunks = [
        PositionAwareChunk(generate_pa_chunk_id(one.content), one.content, one.id, 0, len(one.content))
        for one in sorted(places, key=lambda one: one.id)
    ]
    truth = [TokenLevelGroundTruth(Query.from_text(f"When leaves {one.id}?"), [one.span(0, 4)]) for one in places]
    queries = truth_to_tables(truth).queries
    return workspace.write_table("chunks", chunks_to_table(chunks)), workspace.write_table("queries", queries)


def test_a_reranking_that_fails_on_the_way_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CO_API_KEY", KEY)
    workspace = Workspace(root=tmp_path)
    chunks, queries = made_table(workspace, 7)
    hits = found_by_words(workspace, [chunks], queries, 5)
    with CohereServer() as server:
        reranker = CohereReranker(base_url=server.url, max_retries=0)
        server.refused_after = 4
        with pytest.raises(ServiceError, match="status 500"):
            stages.rerank(workspace, hits, [chunks], queries, reranker)
        server.refused_after = None
        done = stages.rerank(workspace, hits, [chunks], queries, reranker)
        assert done.effort is not None
        assert (done.effort.fresh, done.effort.total, done.effort.cost) == (3, 7, None)
        assert done.effort.query_seconds > 0
        assert len(server.requests) == 4 + 1 + 3
        again = stages.rerank(workspace, hits, [chunks], queries, reranker)
        assert again.effort is not None
        assert (again.effort.fresh, again.effort.cost, again.digest) == (0, 0.0, done.digest)
        assert again.effort.query_seconds >= done.effort.query_seconds
        assert len(server.requests) == 8
        # Other candidates, another model and a refresh are other questions.
        stages.rerank(workspace, found_by_words(workspace, [chunks], queries, 4), [chunks], queries, reranker)
        stages.rerank(workspace, hits, [chunks], queries, replaced(reranker, model="other"))
        stages.rerank(workspace.model_copy(update={"refresh": True}), hits, [chunks], queries, reranker)
        assert len(server.requests) == 8 + 3 * 7
        alone = stages.rerank(Workspace(root=tmp_path), hits, [chunks], queries, reranker)
        assert alone.digest == done.digest


def test_tokens_of_cuts_are_the_same_number_whatever_was_kept(server: OpenAIServer, tmp_path: Path) -> None:
    chunker = SemanticChunker(embedder=tiny(server))
    texts = ["One is here. Two are there. Three go away.", "Four stay. Five sleep on. Six wake up at night."]
    documents = [Document(DocumentId(f"{n}.md"), text) for n, text in enumerate(texts)]
    efforts = []
    for folder, first in (("step by step", 1), ("at once", 2)):
        workspace = Workspace(root=tmp_path / folder)
        for count in (first, 2):
            context = Context(workspace)
            efforts.append(context.cut(chunker, documents[:count], "token-level").effort)
    assert efforts[0].tokens
    assert [effort.fresh for effort in efforts] == [1, 1, 2, 0]
    assert efforts[1].tokens == efforts[2].tokens == efforts[3].tokens


RERANK = """
import sys
from pathlib import Path
from rag_eval.benchmark import stages
from rag_eval.pipeline.references import TableRef
from rag_eval.pipeline.workspace import Workspace
from rag_eval.retrieval.rerankers import CohereReranker
hits, chunks, queries = map(TableRef.model_validate_json, sys.argv[3:])
reranker = CohereReranker(base_url=sys.argv[2], max_retries=0)
print(stages.rerank(Workspace(root=Path(sys.argv[1])), hits, [chunks], queries, reranker).digest)
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
    chunks, queries = made_table(workspace, 5)
    hits = found_by_words(workspace, [chunks], queries, 5)
    refs = [ref.model_dump_json() for ref in (hits, chunks, queries)]
    kills = (1, 4, 6)
    with DeadlyServer() as server:
        for server.at in (*kills, 0):
            command = [sys.executable, "-c", RERANK, str(workspace.root), server.url, *refs]
            started = server.victim = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            said, _ = started.communicate(timeout=60)
            assert started.returncode == (-9 if server.at else 0)
        assert len(server.requests) == 5 + len(kills)
        anew = workspace.model_copy(update={"refresh": True})
        undisturbed = stages.rerank(anew, hits, [chunks], queries, CohereReranker(base_url=server.url))
        assert said.strip() == undisturbed.digest
