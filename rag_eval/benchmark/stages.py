"""The stages of an evaluation: functions from tables and one part to a table, and what making it took.

They write nothing; ``stage`` says how a workspace keeps what they make. Tables of documents, chunks and
vectors come as lists of shards, whose rows stand in the order of the documents.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rag_eval.benchmark.caches import CachedReranker, boxes_key, kept_boxes
from rag_eval.benchmark.hits import answers_table, found_chunks, hits_of, hits_table, rerank_table
from rag_eval.benchmark.records import made_once
from rag_eval.benchmark.references import CorpusSource, Effort, TableRef
from rag_eval.benchmark.stage import Context, Shards, spent, stage
from rag_eval.benchmark.workspace import Workspace
from rag_eval.chunking.context import CutDocument
from rag_eval.disk.files import contents_sha256, file_sha256, matching_files
from rag_eval.documents import FILE_DIGEST
from rag_eval.documents.reading import LeftOut
from rag_eval.embedding.cache import CachedEmbedder
from rag_eval.embedding.embedder import text_vectors
from rag_eval.errors import ArtifactError, EmptyCorpusError
from rag_eval.ground_truth.check import check_chunk_ids, check_chunker
from rag_eval.llm.writing import Answers
from rag_eval.metrics.score_tables import score_passages
from rag_eval.parts import label
from rag_eval.progress import followed
from rag_eval.retrieval.retriever import Retriever, checked_hits, in_place_order, without_positions
from rag_eval.retrieval.systems import AnswerReader
from rag_eval.tables import (
    CHUNKS,
    DOCUMENTS,
    PASSAGES,
    PLACE,
    SEARCHES,
    TruthTables,
    as_passages,
    as_searches,
    chunks_from_table,
    chunks_to_table,
    documents_from_table,
    documents_to_table,
    embeddings_schema,
    file_digests,
    has_places,
    queries_from_table,
    searched_texts,
    table_of,
    table_with,
    truth_from_tables,
)
from rag_eval.types.chunks import Chunk, PositionAwareChunk
from rag_eval.types.documents import Corpus, Document
from rag_eval.types.ground_truth import ChunkLevelGroundTruth
from rag_eval.types.ids import DocumentId, EvaluationType, text_sha256

logger = logging.getLogger("rag_eval.benchmark")

ROWS_AT_ONCE = 16_384
"""How many chunks are in memory with their vectors; another number makes other files of the same vectors."""


LARGE_CORPUS = 2**26
"""From so many bytes on, a corpus is divided into ``MANY_SHARDS``."""

MANY_SHARDS = 64
LARGEST_DOCUMENT = 2**20
"""A larger document that is four times a shard as well is named."""


def _shards_of(source: CorpusSource, shards: int | None = None) -> list[list[str]]:
    """The names of the files of each shard, none of which is empty."""
    if source.names is not None:
        return [source.names]
    paths = matching_files(source.folder, source.glob)
    sizes = {path.relative_to(source.folder).as_posix(): path.stat().st_size for path in paths}
    count = shards or (MANY_SHARDS if sum(sizes.values()) >= LARGE_CORPUS else 1)
    members: dict[int, list[str]] = {}
    for doc_id in sizes:
        members.setdefault(int(text_sha256(doc_id)[:16], 16) % count, []).append(doc_id)
    largest = max(sizes, key=sizes.__getitem__)
    if count > 1 and sizes[largest] > max(LARGEST_DOCUMENT, 4 * sum(sizes.values()) / count):
        logger.warning(
            "the document %r has %s bytes, and a document is never divided between shards: its shard needs more time "
            "and memory than the others",
            largest,
            f"{sizes[largest]:,}",
        )
    return [members[shard] for shard in sorted(members)]


def _divided(source: CorpusSource, shards: int | None = None) -> list[tuple[Any, ...]]:
    return [(source.part(names),) for names in _shards_of(source, shards)]


@stage("documents", version=6, makes=list[TableRef], divided=_divided)
def load_corpus(
    source: CorpusSource, shards: int | None = None, *, context: Context
) -> tuple[list[Iterator[pa.Table]], Callable[[], Effort]]:
    """Read the documents of a folder, divided into shards by their ids; none is without files.

    Twice as many shards are the halves of these.
    """
    digests: dict[str, str] = {}
    left_out = LeftOut()

    def read(doc_ids: Sequence[str]) -> Iterator[pa.Table]:
        paths, before = [source.folder / one for one in doc_ids], len(left_out)
        with context.loading() as load:
            found = left_out.read(source.folder, paths, source.reading, load)
            read = [Document(DocumentId(name), one.text, one.metadata) for name, one in found]
        if len(left_out) > before:
            logger.warning(str(left_out))
        table = documents_to_table(Corpus(read)) if read else DOCUMENTS.empty_table()
        known = file_digests(table)
        digests.update({name: known.get(name) or file_sha256(source.folder / name) for name in doc_ids})
        yield table

    def effort() -> Effort:
        found = source.names or [
            path.relative_to(source.folder).as_posix() for path in matching_files(source.folder, source.glob)
        ]
        if contents_sha256((name, digests.get(name, "")) for name in found) != source.digest:
            raise ArtifactError(f"the corpus folder {str(source.folder)!r} changed while it was read: run again")
        if source.names is None and len(left_out) == len(digests):
            raise EmptyCorpusError(f"no document can be read, {left_out}")
        return Effort.of(len(digests), "documents", skipped=len(left_out), unfinished=left_out.unfinished)

    return [read(one) for one in _shards_of(source, shards)], effort


@stage("chunks", version=2, makes=list[TableRef], by_shard=True)
def chunk(
    documents: Shards, chunker: Any, chunk_truth: TruthTables | None, *, context: Context
) -> tuple[list[pa.Table], Effort]:
    """Cut every document.

    With ``chunk_truth``, for chunk-level evaluation, the chunks have no places. Raises ``GroundTruthError`` on truth
    that was made with another chunker, or on other documents, all of which have to be given then.
    """
    read = [documents_from_table(shard) for shard in documents]
    truth = None if chunk_truth is None else truth_from_tables(chunk_truth, ChunkLevelGroundTruth)
    cuts = [context.cut(chunker, shard, "token-level" if truth is None else "chunk-level") for shard in read]
    if truth is None:
        chunks: list[Sequence[Chunk | PositionAwareChunk]] = [in_place_order(one.chunks) for one in cuts]
    else:
        check_chunker(truth, cuts[0].chunker)
        chunks = [without_positions(one.chunks) for one in cuts]
        check_chunk_ids(truth, [one for shard in chunks for one in shard])
    return [chunks_to_table(shard) for shard in chunks], Effort.total_of([one.effort for one in cuts])


@stage("places", version=1, makes=list[TableRef], by_shard=True)
def places(chunks: Shards, *, context: Context) -> tuple[list[pa.Table], Effort]:
    """The chunks without their texts, which the documents have: all that reports need, and a fraction of the bytes."""
    bare = [_without_texts(table) for table in chunks]
    return bare, Effort.of(len(bare), "tables")


def _without_texts(table: pa.Table) -> pa.Table:
    empty = {"content": "", "searched": None, "metadata": "{}"}
    for name, value in empty.items():
        column = pa.repeat(pa.scalar(value, table.schema.field(name).type), table.num_rows)
        table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), column)
    return table


def read_chunks(
    workspace: Workspace,
    shards: Sequence[TableRef],
    level: EvaluationType,
    hits: Sequence[pa.Table] = (),
    doc_ids: pa.Array | None = None,
) -> pa.Table:
    """Where the chunks are, or the chunks themselves where they have no places; raises ``ArtifactError``.

    Those that have places may be only those of hits, and of the documents named.
    """
    if not shards:
        return CHUNKS.empty_table()
    if level == "chunk-level":
        return workspace.read_tables(shards)
    bare = made_once(workspace, places, list(shards))
    if not hits:
        return workspace.read_tables(bare)
    found = pa.concat_tables([one.select(list(PLACE)) for one in hits])
    return found_chunks([workspace.read_table(one) for one in bare], found, doc_ids)


@stage("chunks", version=1, makes=list[TableRef], by_shard=True)
def contextualise(chunks: Shards, documents: Shards, around: Any, *, context: Context) -> tuple[list[pa.Table], Effort]:
    """The chunks with what is searched of them; their places, texts and ids stay what they are."""
    read = {document.id: document for shard in documents for document in documents_from_table(shard)}
    made, column = [], CHUNKS.get_field_index("searched")
    with context.answers() as answers:
        for shard in chunks:
            cut = [
                CutDocument(read[doc_id], *zip(*rows, strict=True))
                for doc_id, rows in groupby(_with_places(shard), key=lambda row: row[2].doc_id)
            ]
            texts = [text for one in around.searched(cut, answers) for text in one]
            made.append(shard.set_column(column, CHUNKS.field(column), pa.array(texts, pa.large_string())))
    count = sum(shard.num_rows for shard in made)
    return made, _asked(answers, count, "chunks") if answers.total else Effort.of(count, "chunks")


def _with_places(chunks: pa.Table) -> Iterator[tuple[str, tuple[int, int] | None, Any]]:
    for one in chunks_from_table(chunks):
        yield one.content, (one.start, one.end) if isinstance(one, PositionAwareChunk) else None, one


def _asked(answers: Answers, count: int, unit: str, seconds: float = 0.0) -> Effort:
    """What asking models about so many things took; ``seconds`` are those of the answers that were not kept."""
    each = seconds / answers.fresh if answers.fresh else 0.0
    return Effort(
        fresh=min(answers.fresh, count),
        total=count,
        unit=unit,
        tokens=answers.tokens,
        cost=answers.cost,
        query_seconds=round(each * count, 6),
        fallbacks=answers.missing,
    )


@stage("searches", version=1)
def rewrite(queries: pa.Table, rewriter: Any, *, context: Context) -> tuple[pa.Table, Effort]:
    """What is searched for every question, one text or several."""
    ids, questions = (queries.column(name).to_pylist() for name in ("query_id", "text"))
    started = time.perf_counter()
    with context.answers() as answers:
        found = rewriter.searches(questions, answers)
    rows = [(one, variant, text) for one, texts in zip(ids, found, strict=True) for variant, text in enumerate(texts)]
    made = table_of(SEARCHES, rows, ("query_id", "variant", "text"))
    return made, _asked(answers, len(ids), "queries", time.perf_counter() - started)


@stage("embeddings", version=2, makes=list[TableRef], by_shard=True)
def embed(chunks: Shards, embedder: Any, *, context: Context) -> tuple[list[Iterator[pa.Table]], Callable[[], Effort]]:
    """The vectors of what is searched, each text of a shard once; a workspace embeds no text twice."""
    efforts: list[Effort] = []

    def vectors_of(contents: pa.ChunkedArray) -> Iterator[pa.Table]:
        """Embeddings tables of the texts, each text in one of them; at least one table, if an empty one."""
        seen: set[str] = set()
        with context.embedder(embedder) as asked:
            for begin in range(0, max(1, len(contents)), ROWS_AT_ONCE):
                part = contents.slice(begin, ROWS_AT_ONCE).to_pylist()
                texts = {digest: text for text in part if (digest := text_sha256(text)) not in seen}
                seen.update(texts)
                vectors = text_vectors(asked, list(texts.values()))
                schema = embeddings_schema(vectors.shape[1])
                flat = pa.array(vectors.reshape(-1))
                column = pa.FixedSizeListArray.from_arrays(flat, type=schema.field("vector").type)
                yield pa.Table.from_arrays([pa.array(list(texts), pa.string()), column], schema=schema)
        fresh = asked.statistics.misses if isinstance(asked, CachedEmbedder) else len(seen)
        efforts.append(Effort(fresh=fresh, total=len(seen), unit="texts", **spent(asked)))

    return [vectors_of(searched_texts(shard)) for shard in chunks], lambda: Effort.total_of(efforts)


@stage("hits", version=4)
def rerank(
    hits: pa.Table, chunks: Shards, searches: pa.Table, reranker: Any, first: int | None = None, *, context: Context
) -> tuple[pa.Table, Effort]:
    """The ``first`` hits of every search (default: all) in the reranker's order, the others after them."""
    asked, table = as_searches(searches), found_chunks(chunks, hits)
    with context.reranker(reranker) as used:
        if not isinstance(used, CachedReranker):
            return context.answered(asked, lambda some: rerank_table(hits_of(hits, some), table, some, used, first))
        found = rerank_table(hits, table, asked, used, first)
        charged, seconds = spent(used.reranker) if used.fresh else {}, round(used.seconds, 6)
        count = asked.num_rows
        return found, Effort(fresh=used.fresh, total=count, unit="queries", query_seconds=seconds, **charged)


