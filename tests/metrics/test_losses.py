from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval.errors import ConfigurationError, TableError
from rag_eval.metrics.losses import (
    AVERAGE_LOSSES,
    LOSS_PARTS,
    LOSSES,
    SEARCH_LOSSES,
    HitStages,
    average_losses,
    losses_of,
)
from rag_eval.metrics.score_tables import score_passages
from rag_eval.tables import HITS, QUERIES, TruthTables, as_passages, check_schema, table_of
from rag_eval.tokens import count_tokens
from rag_eval.types.documents import Document
from rag_eval.types.ids import DocumentId
from tests import made_tables

Place = tuple[str, int, int]
KS = [3, 1, 2]


def token_level_losses(chunks: pa.Table, truth: TruthTables, stages: HitStages, ks: Sequence[int]) -> pa.Table:
    return losses_of("token-level", chunks, truth, stages, ks).parts


def chunk_level_losses(chunks: pa.Table, truth: TruthTables, stages: HitStages, ks: Sequence[int]) -> pa.Table:
    return losses_of("chunk-level", chunks, truth, stages, ks).parts


def name(place: Place) -> str:
    return "pa_chunk_{}_{}_{}".format(*place)


def chunk_table(places: Sequence[Place]) -> pa.Table:
    return made_tables.placed_chunks([(name(place), *place, "…") for place in places])


def plain_table(ids: Sequence[str]) -> pa.Table:
    return made_tables.plain_chunks([(chunk_id, "a.md", ordinal, "…") for ordinal, chunk_id in enumerate(ids)])


def hit_table(hits: dict[str, Sequence[Place]]) -> pa.Table:
    rows = [(query, rank, 1 / rank, *p, name(p)) for query, found in hits.items() for rank, p in enumerate(found, 1)]
    return made_tables.placed_hits(rows)


def staged(*tables: pa.Table) -> HitStages:
    """The hits of exact search, of the index (or the same) and after the reranker, if there is one."""
    later = {"reranked": tables[2]} if len(tables) > 2 else {}
    return HitStages({"vector": tables[min(1, len(tables) - 1)]} | later, {"vector": tables[0]})


def chunk_stages(*stages: dict[str, Sequence[Place]]) -> HitStages:
    """The same hits by chunk id, without places."""
    tables = []
    for hits in stages:
        rows = [
            (q, rank, 1 / rank, p[0], p[1], name(p)) for q, found in hits.items() for rank, p in enumerate(found, 1)
        ]
        tables.append(made_tables.plain_hits(rows))
    return staged(*tables)


def query_table(answerable: Sequence[str], unanswerable: Sequence[str] = ()) -> pa.Table:
    return table_of(QUERIES, [(q, q, q in unanswerable, "{}") for q in [*answerable, *unanswerable]])


def span_truth(spans: dict[str, Sequence[Place]], unanswerable: Sequence[str] = ()) -> TruthTables:
    rows = [(query, *place, "…") for query, places in spans.items() for place in places]
    return TruthTables(query_table(list(spans), unanswerable), made_tables.span_truth(rows))


def chunk_truth(ids: dict[str, Sequence[str]], unanswerable: Sequence[str] = ()) -> TruthTables:
    rows = [(query, chunk_id) for query, chunk_ids in ids.items() for chunk_id in chunk_ids]
    return TruthTables(query_table(list(ids), unanswerable), made_tables.chunk_truth(rows))


def characters(places: Sequence[Place]) -> set[tuple[str, int]]:
    return {(doc_id, position) for doc_id, start, end in places for position in range(start, end)}


def parts_of(recalls: Sequence[Fraction]) -> list[float]:
    """From 1, oracle@all, oracle@k and the recalls of the stages: the parts, and the last recall."""
    return [float(more - less) for more, less in pairwise(recalls)] + [float(recalls[-1])]


def shares(losses: pa.Table) -> list[list[float]]:
    return [[row[column] for column in (*LOSS_PARTS, "final_recall")] for row in losses.to_pylist()]


place = st.tuples(st.sampled_from(["a.md", "b.md"]), st.integers(0, 9), st.integers(1, 9)).map(
    lambda p: (p[0], p[1], p[1] + p[2])
)


STAGES = ("vector", "words", "fused", "selected", "reranked")


