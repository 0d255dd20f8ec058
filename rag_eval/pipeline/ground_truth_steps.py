"""The stages that ground truth comes by: each source loaded, pulled or generated, what they give joined.

Spans are held against the documents, or carried over to them with the earlier versions that runs left in a workspace.
"""

import functools
import logging
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rag_eval.errors import ArtifactError, GroundTruthError, ServiceError, TableError, is_outage
from rag_eval.formatting import counted
from rag_eval.ground_truth.check import check_against_corpus
from rag_eval.ground_truth.copies import COPY, Copies, credit_copies, places_of_texts, with_copies
from rag_eval.ground_truth.drift import ReanchorReport, check_not_empty, documents_that_no_longer_match, reanchor
from rag_eval.ground_truth.sources import FileTruth, Observed, Surroundings, join_truth, read_truth
from rag_eval.ground_truth.truth_files import truth_text
from rag_eval.pipeline.document_steps import StoredDocuments
from rag_eval.pipeline.references import Effort, Frozen, TruthRef
from rag_eval.pipeline.step import Shards, as_table, step
from rag_eval.pipeline.workspace import Workspace
from rag_eval.storage.bucket import Storage
from rag_eval.storage.files import data_sha256
from rag_eval.storage.rows import read_table
from rag_eval.tables import TruthTables, documents_from_table, has_places, schema_of, truth_from_tables, truth_to_tables
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.documents import Corpus
from rag_eval.types.evidence import TRUTH_KINDS, TokenLevelGroundTruth, judged_spans
from rag_eval.types.ids import DocumentId, EvaluationType, text_sha256

COPIES = schema_of(doc_id=pa.string(), start=pa.int64(), end=pa.int64(), text=pa.large_string())

logger = logging.getLogger("rag_eval.pipeline")


class Observation(Frozen):
    """A source of ground truth as it was when it was looked at, with what was found there."""

    digest: str
    source: Any
    level: EvaluationType
    found: Any

    @property
    def key_data(self) -> dict[str, Any]:
        """Return what of it goes into a cache key."""
        return {"digest": self.digest}

    @property
    def is_cacheable(self) -> bool:
        """Whether the same digest means the same ground truth: not where reading the source makes it grow."""
        return not getattr(self.source, "grows", False)

    @classmethod
    def of(cls, source: Any, level: EvaluationType) -> "Observation":
        """Look at a source."""
        found = source.observe(level)
        return cls(digest=found.digest, source=source, level=level, found=found)


def observed(workspace: Workspace, source: Any, level: EvaluationType) -> Observation:
    """Look at a source; what it holds elsewhere is kept in the workspace, as the file that ``kept_truth`` names.

    Where it cannot be reached, what was pulled last is used, which the log says. Raises as the source's ``observe``
    does: a source that refuses, or of which nothing was pulled before, is an error.
    """
    path = kept_truth(workspace, source)
    try:
        seen = Observation.of(source, level)
    except ServiceError as error:
        if not is_outage(error) or not workspace.fetch_newest(path).is_file():
            raise
        truth = read_truth(path, level)
        logger.warning("%s, so the questions that were pulled from it last are used: %s", error, path)
        found = Observed(data_sha256(truth_text(truth)), truth)
        return Observation(digest=found.digest, source=source, level=level, found=found)
    if seen.found.truth is not None:
        text = truth_text(seen.found.truth).encode()
        if not workspace.fetch_newest(path).is_file() or path.read_bytes() != text:
            workspace.write_file(path, text)
    return seen


