"""One benchmark of parts from everywhere, on a real Prefect server: run twice, then with an edited module."""

import json
from pathlib import Path
from typing import Any

import pytest

from rag_eval.config.loading import load_config
from rag_eval.errors import BenchmarkFailedError
from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports.write import keep_report, page_of
from rag_eval.results.outcome import BenchmarkOutcome
from tasks.retrieve import ask_system
from tests.doubles.loopback import LoopbackServer, Request
from tests.flows.server_runs import run

pytestmark = [
    pytest.mark.usefixtures("prefect_server"),
    pytest.mark.filterwarnings("ignore:.langchain-community. is being sunset"),
]

PARTS = '''
"""Parts of a user."""
from pathlib import Path

WORDS = 12


def by_words(text):
    words = text.split(" ")
    return [" ".join(words[at : at + WORDS]) for at in range(0, len(words), WORDS)]


def letters(texts):
    return [[float(text.lower().count(letter)) + 0.01 for letter in "abcdefghijklmnop"] for text in texts]


def paragraphs(query, k):
    found = []
    for path in sorted(Path(__file__).with_name("docs").glob("*.md")):
        found += [line for line in path.read_text().split("\\n\\n") if set(line.split()) & set(query.split())]
    return ["nobody wrote this", *found][:k]


def latest(rankings):
    return {chunk: score for ranking in rankings for chunk, score in ranking}


def nodes_by_level():
    from llama_index.core.node_parser import HierarchicalNodeParser

    return HierarchicalNodeParser.from_defaults(chunk_sizes=[64, 32], chunk_overlap=0)


def llama_retriever():
    from llama_index.core import MockEmbedding, VectorStoreIndex
    from llama_index.core.schema import TextNode

    nodes = [TextNode(text=one, id_=str(number)) for number, one in enumerate(texts())]
    return VectorStoreIndex(nodes, embed_model=MockEmbedding(4)).as_retriever()


def ranked():
    from rerankers.models.api_rankers import APIRanker

    return APIRanker("tiny", "none", "jina", verbose=0, url="SERVER/rerank")


def found_any(retrieved, ground_truth):
    """1 if a hit shares a character with the truth, else 0."""
    return float(any(one.overlaps(two) for one in retrieved for two in ground_truth))


class Waste:
    """The characters of the hits that are not in the truth."""

    higher_is_better = False

    def calculate(self, retrieved, ground_truth):
        relevant = {(one.doc_id, at) for one in ground_truth for at in range(one.start, one.end)}
        return float(len({(one.doc_id, at) for one in retrieved for at in range(one.start, one.end)} - relevant))


def langchain_store():
    from langchain_core.vectorstores import InMemoryVectorStore

    return InMemoryVectorStore(embedding=None)


def counted(text):
    return len(text.split())


def by_meaning():
    import semchunk

    return semchunk.chunkerify(counted, chunk_size=20)


def texts():
    paths = sorted(Path(__file__).with_name("docs").glob("*.md"))
    return list(dict.fromkeys(one for path in paths for one in path.read_text().split("\\n\\n")))


def haystack_bm25():
    from haystack import Document
    from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
    from haystack.document_stores.in_memory import InMemoryDocumentStore

    store = InMemoryDocumentStore()
    store.write_documents([Document(content=one) for one in texts()])
    return InMemoryBM25Retriever(store)
'''

BENCHMARK = """
corpus: docs
glob: ["*.md", "more/*.md"]
ground_truth: truth.jsonl
k: [1, 3]
metrics: [span_recall, span_precision, my_parts:found_any, my_parts:Waste]
chunkers:
  - my_parts:by_words
  - {type: "langchain_text_splitters:RecursiveCharacterTextSplitter", chunk_size: 80, chunk_overlap: 0}
  - {type: "langchain_text_splitters:MarkdownTextSplitter", chunk_size: 90, chunk_overlap: 0}
  - {type: "llama_index.core.node_parser:SentenceSplitter", chunk_size: 40, chunk_overlap: 0}
  - my_parts:nodes_by_level
  - {type: "haystack.components.preprocessors:DocumentSplitter", split_by: word, split_length: 12, split_overlap: 0}
  - {type: "chonkie:SentenceChunker", tokenizer: character, chunk_size: 90, chunk_overlap: 0}
  - {type: "chonkie:TokenChunker", tokenizer: character, chunk_size: 90, chunk_overlap: 0}
  - my_parts:by_meaning
embedders: {type: "langchain_core.embeddings:DeterministicFakeEmbedding", size: 8}
stores: [my_parts:langchain_store, "llama_index.core.vector_stores:SimpleVectorStore"]
retrieval:
  - type: hybrid
    retrievers: [vector, "langchain_community.retrievers:BM25Retriever", "rank_bm25:BM25Okapi"]
    fusion: my_parts:latest
rerankers: my_parts:ranked
system:
  - my_parts:paragraphs
  - my_parts:haystack_bm25
  - my_parts:llama_retriever
  - {type: http, url: "SERVER/search", body: {question: "{query}", top: "{k}"}, hits: data.results, timeout: 9.0}
"""