@st.composite
def evaluations(draw: st.DrawFn) -> tuple[list[Place], list[list[Place]], dict[str, list[list[Place]]]]:
    """Chunks, the truth of each query, and its hits at any of the stages; passages are not chunks."""
    chunks = draw(st.lists(place, min_size=1, max_size=7))
    truths = draw(st.lists(st.lists(place, min_size=1, max_size=4), min_size=1, max_size=4))
    there = draw(st.sets(st.sampled_from([*STAGES, "exact vector", "passages"])))
    there |= set() if there & {"vector", "words"} else {"vector"}
    kinds = {stage: place if stage == "passages" else st.sampled_from(chunks) for stage in (*STAGES, *sorted(there))}
    kept = [stage for stage in (*STAGES, "exact vector", "passages") if stage in there]
    found_in = {stage: st.lists(kinds[stage], max_size=4) for stage in kept}
    return chunks, truths, {stage: [draw(found_in[stage]) for _ in truths] for stage in kept}


def chain(stages: dict[str, list[list[Place]]], number: int, k: int, wanted: set[tuple[str, int]]) -> list[int]:
    """How much of the truth of a query each stage reaches with its first k, from the searches to the passages."""
    return chained(stages, lambda stage: len(wanted & characters(stages[stage][number][:k])))


def chained(stages: Mapping[str, object], reached: Callable[[str], int]) -> list[int]:

    searches = [stage for stage in ("vector", "words") if stage in stages]
    exact = [f"exact {stage}" if f"exact {stage}" in stages else stage for stage in searches]
    steps = [max(map(reached, exact)), max(map(reached, searches))]
    for stage in ("fused", "selected", "reranked", "passages"):
        steps.append(reached(stage) if stage in stages else steps[-1])
    return steps


@settings(deadline=None, derandomize=True, max_examples=150)
@given(evaluations())
def test_token_level_parts_are_those_of_sets_of_characters(
    case: tuple[list[Place], list[list[Place]], dict[str, list[list[Place]]]],
) -> None:
    chunks, truths, stages = case
    ids = [f"query_{number}" for number in range(len(truths))]
    tables = {stage: hit_table(dict(zip(ids, found, strict=True))) for stage, found in stages.items()}
    truth = span_truth(dict(zip(ids, truths, strict=True)), ["nothing answers this"])
    hits = HitStages(
        {stage: table for stage, table in tables.items() if stage in STAGES},
        {"vector": tables["exact vector"]} if "exact vector" in tables and "vector" in tables else {},
        as_passages(tables["passages"]) if "passages" in tables else None,
    )
    losses = check_schema(token_level_losses(chunk_table(chunks), truth, hits, KS), LOSSES, "losses")

    expected = []
    for k in KS:
        for number, spans in enumerate(truths):
            wanted = characters(spans)
            choices = combinations(chunks, min(k, len(chunks)))
            oracles = [wanted, wanted & characters(chunks), max((wanted & characters(c) for c in choices), key=len)]
            reached = [*map(len, oracles), *chain(stages, number, k, wanted)]
            expected.append(parts_of([Fraction(amount, len(wanted)) for amount in reached]))
    assert shares(losses) == expected
    assert losses.column("query_id").to_pylist() == ids * len(KS)
    assert losses.column("k").to_pylist() == [k for k in KS for _ in ids]
    np.testing.assert_allclose([sum(row) for row in shares(losses)], 1, rtol=0, atol=1e-15)
    assert all(min(row[:3]) >= 0 for row in shares(losses))
    last = "passages" if "passages" in tables else next((one for one in reversed(STAGES[2:]) if one in tables), None)
    if last is not None:
        scores = score_passages("token-level", as_passages(tables[last]), truth, ["span_recall"], KS)
        assert losses.column("final_recall").to_pylist() == scores.column("value").to_pylist()


TEXT = "a bee, see 10 dee? eéé f g"
DOCUMENTS = [Document(DocumentId(name), TEXT) for name in ("a.md", "b.md")]


