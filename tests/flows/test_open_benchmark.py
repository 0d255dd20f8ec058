"""One benchmark of parts from everywhere, on a real Prefect server: run twice, then with an edited module."""

import json
from pathlib import Path

import pytest

from flows.benchmark import benchmark
from rag_eval.benchmark.config_files import load_config
from rag_eval.benchmark.workspace import Workspace
from rag_eval.reports.write import keep_report, page_of

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


def markdown_headers():
    from langchain_text_splitters import MarkdownHeaderTextSplitter

    return MarkdownHeaderTextSplitter([("#", "title")], strip_headers=False)


def nodes_by_level():
    from llama_index.core.node_parser import HierarchicalNodeParser

    return HierarchicalNodeParser.from_defaults(chunk_sizes=[64, 32], chunk_overlap=0)


def langchain_store():
    from langchain_core.vectorstores import InMemoryVectorStore

    return InMemoryVectorStore(embedding=None)


def counted(text):
    return len(text.split())


def by_meaning():
    import semchunk

    return semchunk.chunkerify(counted, chunk_size=20)


def haystack_bm25():
    from haystack import Document
    from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
    from haystack.document_stores.in_memory import InMemoryDocumentStore

    store = InMemoryDocumentStore()
    paths = sorted(Path(__file__).with_name("docs").glob("*.md"))
    texts = dict.fromkeys(one for path in paths for one in path.read_text().split("\\n\\n"))
    store.write_documents([Document(content=one) for one in texts])
    return InMemoryBM25Retriever(store)
'''

BENCHMARK = """
corpus: docs
ground_truth: truth.jsonl
k: 3
metrics: [span_recall, span_precision]
chunkers:
  - markdown
  - my_parts:by_words
  - {type: "langchain_text_splitters:RecursiveCharacterTextSplitter", chunk_size: 80, chunk_overlap: 0}
  - my_parts:markdown_headers
  - my_parts:nodes_by_level
  - {type: "chonkie:SentenceChunker", tokenizer: character, chunk_size: 90, chunk_overlap: 0}
  - {type: "chonkie:TokenChunker", tokenizer: character, chunk_size: 90, chunk_overlap: 0}
  - my_parts:by_meaning
embedders: my_parts:letters
stores: [memory, my_parts:langchain_store, "llama_index.core.vector_stores:SimpleVectorStore"]
retrieval:
  - {type: hybrid, retrievers: [vector, "langchain_community.retrievers:BM25Retriever"], fusion: my_parts:latest}
system: [my_parts:paragraphs, my_parts:haystack_bm25]
"""


def write(folder: Path) -> Path:
    (folder / "docs").mkdir()
    lines = []
    for number, thing in enumerate(("lanterns", "anchors", "compasses")):
        answer = f"The ship keeps {number + 3} {thing} below deck {number}."
        text = f"# Stores {number}\n\nNothing is said here of cargo.\n\n{answer}\n\nThe crew sleeps above.\n"
        (folder / "docs" / f"{number}.md").write_text(text)
        start = text.index(answer)
        span = {"doc_id": f"{number}.md", "start": start, "end": start + len(answer), "text": answer}
        lines.append(json.dumps({"id": f"q{number}", "query": f"How many {thing} ?", "relevant_spans": [span]}))
    (folder / "truth.jsonl").write_text("\n".join(lines))
    (folder / "my_parts.py").write_text(PARTS)
    (folder / "benchmark.yaml").write_text(BENCHMARK)
    return folder / "benchmark.yaml"


def test_parts_from_everywhere_are_ranked_together_kept_and_computed_anew_where_their_code_changes(
    tmp_path: Path,
) -> None:
    file, workspace = write(tmp_path), Workspace(root=tmp_path / ".rag-eval")
    config = load_config(file)
    assert [one.partition(" reads")[0] for one in config.notices()] == ["my_parts:paragraphs", "my_parts:haystack_bm25"]
    first = benchmark(config, workspace)
    assert len(first.ranked()) == 8 * 3 + 2
    by_name = {one.name: one for one in first.configurations}
    system = by_name["my_parts:paragraphs"]
    assert (system.unplaced, system.configuration.chunker) == (3, None)
    assert system.metrics["span_recall@3"] == 1.0
    assert 0 < system.metrics["span_precision@3"] < 1
    assert "3 of" in system.notes[0]
    report = keep_report(workspace, first)
    assert report is not None
    assert page_of(workspace, first).exists()

    again = benchmark(load_config(file), workspace)
    assert again.work()[0] == 0
    assert [one.metrics for one in again.configurations] == [one.metrics for one in first.configurations]

    module = tmp_path / "my_parts.py"
    module.write_text(PARTS.replace("WORDS = 12", "WORDS = 12  # enough"))
    assert benchmark(load_config(file), workspace).work()[0] == 0

    module.write_text(PARTS.replace("WORDS = 12", "WORDS = 9"))
    edited = benchmark(load_config(file), workspace)
    for one in edited.configurations:
        is_concerned = one.name.startswith("my_parts:by_words")
        assert any(stage.work == "computed" for stage in one.stages.values()) == is_concerned, one.name