class Services(LoopbackServer):
    """A search service that finds lines, and a reranking service that likes short texts."""

    def __init__(self, docs: Path) -> None:
        super().__init__()
        self.docs = docs

    def respond(self, request: Request) -> tuple[int, bytes, dict[str, str]] | None:
        if request.path == "/html":
            return 200, b"<html>Sign in</html>", {"Content-Type": "text/html"}
        return super().respond(request)

    def answer(self, request: Request) -> tuple[int, Any]:
        asked = request.json()
        if request.path == "/rerank":
            order = sorted(range(len(asked["documents"])), key=lambda number: len(asked["documents"][number]))
            scored = [{"index": number, "relevance_score": 1 / rank} for rank, number in enumerate(order, 1)]
            return 200, {"results": scored}
        words = set(asked["question"].split())
        found: list[dict[str, Any]] = [{"text": "nobody wrote this either"}]
        for path in sorted(self.docs.glob("*.md")):
            text = path.read_text()
            places = [(text.index(line), line) for line in text.split("\n\n") if words & set(line.split())]
            found += [{"doc_id": path.name, "start": at, "end": at + len(line)} for at, line in places]
        return 200, {"data": {"results": found[: asked["top"]]}}


def write(folder: Path, server: str, benchmark: str = BENCHMARK, parts: str = PARTS) -> Path:
    (folder / "docs" / "more").mkdir(parents=True)
    lines = []
    for number, thing in enumerate(("lanterns", "anchors", "compasses")):
        answer = f"The ship keeps {number + 3} {thing} below deck {number}."
        text = f"# Stores {number}\n\nNothing is said here of cargo.\n\n{answer}\n\nThe crew sleeps above.\n"
        (folder / "docs" / f"{number}.md").write_text(text)
        start = text.index(answer)
        span = {"doc_id": f"{number}.md", "start": start, "end": start + len(answer), "text": answer}
        lines.append(json.dumps({"id": f"q{number}", "query": f"How many {thing} ?", "relevant_spans": [span]}))
    (folder / "docs" / "more" / "log.md").write_text("The log of the ship is kept elsewhere.\n")
    (folder / "truth.jsonl").write_text("\n".join(lines))
    (folder / "my_parts.py").write_text(parts.replace("SERVER", server))
    (folder / "benchmark.yaml").write_text(benchmark.replace("SERVER", server))
    return folder / "benchmark.yaml"


def test_parts_from_everywhere_are_ranked_together_kept_and_computed_anew_where_their_code_changes(
    tmp_path: Path,
) -> None:
    workspace, module = Workspace(root=tmp_path / ".rag-eval"), tmp_path / "my_parts.py"
    with Services(tmp_path / "docs") as services:
        file = write(tmp_path, services.url)
        config = load_config(file)
        reading = [one.partition(" reads")[0] for one in config.notices()]
        assert {"my_parts:paragraphs", "my_parts:haystack_bm25", "my_parts:llama_retriever"} <= set(reading)
        first = run(config, workspace)
        asked, parts = len(services.requests), module.read_text()

        module.write_text(parts.replace("WORDS = 12", "WORDS = 12  # enough"))
        again = run(load_config(file), workspace)
        assert (again.work()[0], len(services.requests)) == (0, asked)
        assert [one.metrics for one in again.configurations] == [one.metrics for one in first.configurations]

        few = ("hybrid", "by_words", "RecursiveCharacter", "paragraphs")
        lines = file.read_text().splitlines()
        file.write_text("\n".join(line for line in lines if line[:4] != "  - " or any(name in line for name in few)))
        module.write_text(parts.replace("WORDS = 12", "WORDS = 9"))
        edited = run(load_config(file), workspace).configurations
        cut = {
            one.name.partition(",")[0]
            for one in edited
            if "chunk" in one.steps and one.steps["chunk"].state == "computed"
        }
        assert cut == {"my_parts:by_words"}

    assert len(first.ranked()) == 9 * 2 + 4
    assert first.documents == 4
    by_name = {one.name: one for one in first.configurations}
    for beginning in ("my_parts:paragraphs", f"http {services.url}/search"):
        system = next(one for name, one in by_name.items() if name.startswith(beginning))
        assert (system.unplaced, system.configuration.chunker) == (3, None)
        assert system.metrics["span_recall@3"] == system.metrics["found_any@3"] == 1.0
        assert 0 < system.metrics["span_precision@3"] < 1
        assert system.metrics["Waste(lower is better)@1"] > 0
        assert "3 of" in system.notes[0]
        assert "timeout" not in system.name
    hybrid = first.configurations[0]
    assert len([name for name in hybrid.steps if name.startswith("search ")]) == 3
    assert len(hybrid.hits_by_stage) == 5
    assert keep_report(workspace, first) is not None
    page = page_of(workspace, first).read_text()
    for shown in ("have no certain place in the documents", "found_any", "Waste(lower is better)"):
        assert shown in page