@settings(deadline=None, derandomize=True, max_examples=150)
@given(evaluations())
def test_within_a_budget_the_parts_are_those_of_every_choice_of_chunks_that_fits(
    case: tuple[list[Place], list[list[Place]], dict[str, list[list[Place]]]],
) -> None:
    chunks, truths, stages = case
    ids, budgets = [f"query_{number}" for number in range(len(truths))], [9, 2, 5]
    tables = {stage: hit_table(dict(zip(ids, found, strict=True))) for stage, found in stages.items()}
    truth = span_truth(dict(zip(ids, truths, strict=True)))
    hits = HitStages(
        {stage: table for stage, table in tables.items() if stage in STAGES},
        {"vector": tables["exact vector"]} if "exact vector" in tables and "vector" in tables else {},
        as_passages(tables["passages"]) if "passages" in tables else None,
    )
    losses = losses_of("token-level", chunk_table(chunks), truth, hits, budgets, "tokens", DOCUMENTS)

    def cost(places: Sequence[Place]) -> int:
        return sum(count_tokens(TEXT[start:end], "cl100k_base") for _, start, end in places)

    def fitting(found: list[Place], budget: int) -> list[Place]:
        return found[: next((n for n in range(len(found)) if cost(found[: n + 1]) > budget), len(found))]

    every = [some for size in range(len(chunks) + 1) for some in combinations(chunks, size)]
    expected = []
    for budget in budgets:
        for number, spans in enumerate(truths):
            wanted = characters(spans)
            within = [wanted & characters(some) for some in every if cost(some) <= budget]
            oracles = [wanted, wanted & characters(chunks), max(within, key=len)]
            steps = chained(
                stages,
                lambda stage: len(wanted & characters(fitting(stages[stage][number], budget))),  # noqa: B023
            )
            expected.append(parts_of([Fraction(amount, len(wanted)) for amount in [*map(len, oracles), *steps]]))
    assert shares(losses.parts) == expected
    last = "passages" if "passages" in tables else next((one for one in reversed(STAGES[2:]) if one in tables), None)
    if last is not None:
        asked = [f"recall_within_tokens@{budget}" for budget in budgets]
        scores = score_passages("token-level", as_passages(tables[last]), truth, asked, documents=DOCUMENTS)
        assert losses.parts.column("final_recall").to_pylist() == scores.column("value").to_pylist()


def test_within_a_budget_chunk_ids_cost_what_their_texts_do() -> None:
    texts = {"chunk_x": "one two three", "chunk_y": "one", "chunk_z": "two"}
    chunks = made_tables.plain_chunks([(name, "a.md", n, text) for n, (name, text) in enumerate(texts.items())])
    hits = made_tables.plain_hits([("q", 1, 1.0, "a.md", 0, "chunk_x"), ("q", 2, 0.5, "a.md", 1, "chunk_y")])
    truth = chunk_truth({"q": [*texts]})
    losses = losses_of("chunk-level", chunks, truth, HitStages({"vector": hits}), [2, 3, 5], "tokens")
    told = [(row["boundary"], row["search"], row["final_recall"]) for row in losses.parts.to_pylist()]
    third = pytest.approx(1 / 3)
    assert told == [(third, pytest.approx(2 / 3), 0), (third, third, third), (0, third, pytest.approx(2 / 3))]


@settings(deadline=None, derandomize=True, max_examples=150)
@given(evaluations(), st.data())
def test_what_a_filter_keeps_from_the_search_is_lost_by_the_selection_alone(
    case: tuple[list[Place], list[list[Place]], dict[str, list[list[Place]]]], data: st.DataObject
) -> None:
    chunks, truths, _ = case
    ids = [f"query_{number}" for number in range(len(truths))]
    documents = st.none() | st.sets(st.sampled_from(["a.md", "b.md"]))
    left = [data.draw(documents, "what the filter leaves, None without one") for _ in ids]
    inside = [[one for one in chunks if docs is None or one[0] in docs] for docs in left]
    found = [data.draw(st.permutations(one))[:4] for one in inside]
    kept = [data.draw(st.sets(st.sampled_from(one), max_size=3).map(sorted)) if one else [] for one in found]
    allowed = {
        query: pa.array(sorted(docs), pa.string()) for query, docs in zip(ids, left, strict=True) if docs is not None
    }
    vector, selected = (hit_table(dict(zip(ids, one, strict=True))) for one in (found, kept))
    hits = HitStages({"vector": vector, "selected": selected}, allowed=allowed)
    spans = span_truth(dict(zip(ids, truths, strict=True)))
    losses = losses_of("token-level", chunk_table(chunks), spans, hits, KS)

    def most(these: list[Place], k: int, wanted: set[tuple[str, int]]) -> int:
        return max(len(wanted & characters(one)) for one in combinations(these, min(k, len(these))))

    for row, (k, number) in zip(losses.parts.to_pylist(), [(k, n) for k in KS for n in range(len(ids))], strict=True):
        wanted = characters(truths[number])
        best, within = most(chunks, k, wanted), most(inside[number], k, wanted)
        searched, final = (len(wanted & characters(one[number][:k])) for one in (found, kept))
        assert row["search"] == float(Fraction(within - searched, len(wanted)))
        assert row["selection"] == float(Fraction(best - within + searched - final, len(wanted)))
        assert row["final_recall"] == final / len(wanted)
        assert sum(row[part] for part in LOSS_PARTS) + row["final_recall"] == pytest.approx(1, abs=1e-15)
    assert losses.searches.column("loss").to_pylist() == losses.parts.column("search").to_pylist()


