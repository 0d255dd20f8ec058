"""What a reranker that asks a service has answered, kept by what it was asked: no question is paid for twice."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from rag_eval.digests import data_sha256
from rag_eval.pipeline.row_files import Row, RowFiles
from rag_eval.retrieval.base import C, Reranker, place_of
from rag_eval.retrieval.checks import reranked

RANKINGS = pa.schema(
    [
        pa.field("asked", pa.string(), nullable=False),
        pa.field("order", pa.list_(pa.int64()), nullable=False),
        pa.field("seconds", pa.float64(), nullable=False),
        pa.field("made", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)
KEEP_EVERY = 50


class KeptRankings:
    """A reranker that asks only what it was not asked before: same name, same order.

    ``fresh`` is how many questions it has asked, ``seconds`` how long all answers took when they were given.
    """

    def __init__(self, reranker: Reranker, folder: Path, since: datetime | None) -> None:
        self._reranker = reranker
        self._files = RowFiles(folder, RANKINGS)
        self._known = {key: row for key, row in self._files.read().items() if since is None or row["made"] >= since}
        self._new: dict[str, Row] = {}
        self.fresh, self.seconds = 0, 0.0

    @property
    def name(self) -> str:
        """The reranker's."""
        return self._reranker.name

    def rerank(self, query: str, chunks: Sequence[C], top_k: int) -> list[C]:
        """The ``top_k`` best of the chunks, best first."""
        key = data_sha256([query, [chunk.content for chunk in chunks], top_k])
        if key not in self._known:
            self._known[key] = self._new[key] = self._answer(key, query, chunks, top_k)
            self.fresh += 1
            if len(self._new) >= KEEP_EVERY:
                self.keep()
        self.seconds += self._known[key]["seconds"]
        return [chunks[number] for number in self._known[key]["order"]]

    def keep(self) -> None:
        """Keep the answers that are not by now; raises ``ArtifactError`` when they cannot be written."""
        self._files.add(self._new)
        self._new = {}

    def _answer(self, key: str, query: str, chunks: Sequence[C], top_k: int) -> Row:
        made, started = datetime.now(UTC), time.perf_counter()
        best = reranked(self._reranker, query, chunks, top_k)
        numbers = {place_of(chunk): number for number, chunk in enumerate(chunks)}
        order = [numbers[place_of(chunk)] for chunk in best]
        return {"asked": key, "order": order, "seconds": time.perf_counter() - started, "made": made}


@contextmanager
def kept_rankings(reranker: Reranker, folder: Path, since: datetime | None) -> Iterator[KeptRankings]:
    """The reranker; its answers are kept, also when an error ends the work. None from before ``since`` is used."""
    kept = KeptRankings(reranker, folder, since)
    try:
        yield kept
    finally:
        kept.keep()
