"""Run the steps from files to vectors: load the corpus, chunk it, add context to the chunks, embed them.

Each works on one shard of the documents. ``StoredDocuments`` and ``read_chunks`` read their results back.
"""

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, InstanceOf

from rag_eval.chunking.chunker import Chunker, PositionAwareChunker
from rag_eval.chunking.context import ChunkContext, CutDocument
from rag_eval.documents import FILE_DIGEST
from rag_eval.documents.reading import LeftOut, Loaders
from rag_eval.embedding.cache import CachedEmbedder
from rag_eval.embedding.embedder import Embedder, text_vectors
from rag_eval.errors import ArtifactError
from rag_eval.ground_truth.check import check_chunk_ids, check_chunker
from rag_eval.llm.writing import Answers
from rag_eval.metrics.metric import DEFAULT_ENCODING
from rag_eval.parts import PartRecord, fresh
from rag_eval.pipeline.caches import cached_embedder, model_answers, spent
from rag_eval.pipeline.document_caches import cut_documents, file_loading, stored_boxes
from rag_eval.pipeline.hits import found_chunks
from rag_eval.pipeline.references import ChunksRef, Effort, Frozen, TableRef
from rag_eval.pipeline.step import Shards, as_table, step
from rag_eval.pipeline.workspace import Workspace
from rag_eval.retrieval.retriever import in_place_order, usable_chunker, without_positions
from rag_eval.storage.files import contents_sha256, file_sha256, files_sha256, kept_sha256, matching_files, unreadable
from rag_eval.tables import (
    CHUNKS,
    DOCUMENTS,
    PLACE,
    TruthTables,
    chunks_from_table,
    chunks_to_table,
    documents_from_table,
    documents_to_table,
    embeddings_schema,
    file_digests,
    has_places,
    schema_of,
    searched_texts,
    truth_from_tables,
)
from rag_eval.tokens import count_tokens
from rag_eval.types.chunks import PositionAwareChunk
from rag_eval.types.documents import Corpus, Document
from rag_eval.types.evidence import ChunkLevelGroundTruth
from rag_eval.types.ids import DocumentId, EvaluationType, text_sha256

logger = logging.getLogger("rag_eval.pipeline")

ROWS_AT_ONCE = 16_384
"""Number of chunks in memory with their vectors; another number gives other files with the same vectors."""

SHARD_BYTES = 2**21
"""Approximate size of a shard, up to ``MOST_SHARDS``, because an edit recomputes one shard."""

MOST_SHARDS = 64


class CorpusSource(Frozen):
    """A folder of documents outside the workspace, or a shard of it, with the digest of its files."""

    digest: str
    folder: Path
    glob: str | list[str]
    loaders: dict[str, PartRecord] = Field(default_factory=dict)
    """The loaders by suffix or pattern; other files are read as text."""
    reading: InstanceOf[Loaders] = Field(default_factory=Loaders, exclude=True, repr=False)
    names: list[str] | None = Field(default=None, exclude=True)
    """The names of the files of a shard; None for all files of the folder."""
    corpus: str | None = Field(default=None, exclude=True)
    """The digest of the whole folder, if this is a shard."""

    @property
    def key_data(self) -> dict[str, object]:
        """Return the part of it that goes into a cache key."""
        return {"digest": self.digest, "loaders": {chosen: record.digest for chosen, record in self.loaders.items()}}

    @classmethod
    def of(cls, folder: Path, glob: str | list[str], loaders: Mapping[str, object] | None = None) -> "CorpusSource":
        """Return the current state of the folder; raises ``CorpusError`` if it cannot be read or no file matches."""
        paths, reading = matching_files(folder, glob), Loaders(loaders)
        used = reading.used(path.relative_to(folder).as_posix() for path in paths)
        try:
            digest = files_sha256(folder, paths, kept_sha256)
        except OSError as error:
            raise unreadable(Path(error.filename or folder), error) from None
        return cls(folder=folder, glob=glob, digest=digest, loaders=used, reading=reading)

    def shards(self, count: int | None = None) -> "list[CorpusSource]":
        """Divide the files by the hash of their names into at most this many shards, without empty ones.

        The default number depends on the size of the corpus. Doubling the number splits each shard in two.
        """
        paths = matching_files(self.folder, self.glob)
        sizes = {path.relative_to(self.folder).as_posix(): path.stat().st_size for path in paths}
        count = count or default_shards(sum(sizes.values()))
        members: dict[int, list[str]] = {}
        for doc_id in sizes:
            members.setdefault(int(text_sha256(doc_id)[:16], 16) % count, []).append(doc_id)
        return [
            self.model_copy(
                update={
                    "names": members[shard],
                    "digest": files_sha256(self.folder, [self.folder / name for name in members[shard]], kept_sha256),
                    "loaders": self.reading.used(members[shard]),
                    "corpus": self.digest,
                }
            )
            for shard in sorted(members)
        ]

    @classmethod
    def joined(cls, shards: "Sequence[CorpusSource]") -> "CorpusSource":
        """Return the folder that was divided into these shards."""
        loaders = {chosen: record for shard in shards for chosen, record in shard.loaders.items()}
        digest = shards[0].corpus or shards[0].digest
        return shards[0].model_copy(update={"names": None, "digest": digest, "loaders": loaders, "corpus": None})