@stage("hits", version=2)
def ask_system(
    documents: Shards, queries: pa.Table, system: Any, level: EvaluationType, depth: int, *, context: Context
) -> tuple[pa.Table, Effort]:
    """What a whole retrieval system finds in the documents, which it is given to index if it takes them.

    A text that is not in the documents keeps its rank. Raises as the system does, and
    ``ConfigurationError`` when it does not keep its word.
    """
    corpus = Corpus(list(StoredDocuments(documents).values()))
    kind = PositionAwareChunk if level == "token-level" else Chunk
    reader = AnswerReader(label(system), corpus.documents)

    def ask(some: pa.Table) -> pa.Table:
        asked = queries_from_table(some)
        if not isinstance(system, Retriever):
            texts = [query.text for query in asked]
            search_many = getattr(system, "search_many", None)
            given = search_many(texts, depth) if search_many else [system.search(one, depth) for one in followed(texts)]
            read = [reader.read_all(one, query.id, depth) for query, one in zip(asked, given, strict=True)]
            return answers_table(level, [query.id for query in asked], read)
        found = checked_hits(system.retrieve(asked, depth), len(asked), system.name, kind)
        return hits_table(level, asked, found, corpus)

    # Timed as in memory, wherever it is: a system is not asked once more for a rehearsal.
    with getattr(system, "turn", None) or nullcontext():
        if hasattr(system, "index"):
            system.index(corpus)
        return Context().answered(queries, ask)


