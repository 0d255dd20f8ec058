"""What is returned for hits, against sets of characters: every metric, every cut, and the tokens that are paid for."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval.chunking.sentence import SentenceChunker
from rag_eval.config.models import Configuration
from rag_eval.errors import ConfigurationError
from rag_eval.metrics.coverage import SpanCoverage, SpanRows
from rag_eval.metrics.metric import Cut
from rag_eval.metrics.score_tables import score_passages
from rag_eval.pipeline.references import Effort
from rag_eval.pipeline.retrieve_steps import retrieve
from rag_eval.pipeline.step import Index, SearchHits
from rag_eval.retrieval import PASSAGE
from rag_eval.retrieval.passages import DocumentPassage, SectionPassage, WindowPassage
from rag_eval.retrieval.searching import WordSearch
from rag_eval.tables import (
    HITS,
    QUERIES,
    PreparedQueries,
    as_searches,
    chunks_to_table,
    documents_to_table,
    table_of,
    truth_to_tables,
)
from rag_eval.tokens import count_tokens
from rag_eval.types.chunks import CharacterSpan, PositionAwareChunk
from rag_eval.types.documents import Corpus, Document
from rag_eval.types.evidence import Query, TokenLevelGroundTruth
from rag_eval.types.ids import DocumentId

Characters = frozenset[tuple[int, int]]
LINES = st.sampled_from(["# One\n", "## Two\n", "### Three\n", "a bee sees\n", "the sea 🐝🐝\n", "\n", "no, it is.\n"])
TEXTS = st.lists(LINES, min_size=1, max_size=9).map("".join).filter(str.strip)
RETURNS = (
    *(WindowPassage(count) for count in (1, 2)),
    *(SectionPassage(max_tokens=limit, level=level) for limit in (None, 12) for level in (1, 6)),
    *(DocumentPassage(max_tokens=limit) for limit in (None, 15)),
)
KS = (1, 2, 3, 5)
BUDGETS = (5, 20, 60)


@dataclass(frozen=True)
class Case:
    documents: list[Document]
    chunks: list[list[tuple[int, int]]]
    hits: list[tuple[int, int]]
    truth: list[tuple[int, int, int]]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    texts = draw(st.lists(TEXTS, min_size=1, max_size=2))
    chunks = []
    for text in texts:
        starts = sorted(draw(st.sets(st.integers(0, len(text) - 1), min_size=1, max_size=6)))
        ends = [draw(st.integers(start + 1, len(text))) for start in starts]
        chunks.append(list(zip(starts, ends, strict=True)))
    every = [(number, place) for number, places in enumerate(chunks) for place in range(len(places))]
    hits = draw(st.permutations(every))[: draw(st.integers(0, len(every)))]
    truth = []
    for _ in range(draw(st.integers(1, 3))):
        number = draw(st.integers(0, len(texts) - 1))
        start = draw(st.integers(0, len(texts[number]) - 1))
        truth.append((number, start, draw(st.integers(start + 1, len(texts[number])))))
    documents = [Document(DocumentId(f"{number}.md"), text) for number, text in enumerate(texts)]
    return Case(documents, chunks, list(hits), list(dict.fromkeys(truth)))


def sections_of(text: str, level: int) -> list[int]:
    """The number of the section of every character."""
    numbers, number = [], 0
    for line in text.splitlines(keepends=True):
        marks = len(line) - len(line.lstrip("#"))
        number += 0 < marks <= level
        numbers += [number] * len(line)
    return numbers


def returned_for(case: Case, returns: Any, hit: tuple[int, int]) -> tuple[Characters, bool]:
    """What is returned for one hit, and whether that is the hit for want of room."""
    number, place = hit
    text, chunks = case.documents[number].content, case.chunks[number]
    found = set(range(*chunks[place]))
    if isinstance(returns, WindowPassage):
        near = chunks[max(0, place - returns.count) : place + returns.count + 1]
        wide = set(range(min(start for start, _ in near), max(end for _, end in near)))
    elif isinstance(returns, SectionPassage):
        numbers = sections_of(text, returns.level)
        held = {numbers[one] for one in found if text[one].strip()} or {numbers[one] for one in found}
        within = range(min(held), max(held) + 1)
        wide = found | {one for one, section in enumerate(numbers) if section in within}
    else:
        wide = set(range(len(text)))
    limit = getattr(returns, "max_tokens", None)
    is_beyond = limit is not None and count_tokens("".join(text[one] for one in sorted(wide)), "cl100k_base") > limit
    return frozenset((number, one) for one in (found if is_beyond else wide)), is_beyond


def tokens_of(case: Case, characters: Characters) -> int:
    """The tokens of all runs of characters, each counted on its own."""
    ordered, total = sorted(characters), 0
    for _, run in groupby(enumerate(ordered), key=lambda one: (one[1][0], one[1][1] - one[0])):
        places = [place for _, place in run]
        text = case.documents[places[0][0]].content[places[0][1] : places[-1][1] + 1]
        total += count_tokens(text, "cl100k_base")
    return total


def naive(case: Case, extents: list[Characters], metric: str, reach: int) -> float:
    """A metric by its definition, with the passages of the first ``reach`` hits."""
    unions = [frozenset[tuple[int, int]]().union(*extents[:rank]) for rank in range(reach + 1)]
    truth = {(number, one) for number, start, end in case.truth for one in range(start, end)}
    retrieved, gains = unions[-1], [len(after & truth) - len(before & truth) for before, after in pairwise(unions)]
    if metric == "span_recall":
        return len(retrieved & truth) / len(truth)
    if metric == "span_precision":
        return len(retrieved & truth) / len(retrieved) if retrieved else 0.0
    if metric == "span_mrr":
        return max((1 / rank for rank, gain in enumerate(gains, start=1) if gain), default=0.0)
    assert metric == "tokens_retrieved"
    return float(tokens_of(case, retrieved))


METRICS = ("span_recall", "span_precision", "span_mrr", "tokens_retrieved")
CUTS = [("hits", k) for k in KS] + [("tokens", budget) for budget in BUDGETS]


BEYOND = "hits are returned unchanged, because the text around them exceeds max_tokens"


def returned(
    hits: pa.Table, cut: Sequence[PositionAwareChunk], corpus: Corpus, returns: Any
) -> tuple[pa.Table, Effort]:
    """The passages that a search by words with these hits returns."""
    parts = Configuration(chunker=SentenceChunker(), retrieval=WordSearch(), returns=returns)
    queries, documents = QUERIES.empty_table(), [documents_to_table(corpus)]
    index, prepared = Index([chunks_to_table(cut)]), PreparedQueries(as_searches(queries), None)
    made, effort = retrieve(parts, [[SearchHits(hits, index, prepared, 50)]], queries, documents, 50)
    return made.passages, effort


@pytest.mark.parametrize("returns", RETURNS, ids=repr)
@settings(max_examples=50)
@given(case=cases())
def test_every_metric_at_every_cut_reads_the_merged_passages(returns: Any, case: Case) -> None:
    corpus = Corpus(case.documents)
    cut = [one.chunk_at(*place) for one, places in zip(corpus, case.chunks, strict=True) for place in places]
    rows = [
        ("q", rank, 1 / rank, f"{number}.md", *case.chunks[number][place], place)
        for rank, (number, place) in enumerate(case.hits, start=1)
    ]
    names = ("query_id", "rank", "score", "doc_id", "start", "end", "ordinal")
    hits = table_of(HITS, rows, names, variant=0, stage="made")
    spans = [case.documents[number].span(start, end) for number, start, end in case.truth]
    truth = truth_to_tables([TokenLevelGroundTruth(Query("q", "?"), spans)])  # type: ignore[arg-type]  # a short id
    passages, effort = returned(hits, cut, corpus, returns)

    expected = [returned_for(case, returns, hit) for hit in case.hits]
    beyond = sum(is_beyond for _, is_beyond in expected)
    assert effort.fallbacks == ({BEYOND: beyond} if beyond else {})
    extents = [characters for characters, _ in expected]
    spent, fitting = [], []
    for rank in range(1, len(extents) + 1):
        spent.append(max([tokens_of(case, frozenset().union(*extents[:rank])), *spent[-1:]]))
    fitting = [sum(one <= budget for one in spent) for budget in BUDGETS]

    asked = [f"{metric}@{size}tokens" for metric in METRICS for size in BUDGETS]
    scores = score_passages(
        "token-level", passages, truth, [*METRICS, *asked], KS, documents=corpus, chunks=chunks_to_table(cut)
    )
    found = {(row["metric"], row["cut"], row["size"]): row["value"] for row in scores.to_pylist()}
    assert found.keys() == {(metric, *cut) for metric in METRICS for cut in CUTS}
    for (metric, kind, size), value in found.items():
        reach = min(size, len(extents)) if kind == "hits" else fitting[BUDGETS.index(size)]
        wanted = naive(case, extents, metric, reach)
        assert value == pytest.approx(wanted, abs=1e-12), (metric, kind, size)


def test_what_returns_passages_is_given_the_chunks_of_a_document_in_their_order() -> None:
    document = Document(DocumentId("a.md"), "0123456789")
    asked: list[int] = []

    def note(chunk: Any) -> None:
        asked.append(chunk.start)

    cut = [document.chunk_at(place, place + 1) for place in range(10)]
    rows = [("q", rank, 1 / rank, "a.md", place, place + 1, place) for rank, place in enumerate((8, 9, 1), start=1)]
    names = ("query_id", "rank", "score", "doc_id", "start", "end", "ordinal")
    hits = table_of(HITS, rows, names, variant=0, stage="made")
    returned(hits, cut, Corpus([document]), PASSAGE.take(note))
    assert asked == [1, 8, 9]


def test_no_hits_return_nothing() -> None:
    corpus = Corpus([Document(DocumentId("a.md"), "text")])
    made, _ = returned(HITS.empty_table(), [corpus.documents[0].chunk_at(0, 4)], corpus, WindowPassage())
    assert made.num_rows == 0


def test_what_did_not_fit_a_budget_does_not_fit_for_being_joined_to_a_shorter_text() -> None:
    # Joined, two texts may have fewer tokens than the first alone has.
    start, end, tokens = np.array([(0, 4, 5), (4, 6, -1), (8, 9, 3)]).T
    hits = SpanRows(np.array([0, 3]), np.zeros(3, np.int64), start, end, tokens=tokens)
    coverage = SpanCoverage(hits, SpanRows(np.array([0, 1]), *np.array([[0], [0], [9]])))
    assert [coverage.covered(Cut("tokens", budget)).tolist() for budget in (4, 5, 7)] == [[0], [6], [7]]


def paragraphs(chunk: Any, document: Any) -> tuple[int, int]:
    start, end = document.content.rfind("\n\n", 0, chunk.start) + 1, document.content.find("\n\n", chunk.end)
    return start, len(document.content) if end < 0 else end


@pytest.mark.parametrize(
    ("function", "places"),
    [
        (paragraphs, [(6, 17), (0, 5)]),
        (lambda chunk: None, [(8, 12), (0, 2)]),
        (lambda chunk: [chunk.start, chunk.end + 1], [(8, 13), (0, 3)]),
        (lambda chunk, document: document.span(chunk.start, chunk.end + 2), [(8, 14), (0, 4)]),
        (lambda chunk, document: document.chunk_at(0, chunk.end), [(0, 12), (0, 2)]),
        (lambda chunk: (0, 99), r"returned \[0, 99\) of 'a.md', which has 17 characters: return a place"),
        (lambda chunk: (3, 3), r"returned \[3, 3\) of 'a.md'"),
        (lambda chunk: "text", "returned \"'text'\" for a chunk of 'a.md': return .start, end. in the document"),
        (lambda chunk: CharacterSpan("b.md", 0, 2, "xx"), "for a chunk of 'a.md': return"),  # type: ignore[arg-type]
    ],
)
def test_a_function_says_what_is_returned_and_its_places_are_checked(function: Any, places: Any) -> None:
    document = Document(DocumentId("a.md"), "one 1\n\ntwo two 2.")
    cut = [document.chunk_at(0, 2), document.chunk_at(8, 12)]
    rows = [("q", rank, 1 / rank, "a.md", cut[n].start, cut[n].end, n) for rank, n in enumerate((1, 0), start=1)]
    names = ("query_id", "rank", "score", "doc_id", "start", "end", "ordinal")
    hits = table_of(HITS, rows, names, variant=0, stage="made")
    given = hits, cut, Corpus([document]), PASSAGE.take(function)
    if isinstance(places, str):
        with pytest.raises(ConfigurationError, match=places):
            returned(*given)
        return
    made, _ = returned(*given)
    assert [(row["start"], row["end"]) for row in made.to_pylist()] == places
