"""A whole token-level evaluation against the same work done the way it is usually done.

The usual way, after Chroma's chunking evaluation: split with LangChain, find each chunk in the source by searching for
it, embed every chunk, index in chromadb, embed the questions once, ask all of them in one call, and score with loops
over spans. Both sides use the same embedder. Measured without imports, in CPU seconds of all threads.
"""

import time
from collections.abc import Callable
from typing import Any

from rag_eval import Corpus, LocalEmbedder, TokenLevelGroundTruth
from rag_eval.chunking.recursive import CHROMA_SEPARATORS, RecursiveTokenChunker
from rag_eval.evaluation.evaluations import TokenLevelEvaluation
from rag_eval.tokens import get_encoding
from tests.bench.chroma_data import chroma_dataset

SIZES = [(800, 400), (400, 200), (400, 0), (200, 0)]
K = 5


def ours(corpus: Corpus, truth: list[TokenLevelGroundTruth]) -> list[float]:
    evaluation = TokenLevelEvaluation(corpus, truth)
    embedder = LocalEmbedder()
    return [
        evaluation.run(RecursiveTokenChunker(size, overlap, CHROMA_SEPARATORS), embedder, k=K).metrics["span_recall"]
        for size, overlap in SIZES
    ]


def the_usual_way(corpus: Corpus, truth: list[TokenLevelGroundTruth]) -> list[float]:
    import chromadb
    from langchain_text_splitters import RecursiveCharacterTextSplitter

    embedder, coder = LocalEmbedder(), get_encoding("cl100k_base")
    recalls = []
    asked: Any = embedder.embed([item.query.text for item in truth])
    for size, overlap in SIZES:
        splitter = RecursiveCharacterTextSplitter(
            list(CHROMA_SEPARATORS),
            chunk_size=size,
            chunk_overlap=overlap,
            length_function=lambda text: len(coder.encode(text, disallowed_special=())),
        )
        texts, places = [], []
        for document in corpus:
            for text in splitter.split_text(document.content):
                start = document.content.find(text)
                texts.append(text)
                places.append({"doc_id": document.id, "start": start, "end": start + len(text)})
        client = chromadb.EphemeralClient(chromadb.config.Settings(anonymized_telemetry=False))
        collection = client.create_collection(f"c{size}-{overlap}", metadata={"hnsw:space": "cosine"})
        for begin in range(0, len(texts), 500):
            batch = slice(begin, begin + 500)
            collection.add(
                ids=[str(number) for number in range(begin, begin + len(texts[batch]))],
                embeddings=embedder.embed(texts[batch]),  # type: ignore[arg-type]  # an array is taken
                documents=texts[batch],
                metadatas=places[batch],  # type: ignore[arg-type]  # plain dicts
            )
        found: Any = collection.query(asked, n_results=K)["metadatas"]
        scores = [recall_by_loops(hits, item) for hits, item in zip(found, truth, strict=True)]
        recalls.append(sum(scores) / len(scores))
        client.delete_collection(f"c{size}-{overlap}")
    return recalls


def recall_by_loops(found: list[dict[str, Any]], item: TokenLevelGroundTruth) -> float:
    """The share of the references that the chunks cover, by cutting away what each chunk covers."""
    total = sum(span.length for span in item.relevant_spans)
    left = [(span.doc_id, span.start, span.end) for span in item.relevant_spans]
    for chunk in found:
        rest = []
        for doc_id, start, end in left:
            if chunk["doc_id"] != doc_id or chunk["end"] <= start or end <= chunk["start"]:
                rest.append((doc_id, start, end))
                continue
            if start < chunk["start"]:
                rest.append((doc_id, start, chunk["start"]))
            if chunk["end"] < end:
                rest.append((doc_id, chunk["end"], end))
        left = rest
    return 1 - sum(end - start for _, start, end in left) / total


def cpu(work: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.process_time()
    result = work()
    return time.process_time() - begin, result


def run() -> list[dict[str, Any]]:
    dataset = chroma_dataset()
    if dataset is None:
        return []
    import chromadb  # noqa: F401  # imported before the clock starts
    import langchain_text_splitters  # noqa: F401
    import pandas  # noqa: F401  # by Arrow, where it is installed
    import polars  # noqa: F401

    LocalEmbedder().embed_query("load the weights")
    get_encoding("cl100k_base")
    # Whoever comes second finds the embedder's words known: it is not us.
    mine, my_recalls = cpu(lambda: ours(*dataset))
    theirs, their_recalls = cpu(lambda: the_usual_way(*dataset))
    share = mine / theirs
    figures = [
        {"name": "our CPU seconds, four configurations", "value": mine, "target": None, "unit": "s", "ok": True},
        {"name": "the usual way's CPU seconds", "value": theirs, "target": None, "unit": "s", "ok": True},
        {
            "name": "our share of the usual way's (at most)",
            "value": share,
            "target": 0.25,
            "unit": "×",
            "ok": share <= 0.25,
        },
    ]
    for (size, overlap), my_recall, their_recall in zip(SIZES, my_recalls, their_recalls, strict=True):
        figures.append(
            {"name": f"recall {size}/{overlap}, ours", "value": my_recall, "target": None, "unit": "", "ok": True}
        )
        figures.append(
            {
                "name": f"recall {size}/{overlap}, the usual way",
                "value": their_recall,
                "target": None,
                "unit": "",
                "ok": True,
            }
        )
    return figures