def default_shards(size: int) -> int:
    """Return the number of shards for a corpus of this size in bytes: a power of two, so that it rarely changes."""
    return int(2 ** min(math.log2(MOST_SHARDS), max(0, round(math.log2(max(1, size) / SHARD_BYTES)))))


@step(version=7, write=as_table("documents"))
def load_corpus(source: CorpusSource, workspace: Workspace | None = None) -> tuple[pa.Table, Effort]:
    """Read the documents of one shard of a folder."""
    names, left_out = source.names or [], LeftOut()
    with file_loading(workspace) as load:
        files = left_out.read(source.folder, [source.folder / name for name in names], source.reading, load)
        read = [Document(DocumentId(name), file.text, file.metadata) for name, file in files]
    if len(left_out):
        logger.warning(str(left_out))
    table = documents_to_table(Corpus(read)) if read else DOCUMENTS.empty_table()
    known = file_digests(table)
    digests = ((name, known.get(name) or file_sha256(source.folder / name)) for name in names)
    if contents_sha256(digests) != source.digest:
        raise ArtifactError(f"the corpus folder {str(source.folder)!r} changed while it was read: run again")
    return table, Effort.of(len(names), "documents", skipped=len(left_out), unfinished=left_out.unfinished)


def chunk_lengths(chunks: pa.Table) -> pa.ChunkedArray:
    """Return the number of characters of each chunk."""
    if has_places(chunks):
        return pc.subtract(chunks.column("end"), chunks.column("start"))
    return pc.utf8_length(chunks.column("content"))


def write_chunks(workspace: Workspace, chunks: pa.Table) -> ChunksRef:
    """Write a shard of chunks, and return its reference."""
    lengths = chunk_lengths(chunks)
    extremes = pc.min_max(lengths).as_py() if len(lengths) else {"min": 0, "max": 0}
    return ChunksRef(
        table=workspace.write_table("chunks", chunks),
        characters=pc.sum(lengths).as_py() or 0,
        shortest=extremes["min"],
        longest=extremes["max"],
    )


@step(version=2, write=write_chunks)
def chunk(
    documents: pa.Table,
    chunker: Chunker | PositionAwareChunker,
    chunk_truth: TruthTables | None = None,
    workspace: Workspace | None = None,
) -> tuple[pa.Table, Effort]:
    """Cut every document of a shard.

    With ``chunk_truth``, for chunk-level evaluation, the chunks have no positions, and all documents must be in this
    shard. Raises ``GroundTruthError`` if that ground truth was made with another chunker or on other documents.
    """
    read = documents_from_table(documents)
    name = usable_chunker(chunker, "token-level" if chunk_truth is None else "chunk-level").name
    chunks, effort = cut_documents(workspace, chunker, name, read)
    if chunk_truth is None:
        return chunks_to_table(in_place_order(chunks)), effort
    truth = truth_from_tables(chunk_truth, ChunkLevelGroundTruth)
    check_chunker(truth, name)
    bare_chunks = without_positions(chunks)
    check_chunk_ids(truth, list(bare_chunks))
    return chunks_to_table(bare_chunks), effort


@step(version=1, write=write_chunks)
def add_context(
    chunks: pa.Table, documents: pa.Table, context: ChunkContext, workspace: Workspace | None = None
) -> tuple[pa.Table, Effort]:
    """Add the searched text to the chunks of a shard; positions, texts and ids stay the same."""
    read = {document.id: document for document in documents_from_table(documents)}
    column = CHUNKS.get_field_index("searched")
    with model_answers(workspace) as answers:
        cut = []
        for doc_id, group in groupby(chunks_from_table(chunks), key=lambda chunk: chunk.doc_id):
            of_document = list(group)
            places = [(one.start, one.end) if isinstance(one, PositionAwareChunk) else None for one in of_document]
            cut.append(CutDocument(read[doc_id], [one.content for one in of_document], places, of_document))
        texts = [text for document in context.searched(cut, answers) for text in document]
    with_texts = chunks.set_column(column, CHUNKS.field(column), pa.array(texts, pa.large_string()))
    count = with_texts.num_rows
    if not answers.total:
        return with_texts, Effort.of(count, "chunks")
    return with_texts, effort_of_answers(
        answers, count, "chunks", "chunks are searched without context, because the model gave no usable one"
    )


def effort_of_answers(answers: Answers, count: int, unit: str, fallback: str, seconds: float = 0.0) -> Effort:
    """Return the effort of asking models about ``count`` items.

    ``fallback`` describes what replaces a missing answer; ``seconds`` is the time of the answers that were not cached.
    """
    seconds_an_answer = seconds / answers.fresh if answers.fresh else 0.0
    return Effort(
        fresh=min(answers.fresh, count),
        total=count,
        unit=unit,
        tokens=answers.tokens,
        cost=answers.cost,
        query_seconds=round(seconds_an_answer * count, 6),
        fallbacks={fallback: answers.missing} if answers.missing else {},
    )