def test_a_filter_counts_for_chunk_ids_by_the_documents_that_have_them() -> None:
    rows = [("chunk_x", "a.md", 0, "…"), ("chunk_x", "b.md", 0, "…"), ("chunk_y", "b.md", 1, "…")]
    chunks, truth = made_tables.plain_chunks(rows), chunk_truth({"q": ["chunk_x", "chunk_y"]})
    hits = made_tables.plain_hits([("q", 1, 1.0, "a.md", 0, "chunk_x")])
    losses = losses_of(
        "chunk-level", chunks, truth, HitStages({"vector": hits}, allowed={"q": pa.array(["a.md"])}), [2]
    )
    (row,) = losses.parts.to_pylist()
    assert {part: row[part] for part in LOSS_PARTS if row[part]} == {"selection": 0.5}


@settings(deadline=None, derandomize=True, max_examples=150)
@given(st.data())
def test_chunk_level_parts_are_those_of_sets_of_ids(data: st.DataObject) -> None:
    known = [("a.md", start, start + 5) for start in range(6)]
    chunks = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=8), "chunks, equal texts among them")
    missing = ["pa_chunk_gone", "pa_chunk_lost"]
    relevant = st.lists(st.sampled_from([*map(name, known), *missing]), min_size=1, max_size=5)
    truths = data.draw(st.lists(relevant, min_size=1, max_size=4), "truth")
    found = st.lists(st.sampled_from(chunks), max_size=5)
    stages = [[data.draw(found, "hits") for _ in truths] for _ in range(3)]
    ids = [f"query_{number}" for number in range(len(truths))]
    hits = chunk_stages(*(dict(zip(ids, stage, strict=True)) for stage in stages))
    truth = chunk_truth(dict(zip(ids, truths, strict=True)), ["nothing answers this"])
    names = [name(chunk) for chunk in chunks]
    losses = check_schema(chunk_level_losses(plain_table(names), truth, hits, KS), LOSSES, "losses")

    expected = []
    for k in KS:
        for number, chunk_ids in enumerate(truths):
            wanted = set(chunk_ids)
            choices = combinations(names, min(k, len(names)))
            reached = [wanted, wanted & set(names), max((wanted & set(c) for c in choices), key=len)]
            exact, found, final = (wanted & set(map(name, stage[number][:k])) for stage in stages)
            reached += [exact, found, found, found, final, final]
            expected.append(parts_of([Fraction(len(found), len(wanted)) for found in reached]))
    assert shares(losses) == expected
    np.testing.assert_allclose([sum(row) for row in shares(losses)], 1, rtol=0, atol=1e-15)
    scores = score_passages("chunk-level", hits.tables()["reranked hits"], truth, ["chunk_recall"], KS)
    assert losses.column("final_recall").to_pylist() == scores.column("value").to_pylist()


CORPUS: list[Place] = [("a.md", 0, 10), ("a.md", 10, 20), ("a.md", 20, 30), ("b.md", 0, 10)]
NAMES = [name(place) for place in CORPUS]
TRUTH: dict[str, Sequence[Place]] = {"q": [("a.md", 5, 25), ("a.md", 30, 35)]}


def test_of_several_searches_the_one_with_most_counts_and_each_has_its_own_loss() -> None:
    first, middle, _, other = CORPUS
    hits = {"vector": [first, other], "words": [middle, other], "fused": [first, middle], "selected": [first]}
    stages = HitStages({stage: hit_table({"q": found}) for stage, found in hits.items()})
    losses = losses_of("token-level", chunk_table(CORPUS), span_truth(TRUTH), stages, [2])
    (row,) = losses.parts.to_pylist()
    # The best two chunks have 15 of the 25 characters, the words 10, the vectors 5, both together 15.
    assert {part: row[part] for part in LOSS_PARTS[2:]} == {
        "search": 0.2, "index": 0.0, "fusion": -0.2, "selection": 0.4, "reranker": 0.0, "return": 0.0
    }  # fmt: skip
    by_search = check_schema(losses.searches, SEARCH_LOSSES, "searches").to_pylist()
    assert [(one["search"], one["loss"]) for one in by_search] == [("vector", 0.4), ("words", 0.2)]