@stage("passages", version=1, packages=("tiktoken",))  # which counts the tokens of limits
def return_passages(
    hits: pa.Table, chunks: Shards, documents: Shards, returns: Any, *, context: Context
) -> tuple[pa.Table, Effort]:
    """What is returned for every hit, at its rank; the hit itself, counted, where that is beyond the limit."""
    doc_ids = pc.unique(hits.column("doc_id"))
    read = StoredDocuments(documents, doc_ids)
    started = time.perf_counter()
    found: dict[str, set[int]] = {}
    for doc_id, ordinal in _columns(hits, "doc_id", "ordinal"):
        found.setdefault(doc_id, set()).add(ordinal)
    own: dict[tuple[str, int], tuple[int, int]] = {}
    returned: dict[str, Any] = {}
    for shard in chunks:
        some = shard.select(list(PLACE)).filter(pc.is_in(shard.column("doc_id"), doc_ids))
        for doc_id, rows in groupby(_columns(some, *PLACE), key=itemgetter(0)):
            places = [(start, end) for _, start, end in rows]
            own |= {(doc_id, ordinal): places[ordinal] for ordinal in found[doc_id]}
            returned[doc_id] = returns.passages(read[doc_id], places, sorted(found[doc_id]))
    asked = list(_columns(hits, "doc_id", "ordinal"))
    given = [returned[doc_id][ordinal] for doc_id, ordinal in asked]
    both = [place or own[hit] for place, hit in zip(given, asked, strict=True)]
    starts, ends = zip(*both, strict=True) if both else ((), ())
    ranks = hits.column("rank")
    columns = {name: hits.column(name) for name in ("query_id", "rank", "doc_id")} | {
        "start": pa.array(starts, pa.int64()),
        "end": pa.array(ends, pa.int64()),
        "hit_ranks": pa.array([[rank] for rank in ranks.to_pylist()], PASSAGES.field("hit_ranks").type),
    }
    effort = Effort(
        fresh=hits.num_rows,
        total=hits.num_rows,
        unit="hits",
        query_seconds=round(time.perf_counter() - started, 6),
        fallbacks=given.count(None),
    )
    return table_with(PASSAGES, columns, hits.num_rows), effort


