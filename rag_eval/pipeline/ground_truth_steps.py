"""Run the steps of ground truth: load, pull or generate each source, join the sources, and credit copies.

Spans are checked against the documents, or re-anchored in them using earlier versions in the workspace.
"""

import functools
import logging
import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import InstanceOf

from rag_eval.errors import ArtifactError, GroundTruthError, ServiceError, TableError, is_outage
from rag_eval.formatting import counted
from rag_eval.ground_truth.check import check_against_corpus
from rag_eval.ground_truth.copies import places_of_texts, with_copies
from rag_eval.ground_truth.drift import ReanchorReport, check_not_empty, documents_that_no_longer_match, reanchor
from rag_eval.ground_truth.sources import FileTruth, Observed, Reading, Surroundings, join_truth
from rag_eval.ground_truth.truth_files import read_truth, truth_text
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


@runtime_checkable
class TruthPart(Protocol):
    """A source of ground truth as listed in a benchmark file."""

    @property
    def title(self) -> str: ...
    def observe(self, level: EvaluationType) -> Observed: ...
    def read(
        self, observed: Observed, corpus: Callable[[], Corpus], level: EvaluationType, around: Surroundings
    ) -> Reading: ...


class Observation(Frozen):
    """The observed state of a source of ground truth, with its content."""

    source: InstanceOf[TruthPart]
    level: EvaluationType
    found: InstanceOf[Observed]

    @property
    def digest(self) -> str:
        return self.found.digest

    @property
    def key_data(self) -> str:
        """Return the part of it that goes into a cache key."""
        return self.digest

    @property
    def is_cacheable(self) -> bool:
        """Return whether the digest determines the ground truth, which is not so if reading the source adds to it."""
        return not getattr(self.source, "grows", False)

    @classmethod
    def of(cls, source: TruthPart, level: EvaluationType) -> "Observation":
        """Observe a source."""
        return cls(source=source, level=level, found=source.observe(level))


def observe(workspace: Workspace, source: TruthPart, level: EvaluationType) -> Observation:
    """Observe a source, and store in the workspace what was pulled from a service.

    If the service cannot be reached, use what was pulled last, and log that. Raises like ``source.observe``: on a
    refused request, or on an outage before anything was pulled.
    """
    path = pulled_truth(workspace, source)
    try:
        observation = Observation.of(source, level)
    except ServiceError as error:
        if not is_outage(error) or not workspace.fetch_newest(path).is_file():
            raise
        truth = read_truth(path, level)
        logger.warning("%s: using the questions that were pulled last: %s", error, path)
        return Observation(source=source, level=level, found=Observed(data_sha256(truth_text(truth)), truth))
    if observation.found.truth is not None:
        text = truth_text(observation.found.truth).encode()
        if not workspace.fetch_newest(path).is_file() or path.read_bytes() != text:
            workspace.write_file(path, text)
    return observation