BAD = '''
"""Parts that do not do what they should."""


def raises(text):
    raise RuntimeError("no cutting today")


def invents(text):
    return ["a text that nobody wrote, in no document"]


def letters(texts):
    return [[float(text.lower().count(letter)) + 0.01 for letter in "abcdefghijklmnop"] for text in texts]


def unknown_numbers(texts):
    return [[float("nan")] * 3 for text in texts]


def too_few(texts):
    return [[1.0, 2.0]]


def strangers(chunks):
    return lambda query, k: ["a text that it was not given"]


def twice(chunks):
    return lambda query, k: [0, 0, 1][:k]


def beyond(query, k):
    return [("0.md", 5, 50_000)]


def no_list(query, k):
    return "0.md"
'''
BAD_BENCHMARK = """
corpus: docs
ground_truth: truth.jsonl
k: 2
metrics: [span_recall]
chunkers: [markdown, my_parts:raises, my_parts:invents]
embedders: [my_parts:letters, my_parts:unknown_numbers, my_parts:too_few]
stores: memory
retrieval: [vector, my_parts:strangers, my_parts:twice]
system:
  - my_parts:beyond
  - my_parts:no_list
  - {type: http, url: "SERVER/html"}
  - {type: http, url: "SERVER/broken", max_retries: 0}
  - {type: http, url: "SERVER/silent", max_retries: 0, timeout: 0.2}
"""


def test_a_part_that_fails_is_named_in_a_sentence_and_the_other_configurations_finish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ask_system, "retry_delay_seconds", [0.0, 0.0])
    with Services(tmp_path / "docs") as services:
        services.fail("POST", "/broken", status=500, times=9)
        services.fail("POST", "/silent", hang=True, times=9)
        file = write(tmp_path, services.url, BAD_BENCHMARK, BAD)
        with pytest.raises(BenchmarkFailedError, match=r"\d+ of \d+ configurations failed: ") as caught:
            run(load_config(file), Workspace(root=tmp_path / ".rag-eval"))
    outcome = BenchmarkOutcome.model_validate_json(caught.value.summary.read_bytes())
    assert [one.name for one in outcome.configurations] == [
        "markdown 1000, vector, my_parts:letters, memory",
        "markdown 1000, my_parts:twice",
    ]
    reasons = {name: failure.reason for name, failure in outcome.failures.items()}
    for name, reason in {
        "my_parts:raises, my_parts:twice": "the chunker my_parts:raises failed (RuntimeError: no cutting today)",
        "my_parts:invents, my_parts:twice": "my_parts:invents made no chunks of 4 documents (4 were left out",
        "markdown 1000, vector, my_parts:unknown_numbers, memory": (
            "the embedder my_parts:unknown_numbers gave numbers that are NaN or infinite"
        ),
        "markdown 1000, vector, my_parts:too_few, memory": (
            "the embedder my_parts:too_few gave an array of shape (1, 2) for 4 texts"
        ),
        "markdown 1000, my_parts:strangers": "the retriever my_parts:strangers returned ",
        "my_parts:beyond": (
            "my_parts:beyond returned an invalid place for q0: the span [5, 50000) reaches past the end of '0.md'"
        ),
        "my_parts:no_list": """my_parts:no_list returned "'0.md'" for q0: return a list of answers""",
        f"http {services.url}/html": f"the system http {services.url}/html failed, its answer is not JSON",
        f"http {services.url}/broken": f"the system http {services.url}/broken failed, it answered 500",
        f"http {services.url}/silent": f"the system http {services.url}/silent failed, no answer within 0.2 s",
    }.items():
        assert reason in reasons[name], (name, reasons[name])
        assert "\n" not in reasons[name]
    # Reasons that are equal are told once.
    assert "my_parts:raises, vector, my_parts:letters, memory and 4 others (the chunker" in str(caught.value)
    assert str(caught.value).count("no cutting today") == 1