MOST_CHARACTERS = 2**24
"""How much of the documents stays in memory."""


class StoredDocuments(Mapping[str, Document]):
    """The documents of all shards, or some of them, by id, in the order of their ids.

    Each is read when it is asked for, and the last stay; of a workspace, they know where on their pages texts are.
    """

    def __init__(self, shards: Shards, doc_ids: pa.Array | None = None, workspace: Workspace | None = None) -> None:
        self._workspace = workspace
        self._rows: dict[str, tuple[pa.Table, int]] = {}
        self.digests: dict[str, str] = {}
        """The sha256 of each."""
        for shard in shards:
            ids, digests = shard.column("doc_id"), shard.column("sha256")
            rows = range(len(ids)) if doc_ids is None else pc.indices_nonzero(pc.is_in(ids, doc_ids)).to_pylist()
            self._rows |= {ids[row].as_py(): (shard, row) for row in rows}
            self.digests |= {ids[row].as_py(): digests[row].as_py() for row in rows}
        if len(shards) > 1:
            self._rows = dict(sorted(self._rows.items(), key=itemgetter(0)))
        self._read: dict[str, Document] = {}

    def __getitem__(self, doc_id: str) -> Document:
        if doc_id not in self._read:
            shard, row = self._rows[doc_id]
            (document,) = documents_from_table(shard.slice(row, 1))
            file = document.metadata.get(FILE_DIGEST)
            if self._workspace is not None and isinstance(file, str):
                key = boxes_key(file, self.digests[doc_id])
                fetch = partial(kept_boxes, self._workspace.root / "cache", self._workspace.storage, key)
                document = replace(document, box_map=fetch)
            while self._read and sum(len(one.content) for one in self._read.values()) > MOST_CHARACTERS:
                del self._read[next(iter(self._read))]
            self._read[doc_id] = document
        return self._read[doc_id]

    def __contains__(self, doc_id: object) -> bool:
        return doc_id in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def _columns(table: pa.Table, *names: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(table.column(name).to_pylist() for name in names), strict=True)


@stage("scores", version=4, packages=("tiktoken",))  # which counts the tokens of budgets and contexts
def score(
    passages: pa.Table,
    truth: TruthTables,
    documents: Shards,
    chunks: Shards,
    metrics: Any,
    ks: list[int],
    *,
    context: Context,
) -> tuple[pa.Table, Effort]:
    """Score every answerable query by every metric at every k; hits stand for passages that are no more than they."""
    found, count = as_passages(passages), truth.queries.num_rows
    effort = Effort.of(count, "queries")
    table = pa.concat_tables(chunks) if chunks else None
    with context.token_counts() as counts:
        if has_places(truth.answers):
            named = [one.column("doc_id").unique() for one in (found, truth.answers)]
            read = StoredDocuments(documents, pa.concat_arrays(named).drop_null())
            scored = score_passages(
                "token-level", found, truth, metrics, ks, documents=read, chunks=table, count=counts
            )
            return scored, effort
        # A whole system has no chunks of ours: its hits bring their texts.
        given = CHUNKS.empty_table() if table is None else table
        return score_passages("chunk-level", found, truth, metrics, ks, chunks=given, count=counts), effort