def test_variants_of_a_query_are_searches_of_their_own() -> None:
    _, middle, last, other = CORPUS
    tables = [hit_table({"q": found}) for found in ([other], [middle, last])]
    numbered = [
        table.set_column(1, HITS.field("variant"), pa.array([variant] * table.num_rows, pa.int32()))
        for variant, table in enumerate(tables)
    ]
    stages = HitStages({"words": pa.concat_tables(numbered), "fused": hit_table({"q": [middle, other]})})
    losses = losses_of("token-level", chunk_table(CORPUS), span_truth(TRUTH), stages, [2])
    (row,) = losses.parts.to_pylist()
    assert (row["search"], row["fusion"]) == (0.0, 0.2)
    assert losses.searches.column("search").to_pylist() == ["words of variant 0", "words of variant 1"]


def test_only_unanswerable_queries_give_no_rows() -> None:
    stages = staged(hit_table({"q": CORPUS}))
    losses = token_level_losses(chunk_table(CORPUS), span_truth({}, ["q"]), stages, KS)
    assert losses.num_rows == 0
    assert average_losses(losses).equals(table_of(AVERAGE_LOSSES, []))
    plain = chunk_level_losses(plain_table(NAMES), chunk_truth({}, ["q"]), chunk_stages({"q": CORPUS}), KS)
    assert plain.equals(losses)


def test_averages_are_means_by_k_and_add_up() -> None:
    spans = TRUTH | {"r": [("b.md", 0, 10)], "s": [("b.md", 8, 12), ("a.md", 0, 3)]}
    stages = staged(hit_table({"q": CORPUS[:2], "s": CORPUS[3:]}))
    losses = token_level_losses(chunk_table(CORPUS), span_truth(spans, ["t"]), stages, [2, 1])
    averages = check_schema(average_losses(losses), AVERAGE_LOSSES, "averages").to_pylist()
    assert [row["k"] for row in averages] == [2, 1]
    assert [row["n"] for row in averages] == [3, 3]
    for row, rows in zip(averages, (shares(losses)[:3], shares(losses)[3:]), strict=True):
        assert [row[part] for part in (*LOSS_PARTS, "final_recall")] == pytest.approx(np.mean(rows, axis=0).tolist())
        assert sum(row[part] for part in LOSS_PARTS) == pytest.approx(1 - row["final_recall"], abs=1e-15)


def test_the_order_of_rows_and_arrow_chunks_does_not_matter() -> None:
    spans = TRUTH | {"r": [("b.md", 0, 10), ("a.md", 3, 8)]}
    hits, chunks, truth = hit_table({"q": CORPUS[:2], "r": CORPUS[2:]}), chunk_table(CORPUS), span_truth(spans)
    losses = token_level_losses(chunks, truth, staged(hits), KS)

    def shuffled(rows: pa.Table) -> pa.Table:
        order = np.random.default_rng(3).permutation(rows.num_rows)
        return pa.concat_tables([rows.take(order[:2]), rows.take(order[2:])])

    mixed = TruthTables(truth.queries, shuffled(truth.answers))
    assert token_level_losses(shuffled(chunks), mixed, staged(shuffled(hits)), KS).equals(losses)


def test_hits_of_other_chunks_are_refused() -> None:
    stages = staged(*[hit_table({"q": CORPUS})] * 2, hit_table({"q": [CORPUS[0], ("a.md", 0, 11)]}))
    with pytest.raises(TableError, match=r"reranked hits have \[0, 11\) of 'a\.md', which is not a chunk \(1 such"):
        token_level_losses(chunk_table(CORPUS), span_truth(TRUTH), stages, KS)
    by_id = chunk_stages({"q": CORPUS}, {"q": CORPUS}, {"q": [CORPUS[0], ("a.md", 0, 11)]})
    with pytest.raises(TableError, match=r"reranked hits have 'pa_chunk_a\.md_0_11', which is not a chunk \(1 such"):
        chunk_level_losses(plain_table(NAMES), chunk_truth({"q": ["pa_chunk_a.md_0_10"]}), by_id, KS)


@pytest.mark.parametrize("ks", [[], [0], [-1], [1, 1], [None], [True], ["5"]])
def test_ks_that_cannot_be_used_are_refused(ks: list[int]) -> None:
    stages = staged(hit_table({}))
    with pytest.raises(ConfigurationError, match="ks"):
        token_level_losses(chunk_table(CORPUS), span_truth(TRUTH), stages, ks)
    with pytest.raises(ConfigurationError, match="ks"):
        chunk_level_losses(plain_table(NAMES), chunk_truth({"q": ["x"]}), chunk_stages({}), ks)
