"""Benchmarks with a grid, on documents of made-up sentences."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from rag_eval.config.loading import load_config
from rag_eval.config.models import BenchmarkConfig

GRID = """
chunkers:
  - {type: recursive-token, chunk_size: [30, 60, 90, 120]}
  - {type: sentence, max_chunk_size: [100, 250]}
retrieval: [vector, bm25, hybrid]
objective: span_recall@3
k: [3]
"""


def write_sentences(folder: Path) -> None:
    """Documents of made-up sentences, and questions that share some of their words."""
    rng = np.random.default_rng(5)
    words = ["".join(rng.choice(list("aeioubdfgklmnprst"), 6)) for _ in range(700)]
    (folder / "docs").mkdir()
    lines = []
    for number in range(14):
        sentences = [" ".join(rng.choice(words, 9)).capitalize() + "." for _ in range(40)]
        text = "\n\n".join(" ".join(sentences[begin : begin + 5]) for begin in range(0, 40, 5))
        (folder / "docs" / f"{number:02}.md").write_text(text)
        for sentence in rng.choice(sentences, 4, replace=False):
            asked = " ".join([*sentence.lower().rstrip(".").split()[:2], *rng.choice(words, 8)])
            start = text.index(sentence)
            span = {"doc_id": f"{number:02}.md", "start": start, "end": start + len(sentence), "text": sentence}
            lines.append(json.dumps({"query": asked, "relevant_spans": [span]}))
    (folder / "truth.jsonl").write_text("\n".join(lines) + "\n")


def sweep_benchmark(folder: Path, text: str = GRID, **settings: Any) -> BenchmarkConfig:
    """A grid on such documents."""
    file = folder / "benchmark.yaml"
    further = "".join(f"{name}: {value}\n" for name, value in settings.items())
    file.write_text(f"corpus: docs\nground_truth: truth.jsonl\n{text}\n{further}")
    return load_config(file)