@step(version=2, write=as_table("embeddings"))
def embed(
    chunks: pa.Table, embedder: Embedder, workspace: Workspace | None = None
) -> tuple[Iterator[pa.Table], Callable[[], Effort]]:
    """Embed the searched texts of a shard, each once; in a workspace, no text is embedded twice."""
    contents, efforts = searched_texts(chunks), list[Effort]()

    def vectors() -> Iterator[pa.Table]:
        """Yield tables of embeddings, each text once; at least one table, even if it is empty."""
        seen: set[str] = set()
        used = cached_embedder(workspace, embedder)
        for begin in range(0, max(1, len(contents)), ROWS_AT_ONCE):
            part = contents.slice(begin, ROWS_AT_ONCE).to_pylist()
            texts = {digest: text for text in part if (digest := text_sha256(text)) not in seen}
            seen.update(texts)
            found = text_vectors(used, list(texts.values()))
            schema = embeddings_schema(found.shape[1])
            column = pa.FixedSizeListArray.from_arrays(pa.array(found.reshape(-1)), type=schema.field("vector").type)
            yield pa.Table.from_arrays([pa.array(texts, pa.string()), column], schema=schema)
        fresh = used.statistics.misses if isinstance(used, CachedEmbedder) else len(seen)
        efforts.append(Effort(fresh=fresh, total=len(seen), unit="texts", **spent(used)))

    return vectors(), lambda: efforts[0]


TEXTS = schema_of(text_sha256=pa.string(), tokens=pa.int64())


@step(version=1, write=as_table("texts"), packages=("tiktoken",))
def count_texts(chunks: pa.Table, embedder: Embedder) -> tuple[pa.Table, Effort]:
    """Count the tokens that an embedder would read of a shard, each text once, without embedding it."""
    texts = {text_sha256(text): text for text in searched_texts(chunks).to_pylist()}
    read, count = list(texts.values()), getattr(fresh(embedder), "count_tokens", None)
    tokens = count(read) if count is not None and read else None
    tokens = [count_tokens(text, DEFAULT_ENCODING) for text in read] if tokens is None else tokens
    table = pa.table([pa.array(list(texts), pa.string()), pa.array(tokens, pa.int64())], schema=TEXTS)
    return table, Effort.of(table.num_rows, "texts")


def texts_left(workspace: Workspace, embedder: Embedder, texts: Mapping[str, int]) -> Mapping[str, int]:
    """Return the texts, by digest, whose vectors are not cached in a workspace."""
    cached = cached_embedder(workspace, embedder)
    return cached.lacking(texts) if isinstance(cached, CachedEmbedder) else texts


def read_chunks(
    workspace: Workspace,
    shards: Sequence[TableRef],
    level: EvaluationType,
    hits: Sequence[pa.Table] = (),
    doc_ids: pa.Array | None = None,
) -> pa.Table:
    """Return chunks, without their texts if they have positions.

    Chunks with positions can be limited to those of hits and of some documents. Raises ``ArtifactError``.
    """
    if not shards:
        return CHUNKS.empty_table()
    if level == "chunk-level":
        return workspace.read_tables(shards)
    bare = [_without_texts(workspace.read_table(shard)) for shard in shards]
    if not hits:
        return pa.concat_tables(bare)
    places = pa.concat_tables([hit.select(list(PLACE)) for hit in hits])
    return found_chunks(bare, places, doc_ids)


def _without_texts(table: pa.Table) -> pa.Table:
    empty = {"content": "", "searched": None, "metadata": "{}"}
    for name, value in empty.items():
        column = pa.repeat(pa.scalar(value, table.schema.field(name).type), table.num_rows)
        table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), column)
    return table


MOST_CHARACTERS = 2**24
"""Number of characters of documents that stay in memory."""


class StoredDocuments(Mapping[str, Document]):
    """The documents of all shards, or some of them, by id, in the order of their ids.

    A document is read on first use, and the most recently used stay in memory. With a workspace, documents have their
    boxes.
    """

    def __init__(self, shards: Shards, doc_ids: pa.Array | None = None, workspace: Workspace | None = None) -> None:
        self._workspace = workspace
        self._rows: dict[str, tuple[pa.Table, int]] = {}
        self.digests: dict[str, str] = {}
        """The sha256 of each document."""
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
                cache, storage = self._workspace.root / "cache", self._workspace.storage
                fetch = partial(stored_boxes, cache, storage, file, self.digests[doc_id])
                document = replace(document, box_map=fetch)
            while self._read and sum(len(document.content) for document in self._read.values()) > MOST_CHARACTERS:
                del self._read[next(iter(self._read))]
            self._read[doc_id] = document
        return self._read[doc_id]

    def __contains__(self, doc_id: object) -> bool:
        return doc_id in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)
