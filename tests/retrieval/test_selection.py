"""Filters, near-duplicates and thresholds against plain loops, and what is said of those that cannot be used."""

import json
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval.errors import ConfigurationError
from rag_eval.parts import digest, label
from rag_eval.retrieval import SELECTION
from rag_eval.retrieval.selection import (
    Selection,
    allowed_documents,
    document_metadata,
    matching,
    read_metadata,
    repeated,
    search_filters,
    selected,
    shingles,
)
from rag_eval.stores.rankings import Ranking, search_deeper
from rag_eval.types.documents import Document
from rag_eval.types.ids import DocumentId

WORDS = st.sampled_from(["sea", "bee", "Sea", "air", "ice"])
TEXTS = st.lists(WORDS, max_size=7).map(" ".join)


def runs(text: str) -> set[str]:
    words = text.lower().split()
    if len(words) <= 3:
        return {" ".join(words)}
    return {" ".join(words[at : at + 3]) for at in range(len(words) - 2)}


@given(st.lists(TEXTS, max_size=8), st.sampled_from([0.2, 0.5, 0.75, 1.0]))
def test_a_hit_is_dropped_where_a_better_one_that_is_kept_says_the_same(texts: list[str], similarity: float) -> None:
    kept: list[str] = []
    expected = []
    for text in texts:
        alike = [len(runs(text) & runs(one)) / len(runs(text) | runs(one)) for one in kept]
        expected.append(any(share >= similarity for share in alike))
        if not expected[-1]:
            kept.append(text)
    assert repeated([shingles(text) for text in texts], similarity) == expected


SCORES = st.integers(0, 4).map(float)


@settings(max_examples=60)
@given(st.data())
def test_hits_are_selected_as_a_plain_loop_selects_them(data: st.DataObject) -> None:
    texts = data.draw(st.lists(TEXTS, min_size=1, max_size=6))
    found = [
        sorted(data.draw(st.dictionaries(st.integers(0, len(texts) - 1), SCORES)).items(), key=lambda one: -one[1])
        for _ in range(3)
    ]
    threshold, similarity = data.draw(st.sampled_from([(2.0, None), (None, 0.5), (1.0, 0.8)]))
    expected = []
    for hits in found:
        left: list[tuple[int, float]] = []
        for chunk, score in hits:
            alike = [
                len(runs(texts[chunk]) & runs(texts[n])) / len(runs(texts[chunk]) | runs(texts[n])) for n, _ in left
            ]
            if (threshold is None or score >= threshold) and not (similarity and any(a >= similarity for a in alike)):
                left.append((chunk, score))
        expected.append(left)
    given_hits = [(np.array([n for n, _ in one], np.int64), np.array([s for _, s in one])) for one in found]
    selection = Selection(score_threshold=threshold, near_duplicates=similarity)
    kept = selected(selection, Ranking.of(given_hits), 3, texts.__getitem__)
    rows = list(zip(kept.searches.tolist(), kept.chunks.tolist(), kept.scores.tolist(), strict=True))
    assert rows == [(search, *hit) for search, hits in enumerate(expected) for hit in hits]


VALUES = st.one_of(st.integers(0, 3), st.none(), st.lists(st.integers(0, 3), max_size=2))
CONDITIONS = st.one_of(
    st.integers(0, 3),
    st.lists(st.integers(0, 3), min_size=1, max_size=2),
    st.dictionaries(st.sampled_from(["above", "at_least", "below", "at_most"]), st.integers(0, 3), min_size=1),
    st.fixed_dictionaries({"not": st.one_of(st.integers(0, 3), st.lists(st.integers(0, 3), min_size=1))}),
)


def holds(value: Any, condition: Any) -> bool:
    values = [one for one in (value if isinstance(value, list) else [value]) if one is not None]
    if isinstance(condition, dict) and "not" in condition:
        refused = condition["not"] if isinstance(condition["not"], list) else [condition["not"]]
        return not any(one in refused for one in values)
    if isinstance(condition, dict):
        tests = {"above": int.__gt__, "at_least": int.__ge__, "below": int.__lt__, "at_most": int.__le__}
        return all(any(tests[name](one, than) for one in values) for name, than in condition.items())
    return any(one in (condition if isinstance(condition, list) else [condition]) for one in values)


@given(st.lists(st.tuples(VALUES, VALUES), min_size=1), st.tuples(CONDITIONS, CONDITIONS))
def test_a_filter_leaves_the_documents_that_a_plain_loop_leaves(
    values: list[tuple[Any, Any]], conditions: tuple[Any, Any]
) -> None:
    documents = [Document(DocumentId(f"{n}.md"), "…", {"a": a, "b": b}) for n, (a, b) in enumerate(values)]
    documents.append(Document(DocumentId("all.md"), "…", {"a": 0, "b": 0}))
    wanted = {"a": conditions[0], "b": conditions[1]}
    found = matching(wanted, [one.id for one in documents], document_metadata(documents, {}))
    assert found == [one.id for one in documents if all(holds(one.metadata[f], c) for f, c in wanted.items())]


