"""Small benchmarks for the flow tests."""

from pathlib import Path

from rag_eval.chunking.recursive import RecursiveTokenChunker
from rag_eval.config.models import BenchmarkConfig
from rag_eval.retrieval.rerankers import LexicalReranker
from rag_eval.sample import CORPUS, GROUND_TRUTH

SMALL, LARGE = RecursiveTokenChunker(chunk_size=60), RecursiveTokenChunker(chunk_size=300)
TWO = BenchmarkConfig(corpus=CORPUS, ground_truth=GROUND_TRUTH, chunkers=[SMALL, LARGE])


def every_step(tmp_path: Path) -> BenchmarkConfig:
    """A benchmark of one configuration with every step, and few questions."""
    truth = tmp_path / "few.jsonl"
    few = GROUND_TRUTH.read_text(encoding="utf-8").splitlines(keepends=True)[:9]
    truth.write_text("".join(few), encoding="utf-8")
    return BenchmarkConfig(
        corpus=CORPUS,
        ground_truth=truth,
        chunkers=[LARGE],
        retrieval=["hybrid"],
        rerankers=[LexicalReranker()],
        k=[1, 5],
    )


def folder_of(tmp_path: Path, documents: int) -> tuple[Path, Path]:
    """A corpus of so many documents and ground truth for it."""
    folder = tmp_path / "docs"
    folder.mkdir()
    for number in range(documents):
        text = f"# Ship {number}\n\nShip number {number} leaves at {number % 24}:00 from quay {number * 7}.\n"
        (folder / f"{number:03}.md").write_text(text)
    truth = tmp_path / "truth.jsonl"
    content = (folder / "000.md").read_text()
    truth.write_text(
        '{"query": "When does ship number 0 leave?", "relevant_spans": '
        f'[{{"doc_id": "000.md", "start": 0, "end": 8, "text": "{content[:8]}"}}]}}\n'
    )
    return folder, truth