def kept_truth(workspace: Workspace, source: Any) -> Path:
    """Return the file in a workspace that has what was last pulled from a source, to be read and copied."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", source.title).strip("-.")[:80]
    told = name if name == source.title.replace(" ", "-", 1) else f"{name}-{text_sha256(source.title)[:8]}"
    return workspace.root / "truth" / f"{told}.jsonl"


def truth_file(workspace: Workspace, source: Any) -> Path | None:
    """Return the file in which the questions of a source can be read and reviewed; None where it has none."""
    own = getattr(source, "path", None) or getattr(source, "file", None)
    path = Path(own) if own is not None else kept_truth(workspace, source)
    return path if path.is_file() else None


def write_truth(workspace: Workspace, tables: TruthTables) -> TruthRef:
    """Write the tables of ground truth, and return their reference."""
    return TruthRef(
        evaluation_type="token-level" if has_places(tables.answers) else "chunk-level",
        queries=workspace.write_table("queries", tables.queries),
        answers=workspace.write_table("truth", tables.answers),
    )


@step(version=3, write=write_truth)
def load_ground_truth(
    source: Observation,
    documents: Shards,
    evaluation_type: EvaluationType,
    reanchor: bool = False,
    alone: bool = True,
    workspace: Workspace | None = None,
) -> tuple[TruthTables, Effort]:
    """Read the ground truth of one source.

    Spans are held against the documents, or with ``reanchor`` carried over to them. ``alone`` says that it is all
    there is.
    """
    part, whole = source.source, functools.cache(lambda: Corpus(list(StoredDocuments(documents).values())))
    reading = part.read(source.found, whole, evaluation_type, _surroundings(workspace, part))
    truth = list(reading.truth)
    lost = 0
    if evaluation_type == "token-level":
        if reanchor:
            report = _carried(workspace, part, truth, whole())
            truth, lost = list(report.truth), report.counts["lost"]
        named = {span.doc_id for item in truth for group in (*item.groups, judged_spans(item.query)) for span in group}
        some = list(StoredDocuments(documents, pa.array(sorted(named), pa.string())).values())
        try:
            truth = list(_held_against(part, truth, Corpus(some) if some else whole()))
        except GroundTruthError:
            truth = list(_held_against(part, truth, whole()))  # where all that is there can be told
    tables = truth_to_tables(truth)
    if alone:
        _check_answerable(tables, part.title)
    count = tables.queries.num_rows
    # Of what was read, questions whose text is gone from the documents are left out.
    fresh = min(reading.fresh, count)
    # A lost span may be found once the workspace has the version of the document that it was made on.
    used = {"tokens": reading.tokens, "cost": reading.cost, "unfinished": lost}
    return tables, Effort(fresh=fresh, total=count, unit="queries", **used)


def _surroundings(workspace: Workspace | None, part: Any) -> Surroundings:
    return Surroundings(
        storage=Storage(Path(".rag-eval")) if workspace is None else workspace.storage,
        carry=lambda truth, corpus: _carried(workspace, part, truth, corpus),
        run=None if workspace is None else workspace.begun,
    )


def _carried(
    workspace: Workspace | None, part: Any, truth: Sequence[TokenLevelGroundTruth], corpus: Corpus
) -> ReanchorReport:
    """Carry spans over to the documents, and say in the log what became of those that are not what they were."""
    report = reanchor_for_run(workspace, truth, corpus)
    if not report.is_unchanged:
        told = ", ".join(f"{count:,} {status}" for status, count in report.counts.items() if count)
        left = f"; {counted(len(report.unanswered), 'questions')} left out" if report.unanswered else ""
        level = logging.WARNING if report.lost else logging.INFO
        logger.log(level, "spans of %s were carried over to documents that changed: %s%s", part.title, told, left)
    return report


def _held_against(part: Any, truth: Sequence[TokenLevelGroundTruth], corpus: Corpus) -> Sequence[TokenLevelGroundTruth]:
    if isinstance(part, FileTruth):
        return check_against_corpus(truth, corpus, part.path)
    try:
        return check_against_corpus(truth, corpus)
    except GroundTruthError as error:
        drifted = documents_that_no_longer_match(truth, corpus)
        advice = "; rag-eval run --reanchor carries spans over to documents that have changed" if drifted else ""
        raise GroundTruthError(f"{part.title}, {error}{advice}") from None


def _check_answerable(truth: TruthTables, title: str) -> None:
    if all(truth.queries.column("unanswerable").to_pylist()):
        raise GroundTruthError(f"every query of {title} is declared unanswerable: there is nothing to score")


@step(version=1, write=write_truth)
def join_ground_truth(
    truth: Sequence[TruthTables], titles: Sequence[str], evaluation_type: EvaluationType
) -> tuple[TruthTables, Effort]:
    """Join what several sources gave, each query once; what has no origin gets the title of its source."""
    read = [truth_from_tables(one, TRUTH_KINDS[evaluation_type]) for one in truth]
    joined = truth_to_tables(join_truth(list(zip(titles, read, strict=True))))
    _check_answerable(joined, " and ".join(titles))
    count = joined.queries.num_rows
    return joined, Effort.of(count, "queries")


@step(version=2, write=write_truth)
def add_copies(truth: TruthTables, documents: Shards, copies: Copies) -> tuple[TruthTables, Effort]:
    """Add to each span of the truth its copies in the documents, as alternatives."""
    every = list(StoredDocuments(documents).values())
    found = credit_copies(truth_from_tables(truth, TokenLevelGroundTruth), every, copies)
    count = truth.queries.num_rows
    return truth_to_tables(found), Effort.of(count, "queries")


@step(version=1, write=as_table("copies"))
def find_copies(documents: pa.Table, truth: TruthTables) -> tuple[pa.Table, Effort]:
    """Find where the texts of the ground truth are in the documents of a shard, to the letter."""
    texts = pc.unique(truth.answers.column("text")).to_pylist()
    places = places_of_texts(texts, documents_from_table(documents))
    columns = {name: [getattr(one, name) for one in places] for name in ("doc_id", "start", "end", "text")}
    return pa.table(columns, COPIES), Effort.of(len(texts), "texts")


@step(version=1, write=write_truth)
def join_copies(truth: TruthTables, found: Shards) -> tuple[TruthTables, Effort]:
    """Add to each span of the truth its copies in all shards, as alternatives."""
    places = [(CharacterSpan(**one), COPY) for shard in found for one in shard.to_pylist()]
    credited = with_copies(truth_from_tables(truth, TokenLevelGroundTruth), places)
    count = truth.queries.num_rows
    return truth_to_tables(credited), Effort.of(count, "queries")


def document_versions(workspace: Workspace, doc_ids: Collection[DocumentId]) -> dict[DocumentId, list[str]]:
    """Return the texts that documents had in the runs of a workspace, the last used first, each once.

    A workspace that does not exist has none. Tables that are gone, altered or of another shape are skipped.
    """
    folder = workspace.root / "tables" / "documents"
    workspace.fetch_missing(folder)
    paths = [path for path in folder.glob("*.arrow") if path.is_file()]
    wanted = pa.array(sorted(doc_ids), pa.string())
    found: dict[DocumentId, list[str]] = {}
    for path in sorted(paths, key=lambda path: (-path.stat().st_mtime_ns, path.name)):
        try:
            table = read_table(path)
            documents = documents_from_table(table.filter(pc.is_in(table.column("doc_id"), wanted)))
        except (OSError, KeyError, pa.ArrowException, ArtifactError, TableError):
            continue
        for document in documents:
            versions = found.setdefault(document.id, [])
            if document.content not in versions:
                versions.append(document.content)
    return found


def reanchor_for_run(
    workspace: Workspace | None, truth: Sequence[TokenLevelGroundTruth], corpus: Corpus
) -> ReanchorReport:
    """Carry ground truth over to the corpus by the workspace's versions; raises ``GroundTruthError`` if all is lost."""
    drifted = documents_that_no_longer_match(truth, corpus)
    report = reanchor(truth, corpus, document_versions(workspace, drifted) if workspace and drifted else None)
    check_not_empty(report)
    return report
