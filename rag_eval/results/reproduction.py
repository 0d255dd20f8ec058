"""Published figures again, from their public data: the benchmark that gives them, beside what was published.

docs/reproduce.md says which figure comes out how, and which cannot.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import pyarrow.compute as pc

from rag_eval.chunking import CHUNKER
from rag_eval.chunking.recursive import CHROMA_SEPARATORS
from rag_eval.errors import ConfigurationError, GroundTruthError
from rag_eval.formatting import choices, suggestion
from rag_eval.ground_truth.importing import import_truth
from rag_eval.ground_truth.importing.output import write_import
from rag_eval.ground_truth.truth_files import truth_text
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.outcome import BenchmarkOutcome, ConfigurationOutcome
from rag_eval.storage.files import file_sha256, write_atomically
from rag_eval.types.chunks import PositionAwareChunk
from rag_eval.types.documents import Document
from rag_eval.types.evidence import ChunkLevelGroundTruth, TokenLevelGroundTruth
from rag_eval.types.ids import generate_chunk_id

HERE = __name__


class FirstOccurrence:
    """The chunks of another chunker as Chroma's evaluation places them: each at the first place that has its text.

    A final "." is dropped before the text is looked for. A chunk that repeats earlier text is put onto that, and
    chunks that land on one place become one: of use for published figures, and for nothing else. ``chunker`` is a name
    or a mapping with ``type`` and settings.
    """

    def __init__(self, chunker: Any) -> None:
        self.chunker = CHUNKER.of(chunker)

    def chunk_with_positions(self, doc: Document) -> list[PositionAwareChunk]:
        """Return the chunks in the order of their places."""
        texts = dict.fromkeys(text.removesuffix(".") for text in self.chunker.chunk(doc.content))
        places = sorted((doc.content.find(text), len(text)) for text in texts if text)
        return [doc.chunk_at(start, start + length) for start, length in places if start >= 0]


class WholeDocument:
    """Every document as one chunk."""

    def chunk_with_positions(self, doc: Document) -> list[PositionAwareChunk]:
        """Return the document; nothing where it is empty."""
        return [doc.chunk_at(0, len(doc.content))] if doc.content else []


@dataclass(frozen=True)
class Figure:
    """One row: what was published, None where nothing was, what came out, and figures that are ours alone."""

    name: str
    published: str | None
    reproduced: str
    ours: Mapping[str, str]

    @property
    def differs(self) -> bool:
        """Whether something else was published."""
        return self.published not in (None, self.reproduced)


@dataclass(frozen=True)
class PublishedFigures:
    """Where figures come from, what prepares a benchmark from its data, and what reads them off the run."""

    title: str
    measure: str
    prepare: Callable[[Path, Path], Mapping[str, Any]]
    figures: Callable[[Workspace, Sequence[ConfigurationOutcome]], Iterator[Figure]]
    digests: Mapping[str, str]
    """The SHA-256 of the files that the published figures were computed on."""
    note: str


def publication(name: str) -> PublishedFigures:
    """Return what is known under this name; raises ``ConfigurationError``."""
    if name not in PUBLICATIONS:
        known = tuple(PUBLICATIONS)
        raise ConfigurationError(f"there is no publication {name!r}{suggestion(name, known)}: {choices(known, name)}")
    return PUBLICATIONS[name]


def write_benchmark(name: str, data: Path, folder: Path) -> Path:
    """Write the ground truth of the data and the benchmark into a folder, and return the benchmark file.

    Raises ``GroundTruthError`` when the data cannot be used, ``ConfigurationError`` on an unknown name.
    """
    found = publication(name)
    settings = found.prepare(data, folder)
    lines = [f"# {found.title}; written by rag-eval reproduce {name}"]
    for key, value in settings.items():
        several = isinstance(value, list) and isinstance(value[0], dict)
        lines += [f"{key}:", *(f"  - {_json(one)}" for one in value)] if several else [f"{key}: {_json(value)}"]
    write_atomically(folder / "benchmark.yaml", "\n".join([*lines, ""]).encode())
    return folder / "benchmark.yaml"


def _json(value: object) -> str:
    """A value on one line of YAML, which JSON is."""
    return json.dumps(value, ensure_ascii=False)


def other_files(name: str, data: Path) -> list[str]:
    """The files of the data that are missing, or not those that the published figures were computed on."""
    known = publication(name).digests
    return [file for file, digest in known.items() if not (data / file).is_file() or file_sha256(data / file) != digest]


def figures_of(name: str, workspace: Workspace, outcome: BenchmarkOutcome, names: Sequence[str]) -> list[Figure]:
    """Read the figures off a run whose configurations have these names, in the order of the benchmark."""
    done = {one.name: one for one in outcome.configurations}
    return list(publication(name).figures(workspace, [done[one] for one in names]))


CHROMA_ROWS: Sequence[tuple[str, int, int, str]] = (
    ("recursive", 800, 400, "6.7 ± 5.2"),
    ("recursive", 400, 200, "13.9 ± 10.4"),
    ("recursive", 400, 0, "17.7 ± 14.0"),
    ("recursive", 200, 0, "29.9 ± 18.4"),
    ("fixed", 800, 400, "4.7 ± 3.1"),
    ("fixed", 400, 200, "8.4 ± 5.1"),
    ("fixed", 400, 0, "12.5 ± 8.1"),
    ("fixed", 200, 0, "21.0 ± 11.9"),
)
"""Chunker, size and overlap in tokens, and the published Precision_Ω in percent."""


def _chroma_benchmark(data: Path, folder: Path) -> dict[str, Any]:
    summary = write_import(import_truth("chroma", data), folder / "truth.jsonl", overwrite=True)
    recursive = {"type": "recursive-token", "separators": list(CHROMA_SEPARATORS)}
    chunkers = [
        recursive | {"chunk_size": size, "chunk_overlap": overlap}
        if kind == "recursive"
        else {"type": "fixed-token", "tokens_per_chunk": size, "chunk_overlap": overlap}
        for kind, size, overlap, _ in CHROMA_ROWS
    ]
    return {
        "corpus": str(Path(str(summary.corpus)).absolute()),
        "ground_truth": "truth.jsonl",
        "copies": "off",
        "chunkers": [*({"type": f"{HERE}:FirstOccurrence", "chunker": one} for one in chunkers), *chunkers],
        "retrieval": "vector",
        "embedders": "local",
        "k": 5,
        "metrics": ["precision_omega", "chroma_recall", "chroma_precision", "chroma_iou"],
    }


def _chroma_figures(workspace: Workspace, found: Sequence[ConfigurationOutcome]) -> Iterator[Figure]:
    def percent(one: ConfigurationOutcome, metric: str) -> list[float]:
        scores = workspace.read_table(one.scores)
        return [100 * value for value in scores.filter(pc.field("metric") == metric).column("value").to_pylist()]

    def spread(values: list[float]) -> str:
        return f"{fmean(values):.1f} ± {pstdev(values):.1f}"

    placed, true = found[: len(CHROMA_ROWS)], found[len(CHROMA_ROWS) :]
    for (kind, size, overlap, published), first, own in zip(CHROMA_ROWS, placed, true, strict=True):
        ours = {"true places": spread(percent(own, "precision_omega"))}
        ours |= {name: f"{fmean(percent(own, f'chroma_{name}')):.1f}" for name in ("recall", "precision")}
        yield Figure(f"{kind} {size}/{overlap}", published, spread(percent(first, "precision_omega")), ours)


def _beir_benchmark(data: Path, folder: Path) -> dict[str, Any]:
    found = import_truth("beir", data)
    if not found.documents:
        raise GroundTruthError(f"{str(data)!r} has no documents: give the folder of a BEIR dataset")
    summary = write_import(found, folder / "spans.jsonl", overwrite=True)
    ids = {document.id: generate_chunk_id(document.content) for document in found.documents}
    truth = [
        ChunkLevelGroundTruth(item.query, list(dict.fromkeys(ids[span.doc_id] for span in item.relevant_spans)))
        for item in found.truth
        if isinstance(item, TokenLevelGroundTruth)
    ]
    write_atomically(folder / "truth.jsonl", truth_text(truth).encode())
    stemmed = {"tokenizer": {"type": "stemmed", "language": "english"}} if find_spec("snowballstemmer") else {}
    return {
        "corpus": str(Path(str(summary.corpus)).absolute()),
        "glob": "**/*",
        "ground_truth": "truth.jsonl",
        "evaluation_type": "chunk-level",
        "chunkers": f"{HERE}:WholeDocument",
        "retrieval": [{"type": "bm25"}, {"type": "bm25", "k1": 0.9, "b": 0.4, **stemmed}],
        "k": [10, 100],
        "metrics": ["chunk_ndcg", "chunk_recall"],
    }


def _beir_figures(workspace: Workspace, found: Sequence[ConfigurationOutcome]) -> Iterator[Figure]:
    for one in found:
        yield Figure(
            one.name.partition(", ")[2],  # without the chunker
            None,
            f"{one.metrics['chunk_ndcg@10']:.4f}",
            {"R@100": f"{one.metrics['chunk_recall@100']:.4f}", "questions": str(one.queries)},
        )


PUBLICATIONS = {
    "chroma": PublishedFigures(
        "Precision_Ω in %, mean ± standard deviation (Smith and Troynikov, Chroma Technical Report, 2024)",
        "Precision_Ω",
        _chroma_benchmark,
        _chroma_figures,
        {
            "questions_df.csv": "3ab3901889b8900f43775537bf12d36bd6614255fc59124faca31bede1dda7a3",
            "corpora/chatlogs.md": "543a98f82b2a6a492349fd7f8c9d6c3e78d1a4af81d13c79a7fd513c3f65bda6",
            "corpora/finance.md": "1c48d0156820abc88e46e5c992fa0cd2708b07ae59a3771b2b18234b7208561f",
            "corpora/pubmed.md": "0fd9242ffb253695e5d0f0215cb79a66a2a8f1236591e764c60d370747684ced",
            "corpora/state_of_the_union.md": "6fc21d560d31eb2421e337596feea0f83f1fa9ca02c6c4e47bc26959d7531b37",
            "corpora/wikitexts.md": "74cafcdb771185ecb9f22cc41b73e2e44477e0636ecf9cf1f96fd6ee0f4b86c0",
        },
        "Reproduced with chunks at their first occurrence, as published. True places, and Chroma's recall and "
        "precision at five hits of the local embedder, are ours.",
    ),
    "beir": PublishedFigures(
        "BM25 over whole documents", "nDCG@10", _beir_benchmark, _beir_figures, {}, "A judgement above 0 is relevant."
    ),
}
