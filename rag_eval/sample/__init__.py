"""A small corpus with hand-checked ground truth, for trying things out."""

from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
GROUND_TRUTH = Path(__file__).parent / "ground_truth.jsonl"
BENCHMARK = Path(__file__).parent / "benchmark.yaml"