@given(st.lists(st.booleans(), min_size=1, max_size=12), st.integers(1, 5), st.integers(0, 12), st.data())
def test_what_takes_no_filter_is_asked_for_more(mask: list[bool], k: int, most: int, data: st.DataObject) -> None:
    order = np.array(data.draw(st.permutations(range(len(mask)))))[:most]  # it may not give all
    asked = []

    def search(depth: int) -> Ranking:
        asked.append(depth)
        return Ranking.of([(order[:depth], np.ones(min(depth, len(order))))])

    found = search_deeper(search, 1, k, np.array(mask))
    assert found.chunks.tolist() == [chunk for chunk in order.tolist() if mask[chunk]][:k]
    assert asked[-1] <= max(k, len(mask))
    assert len(found.chunks) == min(k, sum(mask)) or asked[-1] >= len(order)


DOCUMENTS = [
    Document(DocumentId("guides/ferry.md"), "---\nlang: en\ntags: [sea, boat]\nseen: 2024-03-01\n---\n# Ferry\n"),
    Document(DocumentId("guides/new/bus.md"), "---\nlang: de\ndraft: true\n---\n# Bus\n", {"year": 2023}),
    Document(DocumentId("index.md"), "no front matter", {"year": 2021}),
    Document(DocumentId("rule.md"), "---\n\nA rule, and no front matter.\n\n---\n"),
]