def pulled_truth(workspace: Workspace, source: TruthPart) -> Path:
    """Return the file in a workspace with the ground truth last pulled from a source."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", source.title).strip("-.")[:80]
    unique = name if name == source.title.replace(" ", "-", 1) else f"{name}-{text_sha256(source.title)[:8]}"
    return workspace.root / "truth" / f"{unique}.jsonl"


def truth_file(workspace: Workspace, source: TruthPart) -> Path | None:
    """Return the file with the questions of a source, to read and review them, or None."""
    file = getattr(source, "path", None) or getattr(source, "file", None)
    path = Path(file) if file is not None else pulled_truth(workspace, source)
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
    """Read the ground truth of one source, and check its spans against the documents or re-anchor them.

    ``alone`` means that the benchmark has no other source.
    """
    part, corpus = source.source, functools.cache(lambda: Corpus(list(StoredDocuments(documents).values())))
    reading = part.read(source.found, corpus, evaluation_type, _surroundings(workspace, part))
    truth: list[Any] = list(reading.truth)
    lost = 0
    if evaluation_type == "token-level":
        if reanchor:
            report = _reanchored(workspace, part, truth, corpus())
            truth, lost = list(report.truth), report.counts["lost"]
        named = {span.doc_id for item in truth for group in (*item.groups, judged_spans(item.query)) for span in group}
        used_documents = list(StoredDocuments(documents, pa.array(sorted(named), pa.string())).values())
        try:
            truth = list(_checked(part, truth, Corpus(used_documents) if used_documents else corpus()))
        except GroundTruthError:
            truth = list(_checked(part, truth, corpus()))  # for an error message that knows all documents
    tables = truth_to_tables(truth)
    if alone:
        _check_answerable(tables, part.title)
    count = tables.queries.num_rows
    fresh = min(reading.fresh, count)  # without the questions whose text is no longer in the documents
    # Unfinished, because a lost span may be found once the workspace has the matching version of the document.
    return tables, Effort(
        fresh=fresh, total=count, unit="queries", tokens=reading.tokens, cost=reading.cost, unfinished=lost
    )


def _surroundings(workspace: Workspace | None, part: TruthPart) -> Surroundings:
    return Surroundings(
        storage=Storage(Path(".rag-eval")) if workspace is None else workspace.storage,
        carry=lambda truth, corpus: _reanchored(workspace, part, truth, corpus),
        run=None if workspace is None else workspace.begun,
    )


def _reanchored(
    workspace: Workspace | None, part: TruthPart, truth: Sequence[TokenLevelGroundTruth], corpus: Corpus
) -> ReanchorReport:
    """Re-anchor spans in the documents, and log how many changed."""
    report = reanchor_for_run(workspace, truth, corpus)
    if not report.is_unchanged:
        counts = ", ".join(f"{count:,} {status}" for status, count in report.counts.items() if count)
        left_out = f"; {counted(len(report.unanswered), 'questions')} left out" if report.unanswered else ""
        level = logging.WARNING if report.lost else logging.INFO
        logger.log(
            level, "spans of %s were moved to their text in changed documents: %s%s", part.title, counts, left_out
        )
    return report


def _checked(
    part: TruthPart, truth: Sequence[TokenLevelGroundTruth], corpus: Corpus
) -> Sequence[TokenLevelGroundTruth]:
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
    """Join the ground truth of several sources, each query once; a missing origin becomes the title of the source."""
    read = [truth_from_tables(tables, TRUTH_KINDS[evaluation_type]) for tables in truth]
    joined = truth_to_tables(join_truth(list(zip(titles, read, strict=True))))
    _check_answerable(joined, " and ".join(titles))
    return joined, Effort.of(joined.queries.num_rows, "queries")


@step(version=1, write=as_table("copies"))
def find_copies(documents: pa.Table, truth: TruthTables) -> tuple[pa.Table, Effort]:
    """Find the exact copies of the texts of the ground truth in the documents of a shard."""
    texts = pc.unique(truth.answers.column("text")).to_pylist()
    places = places_of_texts(texts, documents_from_table(documents))
    columns = {name: [getattr(place, name) for place in places] for name in ("doc_id", "start", "end", "text")}
    return pa.table(columns, COPIES), Effort.of(len(texts), "texts")


@step(version=1, write=write_truth)
def join_copies(truth: TruthTables, copies: Shards) -> tuple[TruthTables, Effort]:
    """Add to each span of the truth its copies in all shards, as alternatives."""
    places = [CharacterSpan(**row) for shard in copies for row in shard.to_pylist()]
    credited = with_copies(truth_from_tables(truth, TokenLevelGroundTruth), places)
    return truth_to_tables(credited), Effort.of(truth.queries.num_rows, "queries")


def document_versions(workspace: Workspace, doc_ids: Collection[DocumentId]) -> dict[DocumentId, list[str]]:
    """Return the distinct texts of documents in the runs of a workspace, most recently used first.

    Missing and damaged tables are skipped.
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
    """Re-anchor ground truth in the corpus by the workspace's versions; raises ``GroundTruthError`` if all is lost."""
    drifted = documents_that_no_longer_match(truth, corpus)
    report = reanchor(truth, corpus, document_versions(workspace, drifted) if workspace and drifted else None)
    check_not_empty(report)
    return report
