"""Filtered and selected searches: what they find, against the whole ranking; and the same in a notebook."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from rag_eval.chunking.recursive import RecursiveTokenChunker
from rag_eval.cli.run_commands import check_files
from rag_eval.config.loading import load_config
from rag_eval.config.models import BenchmarkConfig, Configuration
from rag_eval.embedding.local import LocalEmbedder
from rag_eval.errors import ConfigurationError
from rag_eval.evaluation.evaluations import ChunkLevelEvaluation, TokenLevelEvaluation
from rag_eval.evaluation.in_memory import EvaluatedTables, InMemoryInputs, evaluate
from rag_eval.ground_truth.truth_files import write_chunk_level, write_token_level
from rag_eval.pipeline.search_steps import SearchDepth
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.run_losses import configuration_losses
from rag_eval.retrieval.selection import Selection
from rag_eval.tables import documents_to_table, truth_to_tables
from rag_eval.types.documents import Corpus
from rag_eval.types.evidence import ChunkLevelGroundTruth, Query, TokenLevelGroundTruth
from rag_eval.types.ids import generate_chunk_id
from tests import chain
from tests.evaluation.test_in_memory import Overlap, Plain

CHUNKER = RecursiveTokenChunker(12)
TOPICS = ("bus", "ferry", "train")
METRICS = {"token-level": ["span_recall"], "chunk-level": ["chunk_recall"]}


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    """Nine documents in three languages; what is said of a topic is said again in the next document."""
    folder = tmp_path / "docs"
    for number in range(9):
        topic, lang = TOPICS[number // 3], ("en", "de", "fr")[number % 3]
        path = folder / topic / f"{number}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        body = "\n\n".join(f"The {topic} number {line} leaves at {line} from quay {line % 4}." for line in range(6))
        path.write_text(f"---\nlang: {lang}\n---\n{body}\n")
    return Corpus.from_folder(folder)


def truth_of(corpus: Corpus, level: str) -> list[Any]:
    found: list[Any] = []
    for number, document in enumerate(corpus.documents):
        text = f"The {TOPICS[number // 3]} number 3 leaves"
        start = document.content.index(text)
        lang = ("en", "de", "fr")[number % 3]
        query = Query.from_text(f"When does {TOPICS[number // 3]} 3 leave, {lang}?", {"filter": {"lang": lang}})
        if level == "token-level":
            found.append(TokenLevelGroundTruth(query, [document.span(start, start + len(text))]))
        else:
            (piece,) = [one for one in CHUNKER.chunk(document.content) if text in one][:1]
            asked = Query.from_text(query.text, {**query.metadata, "chunker": CHUNKER.name})
            found.append(ChunkLevelGroundTruth(asked, [generate_chunk_id(piece)]))
    return found


def in_memory(parts: dict[str, Any], corpus: Corpus, level: Any, depth: int = 10) -> EvaluatedTables:
    truth = truth_to_tables(truth_of(corpus, level))
    inputs = InMemoryInputs(
        level, documents_to_table(corpus), truth, METRICS[level], [3], SearchDepth(candidates=depth)
    )
    return evaluate(Configuration.model_validate(parts), inputs)


def rows(hits: pa.Table) -> dict[str, list[tuple[Any, ...]]]:
    found: dict[str, list[tuple[Any, ...]]] = {}
    for row in hits.to_pylist():
        found.setdefault(row["query_id"], []).append((row["doc_id"], row["ordinal"], row["start"], row["score"]))
    return found


class FewFound(Overlap):
    """A retriever that takes no filter, and gives twenty chunks at most."""

    def search(self, query: str, k: int) -> list[Any]:
        return super().search(query, min(k, 20))


@pytest.mark.parametrize("level", ["token-level", "chunk-level"])
@pytest.mark.parametrize("store", ["memory", "plain"])
def test_a_filtered_search_finds_as_many_and_what_the_whole_ranking_has(corpus: Corpus, level: str, store: str) -> None:
    kept = {"memory": "memory", "plain": Plain()}[store]
    for retrieval in ("vector", "bm25"):
        given = {"chunker": CHUNKER, "retrieval": retrieval}
        given |= {"embedder": "local", "store": kept} if retrieval == "vector" else {}
        everything = in_memory(given, corpus, level, 10_000)
        selection = Selection(where={"folder": {"like": "*[rs]*"}}, query_filters=True)
        filtered = in_memory(given | {"selection": selection}, corpus, level, 4)
        whole, found = (rows(next(iter(one.hits.values()))) for one in (everything, filtered))
        languages = {item.query.id: item.query.metadata["filter"]["lang"] for item in truth_of(corpus, level)}
        assert found.keys() == whole.keys()
        for query, hits in found.items():
            wanted = [hit for hit in whole[query] if f"lang: {languages[query]}" in corpus.by_id()[hit[0]].content]
            assert hits == wanted[:4], (retrieval, query)


class LastFirst:
    """A reranker that reverses what it is given."""

    name = "last-first"

    def rerank(self, query: str, chunks: Any) -> list[Any]:
        return list(reversed(chunks))


@pytest.mark.parametrize("fetch_k", [5, 20])
def test_the_reranker_is_given_as_many_hits_as_the_selection_fetches(corpus: Corpus, fetch_k: int) -> None:
    parts = {"chunker": CHUNKER, "retrieval": "bm25", "reranker": LastFirst()}
    evaluated = in_memory(parts | {"selection": Selection(fetch_k=fetch_k)}, corpus, "token-level", depth=10)
    found, reranked = rows(evaluated.hits["words"]), rows(evaluated.hits["reranked"])
    assert max(map(len, found.values())) == fetch_k
    for query, hits in found.items():
        assert [hit[:3] for hit in reranked[query]] == [hit[:3] for hit in reversed(hits)]


@pytest.mark.parametrize("level", ["token-level", "chunk-level"])
def test_thresholds_and_near_duplicates_leave_what_a_plain_loop_leaves(corpus: Corpus, level: str) -> None:
    given = {"chunker": CHUNKER, "retrieval": "hybrid", "embedder": "local", "store": "memory", "reranker": "lexical"}
    selection = Selection(score_threshold=0.5, near_duplicates=0.6, fetch_k=30)
    evaluated = in_memory(given | {"selection": selection}, corpus, level)
    assert list(evaluated.hits) == ["vector", "words", "fused", "selected", "reranked"]
    assert evaluated.chunks is not None
    texts = {
        (row["doc_id"], row["ordinal"] if level == "chunk-level" else row["start"]): row["content"].lower().split()
        for row in evaluated.chunks.to_pylist()
    }
    left = rows(evaluated.hits["selected"])
    assert left
    for query, hits in rows(evaluated.hits["fused"]).items():
        kept: list[tuple[Any, ...]] = []
        shingled: list[set[Any]] = []
        for hit in hits:
            words = texts[hit[0], hit[1] if level == "chunk-level" else hit[2]]
            runs = {tuple(words[at : at + 3]) for at in range(max(1, len(words) - 2))}
            if hit[3] >= 0.5 and not any(len(runs & one) / len(runs | one) >= 0.6 for one in shingled):
                kept.append(hit)
                shingled.append(runs)
        assert left.get(query, []) == kept
        assert len(kept) < len(hits)
    assert sorted(map(str, rows(evaluated.hits["reranked"]))) == sorted(map(str, left))
    assert max(evaluated.hits["vector"].column("rank").to_pylist()) == 30


def benchmark(folder: Path, corpus: Corpus, level: str, selection: str) -> BenchmarkConfig:
    truth = folder / f"{level}.jsonl"
    write: Any = write_token_level if level == "token-level" else write_chunk_level
    write(truth, truth_of(corpus, level))
    (folder / "about.csv").write_text("doc_id,kind\nbus/0.md,old\nbus/1.md,new\nferry/3.md,new\n")
    file = folder / "benchmark.yaml"
    file.write_text(
        f"corpus: docs\nground_truth: {truth.name}\nevaluation_type: {level}\nmetrics: {METRICS[level]}\n"
        "chunkers: {type: recursive-token, chunk_size: 12}\nretrieval: [vector, hybrid]\nk: 3\ncopies: off\n"
        f"stores: [lancedb, {{type: lancedb, index: {{type: ivf-pq, num_partitions: 1, num_sub_vectors: 16}}}}]\n"
        f"selection: {selection}\n"
    )
    return load_config(file)


@pytest.mark.parametrize("level", ["token-level", "chunk-level"])
def test_losses_of_selected_hits_add_up_and_an_index_says_what_it_misses(
    tmp_path: Path, corpus: Corpus, level: str
) -> None:
    selection = "[none, {where: {kind: new}, metadata: about.csv, near_duplicates: 0.8}, {query_filters: true}]"
    config, workspace = benchmark(tmp_path, corpus, level, selection), Workspace(root=tmp_path / "work")
    names = [one.name for one in config.configurations()]
    assert [name.partition("hybrid")[2] for name in names if "hybrid" in name and "ivf" not in name] == [
        "",
        ", select where kind new metadata=about.csv near_duplicates=0.8",
        ", select query_filters=true",
    ]
    run = chain.run_benchmark(workspace, config)
    assert [one.name for one in run.configurations] == names
    for outcome, configuration in zip(run.configurations, config.configurations(), strict=True):
        own = configuration.selection or Selection(near_duplicates=1.0)
        if own.where:
            found = workspace.read_table(outcome.hits).column("doc_id").to_pylist()
            assert {*found} == {"bus/1.md", "ferry/3.md"}
        losses = configuration_losses(workspace, run, outcome, [3])
        assert losses is not None
        row = {name: pc.mean(losses.parts.column(name)).as_py() for name in losses.parts.column_names[2:]}
        assert sum(row.values()) == pytest.approx(1, abs=1e-12)
        assert row["final_recall"] == pytest.approx(outcome.metrics[f"{METRICS[level][0]}@3"])
        assert (row["selection"] > 0.1) == (own.where is not None), row
        effort = outcome.steps["search vector"].effort
        assert effort is not None
        assert (effort.recall is None) == ("ivf-pq" not in outcome.name)
        is_poor = effort.recall is not None and effort.recall < 0.95
        told = [f"its index finds {effort.recall:.1%} of the nearest"] if is_poor else []
        assert all(part in note for part, note in zip(told, outcome.notes, strict=True)), outcome.notes


FALLBACKS: dict[str, tuple[dict[str, Any], str, int]] = {
    "a filter that matches no document": (
        {"selection": Selection(where={"lang": ["en", "de"]}, query_filters=True)},
        "questions find nothing: their filter matches no document",
        3,
    ),
    "a retriever that takes no filter": (
        {"retrieval": FewFound(), "selection": Selection(where={"lang": "de"})},
        "questions have fewer hits than requested, because their filter leaves no more",
        9,
    ),
    "a threshold": (
        {"selection": Selection(score_threshold=99.0)},
        "questions have no hits left: all were below score_threshold",
        9,
    ),
}


@pytest.mark.parametrize("kind", FALLBACKS)
def test_questions_for_which_a_selection_leaves_too_little_are_counted_and_told(
    tmp_path: Path, corpus: Corpus, kind: str
) -> None:
    parts, sentence, count = FALLBACKS[kind]
    config, workspace = benchmark(tmp_path, corpus, "token-level", "none"), Workspace(root=tmp_path / "work")
    one = Configuration.model_validate({"chunker": CHUNKER, "retrieval": "bm25"} | parts)
    (outcome,) = chain.run_benchmark(workspace, config, [one]).configurations
    assert outcome.notes == [f"{outcome.name}: {count} {sentence}."]
    found = rows(workspace.read_table(outcome.hits))
    by_id = corpus.by_id()
    if kind == "a retriever that takes no filter":  # it is asked for more, as long as it has any
        assert {hit[0] for hits in found.values() for hit in hits} == {
            one.id for one in corpus if "lang: de" in by_id[one.id].content
        }
    assert len(found) == {"a threshold": 0, "a filter that matches no document": 6}.get(kind, 9)
    if kind == "a threshold":
        assert outcome.metrics["span_recall@3"] == 0


def test_a_selection_that_leaves_no_document_or_too_few_hits_is_refused(tmp_path: Path, corpus: Corpus) -> None:
    nowhere = {"chunker": CHUNKER, "retrieval": "bm25", "selection": Selection(where={"lang": "it"})}
    with pytest.raises(ConfigurationError, match="matches none of 9 documents"):
        in_memory(nowhere, corpus, "token-level")
    with pytest.raises(ConfigurationError, match=r"benchmark.yaml: a selection has fetch_k 2 and the largest k is 3"):
        benchmark(tmp_path, corpus, "token-level", "{fetch_k: 2}")
    with pytest.raises(ConfigurationError, match=r"selection.where .line 10.: lang cannot be compared by 'is': use"):
        benchmark(tmp_path, corpus, "token-level", "{where: {lang: {is: en}}}")


@pytest.mark.parametrize("level", ["token-level", "chunk-level"])
def test_a_notebook_takes_the_same_parts_and_gives_the_numbers_of_a_benchmark(
    tmp_path: Path, corpus: Corpus, level: str
) -> None:
    config = benchmark(tmp_path, corpus, level, "{where: {lang: [en, fr]}, near_duplicates: 0.9, fetch_k: 20}")
    given: dict[str, Any] = {"context": "headings", "queries": lambda text: [text, text.upper()]}
    given["selection"] = {"where": {"lang": ["en", "fr"]}, "near_duplicates": 0.9, "fetch_k": 20}
    if level == "token-level":
        given |= {"returns": lambda chunk: (chunk.start, (chunk.start + chunk.end) // 2), "copies": "exact"}
    listed = {key: [one] for key, one in given.items() if key != "copies"} | {"copies": given.get("copies", "off")}
    config = BenchmarkConfig.model_validate(
        config.model_dump() | listed | {"stores": ["memory"], "retrieval": ["vector"]}
    )
    workspace = Workspace(root=tmp_path / "work")
    stored = chain.evaluate(workspace, config.configurations()[0], chain.load_inputs(workspace, config))
    kind: Any = TokenLevelEvaluation if level == "token-level" else ChunkLevelEvaluation
    result = kind(corpus, truth_of(corpus, level)).run(CHUNKER, LocalEmbedder(), [3], metrics=METRICS[level], **given)
    # A benchmark is scored within a budget of tokens too.
    asked = workspace.read_table(stored.scores.table).filter(pc.field("metric") == METRICS[level][0])
    assert result.raw_results.scores.equals(asked.filter(pc.field("cut") == "hits"))
    assert (result.raw_results.passages is None) == (level == "chunk-level")
    if level == "token-level":
        plain = kind(corpus, truth_of(corpus, level)).run(CHUNKER, LocalEmbedder(), [3], **(given | {"copies": "off"}))
        assert plain.metrics["span_recall@3"] <= result.metrics["span_recall@3"]


def test_what_a_notebook_cannot_take_is_told_in_a_sentence(corpus: Corpus) -> None:
    spans, ids = (
        kind(corpus, truth_of(corpus, kind.level))  # type: ignore[arg-type]
        for kind in (TokenLevelEvaluation, ChunkLevelEvaluation)
    )

    def told(evaluation: Any, **parts: Any) -> str:
        with pytest.raises(ConfigurationError) as error:
            evaluation.run(CHUNKER, LocalEmbedder(), 5, **parts)
        return str(error.value)

    assert told(spans, copies="nearly").startswith("copies: expected exact or off")
    assert told(spans, selection={"fetch_k": 4}).startswith("a selection has fetch_k 4 and the largest k is 5")
    assert told(spans, returns="windo").startswith("there is no passage 'windo' (did you mean window?)")
    assert told(ids, returns="section").startswith("returns applies to token-level evaluation only")
    assert told(ids, copies="exact").startswith("copies applies to token-level evaluation only")


def test_a_selection_that_leaves_nothing_is_told_before_anything_runs(tmp_path: Path, corpus: Corpus) -> None:
    selection = "[{where: {folder: bu}}, {where: {foldr: bus}}, {score_threshold: 0.1}]"
    with pytest.raises(ConfigurationError) as error:
        check_files(benchmark(tmp_path, corpus, "token-level", selection), file=tmp_path / "b.yaml")
    assert str(error.value).startswith('b.yaml, selection[0].where: where={"folder":"bu"} matches none of 9 documents')
    assert error.value.__notes__ == [
        "b.yaml, selection[1].where: no document has the field 'foldr' (did you mean folder?): use one of doc_id, "
        "folder, file, lang"
    ]


def test_what_a_filter_leaves_of_documents_and_questions_is_told(tmp_path: Path, corpus: Corpus) -> None:
    config = benchmark(tmp_path, corpus, "token-level", "{where: {folder: bus}}")
    (told,) = check_files(config).notes
    items = truth_of(corpus, "token-level")
    left = [one.id for one in corpus if str(one.id).startswith("bus/")]
    lost = [item for item in items if not any(span.doc_id in left for span in item.relevant_spans)]
    assert 0 < len(lost) < len(items)
    assert told == (
        f"selection.where leaves {len(left)} of 9 documents, in which {len(lost)} of {len(items)} questions have "
        "nothing relevant"
    )


def test_two_selections_are_not_called_the_same(tmp_path: Path, corpus: Corpus) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "about.csv").write_text("doc_id,kind\nbus/0.md,new\n")
    tables = "{where: {kind: new}, metadata: [about.csv, other/about.csv]}"
    told = r"two of the selection are named select where kind new metadata=about.csv: give one another name or file"
    with pytest.raises(ConfigurationError, match=told):
        benchmark(tmp_path, corpus, "token-level", tables)