@pytest.mark.parametrize(
    ("where", "left"),
    [
        ({"lang": "en"}, ["guides/ferry.md"]),
        ({"lang": ["en", "de"]}, ["guides/ferry.md", "guides/new/bus.md"]),
        ({"lang": {"not": "de"}}, ["guides/ferry.md", "index.md", "rule.md"]),
        ({"tags": "boat"}, ["guides/ferry.md"]),
        ({"tags": {"not": ["boat", "car"]}}, ["guides/new/bus.md", "index.md", "rule.md"]),
        ({"seen": {"at_least": "2024-01-01", "below": "2025"}}, ["guides/ferry.md"]),
        ({"seen": date(2024, 3, 1)}, ["guides/ferry.md"]),
        ({"year": {"above": 2021}}, ["guides/new/bus.md"]),
        ({"draft": True}, ["guides/new/bus.md"]),
        ({"folder": "guides"}, ["guides/ferry.md"]),
        ({"folder": {"like": "guides*"}}, ["guides/ferry.md", "guides/new/bus.md"]),
        ({"folder": ""}, ["index.md", "rule.md"]),
        ({"file": {"like": "*.md"}, "doc_id": ["index.md", "gone.md"]}, ["index.md"]),
    ],
)
def test_fields_come_from_front_matter_metadata_and_the_path(where: dict[str, Any], left: list[str]) -> None:
    selection = Selection(where=where)
    (one,) = {*search_filters(selection, [("q", {}), ("r", {})]).values()}
    assert one is not None
    allowed = allowed_documents([one], DOCUMENTS, selection)
    assert allowed.column("doc_ids").to_pylist() == [left]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_a_table_of_metadata_goes_before_what_a_document_says_of_itself(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"metadata{suffix}"
    frame = polars.DataFrame({"doc_id": ["index.md", "guides/ferry.md", "other.md"], "year": [2025, None, 2026]})
    frame = frame.with_columns(lang=polars.lit("fr"), since=polars.lit(date(2020, 1, 2)))
    {".csv": frame.write_csv, ".jsonl": frame.write_ndjson, ".parquet": frame.write_parquet}[suffix](path)
    fields = document_metadata(DOCUMENTS, read_metadata(path))
    assert [one.get("lang") for one in fields] == [["fr"], ["de"], ["fr"], None]
    assert [one.get("year") for one in fields] == [[], [2023], [2025], None]
    assert fields[2]["since"] == ["2020-01-02"]
    selection = Selection(where={"year": 2025}, metadata=path)
    known = digest(selection)
    assert label(selection) == f"select where year 2025 metadata=metadata{suffix}"
    frame.filter(polars.col("doc_id") != "other.md").write_csv(path)
    assert digest(Selection(where={"year": 2025}, metadata=path)) != known


def test_a_question_may_have_a_filter_of_its_own() -> None:
    selection = Selection(where={"lang": ["en", "de"]}, query_filters=True)
    asked = [("q1", {"filter": {"lang": "de"}}), ("q2", {}), ("q3", {"filter": {"folder": "x"}})]
    filters = search_filters(selection, asked)
    allowed = allowed_documents(dict.fromkeys(filter(None, filters.values())), DOCUMENTS, selection)
    left = dict(zip(*(allowed.column(name).to_pylist() for name in ("filter", "doc_ids")), strict=True))
    assert [left[filters[query] or ""] for query, _ in asked] == [
        ["guides/new/bus.md"],
        ["guides/ferry.md", "guides/new/bus.md"],
        [],
    ]
    assert search_filters(Selection(score_threshold=0.5), asked[:1]) == {"q1": None}


def broken(tmp_path: Path, text: str, suffix: str = ".csv") -> Path:
    path = tmp_path / f"metadata{suffix}"
    path.write_text(text)
    return path


def test_what_cannot_be_used_is_told_in_a_sentence(tmp_path: Path) -> None:
    def told(where: Any, documents: Any = DOCUMENTS, metadata: Path | None = None, **settings: Any) -> str:
        def use() -> None:
            selection = Selection(where=where, metadata=metadata, **settings)
            filters = search_filters(selection, [("q1", {"filter": {"lang": 3}}), ("q2", {})])
            allowed_documents(filter(None, filters.values()), documents, selection)

        with pytest.raises(ConfigurationError) as error:
            use()
        return str(error.value)

    assert told({"langauge": "en"}).startswith("no document has the field 'langauge' (did you mean lang?): use")
    assert told({"lang": "fr"}) == (
        'where={"lang":"fr"} matches none of 4 documents: use values that some of them have'
    )
    assert told({"year": "2023"}) == (
        "the filter compares year with the text '2023', and 'guides/new/bus.md' has 2023: write it like the metadata"
    )
    assert "lang with 3, and 'guides/ferry.md' has the text 'en'" in told(None, query_filters=True)
    assert "where: expected fields with the values they must have, found the text 'en'" in told("en")
    assert "where: year cannot be compared by 'at_lest' (did you mean at_least?)" in told({"year": {"at_lest": 3}})
    assert "where: year is compared by above with a list: give one value" in told({"year": {"above": [1]}})
    assert "where: year is compared with an empty list" in told({"year": []})
    assert "where: year is compared with nothing: give text" in told({"year": None})
    assert "near_duplicates: expected a number of at most 1, found 1.5" in told({"a": 1}, near_duplicates=1.5)
    assert "a selection needs at least one setting: use one of where, query_filters" in told(None)
    assert "a selection has metadata but no filter" in told(None, metadata=broken(tmp_path, "doc_id\n"), fetch_k=9)
    assert "metadata: there is no file" in told({"a": 1}, metadata=tmp_path / "gone.csv")
    assert "metadata: 'a.txt' is not a table of metadata: use one of .csv, .jsonl" in told(
        {"a": 1}, metadata=Path("a.txt")
    )
    assert "has no column doc_id of texts" in told({"a": 1}, metadata=broken(tmp_path, "id,a\nindex.md,1\n"))
    assert "two rows for 'index.md'" in told({"a": 1}, metadata=broken(tmp_path, "doc_id,a\nindex.md,1\nindex.md,2\n"))
    assert "has no row for any document: it has 'Index.md', the corpus has 'guides/ferry.md'" in told(
        {"a": 1}, metadata=broken(tmp_path, "doc_id,a\nIndex.md,1\n")
    )
    assert "cannot be read (" in told({"a": 1}, metadata=broken(tmp_path, "{", ".jsonl"))
    odd = Document(DocumentId("odd.md"), "---\ntitle: a: b\n---\n")
    assert told({"title": "a"}, [odd]).startswith("the front matter of 'odd.md' is not YAML (mapping values are not")
    tagged = Document(DocumentId("tag.md"), "---\ndraft: !!bool maybe\n---\ntext")
    assert told({"title": "a"}, [tagged]).startswith("the front matter of 'tag.md' is not YAML")
    nested = Document(DocumentId("nested.md"), "---\na: {b: 1}\nc: &x [1]\n---\n")
    assert told({"a": 1}, [nested]).startswith("no document has the field 'a'")
    with pytest.raises(ConfigurationError, match="none of 1 questions has a filter"):
        search_filters(Selection(query_filters=True), [("q", {})])
    with pytest.raises(ConfigurationError, match="the filter of question 'q': expected fields"):
        search_filters(Selection(query_filters=True), [("q", {"filter": "en"})])


def test_in_a_file_the_type_of_a_selection_need_not_be_said() -> None:
    made = SELECTION.make({"where": {"lang": "en"}, "near_duplicates": 0.9, "fetch_k": 80})
    assert made == Selection(where={"lang": "en"}, near_duplicates=0.9, fetch_k=80)
    assert label(made) == "select where lang en near_duplicates=0.9 fetch_k=80"
    assert SELECTION.make("none") is None
    with pytest.raises(ConfigurationError, match="select has no such key \\(did you mean score_threshold"):
        SELECTION.make({"score_treshold": 0.5})
    assert json.loads(json.dumps(made.where)) == {"lang": "en"}


def test_a_filter_is_called_in_words_and_no_two_alike() -> None:
    where = {"folder": ["guides", "a, b"], "year": {"at_least": 2023, "below": 2025}, "status": {"not": "draft"}}
    assert label(Selection(where=where)) == (
        'select where folder guides or "a, b" and year at_least 2023 and below 2025 and status not draft'
    )
    values: list[Any] = ["2025", 2025, True, "true", "or", ["a", "or", "b"], ["a", "b"], "a or b", {"not": "a"}]
    assert len({label(Selection(where={"x": value})) for value in values}) == len(values)
