"""What is wrong in a file is said in one sentence: the file, the place in it, what is expected and what is there."""

import re

import pytest

from rag_eval.chunking import CHUNKER
from rag_eval.config.loading import load_config
from rag_eval.config.models import BenchmarkConfig
from rag_eval.errors import MOST, ConfigurationError, sentences, shown_sentences
from tests.config.conftest import Write

OWN = ", or module:Name for your own"
NAMES = ", ".join(CHUNKER.types)

WRONG_CHUNKERS = {
    "[markdown, {type: recursive-token, chunk_sise: 3}]": (
        "chunkers[1].chunk_sise: recursive-token has no such key (did you mean chunk_size?): "
        "use one of type, chunk_size, chunk_overlap, separators, encoding"
    ),
    "[markdown, {type: markdown, 7: 3}]": (
        "chunkers[1].'7': markdown has no such key: use one of type, max_chunk_size"
    ),
    "[markdwn]": f"chunkers[0]: there is no chunker 'markdwn' (did you mean markdown?): use one of {NAMES}{OWN}",
    "{type: xyz}": f"chunkers.type: there is no chunker 'xyz': use one of {NAMES}{OWN}",
    "[{type: [markdown, sentence]}]": f"chunkers[0].type: expected one name, found a list: use one of {NAMES}",
    "[{max_chunk_size: 3}]": f"chunkers[0]: the type of the chunker is missing: use one of {NAMES}",
    "": f"chunkers: expected a chunker, by name or with settings, found nothing: use one of {NAMES}",
    "[[markdown]]": f"chunkers[0]: expected a chunker, by name or with settings, found a list: use one of {NAMES}",
    "[]": "chunkers: an empty grid: give at least one value",
    "[{type: sentence, max_chunk_size: []}]": "chunkers[0].max_chunk_size: an empty grid: give at least one value",
    "{type: recursive-token, separators: []}": "chunkers.separators: an empty grid: give at least one value",
    "{type: recursive-token, separators: [[a], []]}": (
        "chunkers.separators[1]: an empty grid: give at least one value"
    ),
    "{type: sentence, max_chunk_size: '300'}": (
        "chunkers.max_chunk_size: expected a whole number, found the text '300'"
    ),
    "{type: sentence, max_chunk_size: [200, 1.5]}": "chunkers.max_chunk_size[1]: expected a whole number, found 1.5",
    "{type: sentence, max_chunk_size: null}": "chunkers.max_chunk_size: expected a whole number, found nothing",
    "{type: sentence, max_chunk_size: 0}": "chunkers.max_chunk_size: expected a number of at least 1, found 0",
    "{type: sentence, max_chunk_size: 2024-01-31}": (
        "chunkers.max_chunk_size: expected a whole number, found a date or time"
    ),
    "{type: sentence, max_chunk_size: !!binary aGk=}": "chunkers.max_chunk_size: expected a whole number, found bytes",
    "{type: semantic, breakpoint_percentile: .nan}": (
        "chunkers.breakpoint_percentile: expected a finite number, found nan"
    ),
    "{type: semantic, breakpoint_percentile: [50, 101]}": (
        "chunkers.breakpoint_percentile[1]: expected a number of at most 100, found 101"
    ),
    "{type: recursive-token, separators: [a, 1]}": "chunkers.separators[1]: expected text, found 1",
    "{type: recursive-token, separators: [[a], [b, 1]]}": "chunkers.separators[1][1]: expected text, found 1",
    "{type: recursive-token, separators: [[a], b]}": "chunkers.separators[0]: expected text, found a list",
    "{type: recursive-token, separators: a}": "chunkers.separators: expected a list, found the text 'a'",
    "{type: recursive-token, encoding: klingon}": (
        "chunkers: the encoding 'klingon' is unknown: use one of cl100k_base, o200k_base"
    ),
    "[markdown, {type: recursive-token, chunk_size: [200, 100], chunk_overlap: [0, 100]}]": (
        "chunkers[1]: chunk_overlap is 100 and chunk_size is 100: the overlap must be smaller"
    ),
    "{type: semantic, embedder: locl}": (
        "chunkers.embedder: there is no embedder 'locl' (did you mean local?): "
        f"use one of local, openai, sentence-transformers{OWN}"
    ),
    "{type: semantic, embedder: [local, {type: openai, dimensions: [2, 0]}]}": (
        "chunkers.embedder[1].dimensions[1]: expected a number of at least 1, found 0"
    ),
}

WRONG_SETTINGS = {
    "embedders: {type: openai, base_url: 'http://me:geheim@host/v1'}": (
        "embedders.base_url: expected an address such as http://localhost:8000/v1 without a user, a query or a "
        "fragment: the key is read from the environment"
    ),
    "embedders: {type: openai, max_tokens: 10}": (
        "embedders: max_tokens_per_text is 8,192 and max_tokens 10: a text must not be longer than a request"
    ),
    "embedders: [local, sentence-transformers]": "embedders[1].model: it is missing: give a value",
    "embedders: {type: sentence-transformers, model: ''}": (
        "embedders.model: expected text that is not empty, found the text ''"
    ),
    "embedders: {type: openai, timeout: 0}": "embedders.timeout: expected a number above 0, found 0",
    "embedders: {type: sentence-transformers, model: m, normalize: 1}": (
        "embedders.normalize: expected true or false, found 1"
    ),
    "embedders: {type: local, model: m}": "embedders.model: local has no such key: use one of type",
    "stores: shelf": f"stores: there is no store 'shelf': use one of lancedb, memory, chroma{OWN}",
    "stores: {type: lancedb, index: [none, hnws]}": (
        "stores.index[1]: there is no index 'hnws' (did you mean hnsw?): use one of none, ivf-flat, ivf-sq, "
        "ivf-pq, ivf-rq, hnsw-flat, hnsw, hnsw-pq"
    ),
    "rerankers: [null]": (
        "rerankers[0]: expected a reranker, by name or with settings, found nothing: "
        "use one of none, lexical, maxsim, cohere, cross-encoder"
    ),
    "retrieval: [vector, bm52]": (
        "retrieval[1]: there is no retriever 'bm52' (did you mean bm25?): use one of vector, bm25, hybrid, "
        f"lancedb{OWN}"
    ),
    "evaluation_type: tokens": ("evaluation_type: expected 'chunk-level' or 'token-level', found the text 'tokens'"),
    "k: 0": "k: expected a number of at least 1, found 0",
    "k: [1, five]": "k[1]: expected a whole number, found the text 'five'",
    "k: []": "k: an empty grid: give at least one value",
    "k: [3, 1]": "k: expected numbers in increasing order, each once, found [3, 1]",
    "objective: span_recall@8\nfetch_k: 6": "fetch_k: fetch_k is 6 and the largest k is 8: fetch at least as many",
    "fetch_k: 4": "fetch_k: fetch_k is 4 and the largest k is 5: fetch at least as many",
    "copies: nearly": "copies: expected exact or off, found the text 'nearly'",
    "selection: {where: {lang: {is: en}}}": (
        "selection.where: lang cannot be compared by 'is': use one of not, above, at_least, below, at_most, like"
    ),
    "selection: {wher: {a: 1}, fetch_k: 9}": (
        "selection.wher: select has no such key (did you mean where?): "
        "use one of type, where, metadata, query_filters, score_threshold, near_duplicates, fetch_k"
    ),
    "fetch_k: [10, 20]": "fetch_k: expected a whole number, found a list",
    "metrics: [span_iou, span_iou]": "metrics: span_iou is listed twice: remove one",
    "metrics: [span_iou, 3]": (
        "metrics[1]: expected a metric, by name or with settings, found 3: use one of span_recall, span_precision, "
        "span_iou, span_hit_rate, span_mrr, span_map or 18 others"
    ),
    "metrics: [recall_within_tokens]": (
        "metrics[0]: recall_within_tokens needs a budget of tokens, such as recall_within_tokens@2000"
    ),
    "budget: 0": "budget: expected a number of at least 1, found 0",
    "objective: span_recal": (
        "objective: there is no metric 'span_recal' here (did you mean span_recall?): use one of span_recall, "
        "span_precision, span_mrr, span_map, span_ndcg, span_hit_rate or 11 others"
    ),
    "metrics: span iou": (
        "metrics: 'span iou' is not a metric's name: write it like span_recall, span_recall@5 or chroma_iou@min"
    ),
    "metrics: [span_iou, chunk_f1]": (
        "metrics[1]: 'chunk_f1' is for chunk-level evaluation and evaluation_type is token-level: use one of "
        "span_recall, span_precision, span_iou, span_hit_rate, span_mrr, span_map or 11 others"
    ),
    "glob: ''": "glob: expected a pattern such as **/*.md, or a list of them, found the text ''",
    "glob: ['*.md', 3]": "glob: expected a pattern such as **/*.md, or a list of them, found a list",
    "embeders: local": (
        "embeders: a benchmark has no such key (did you mean embedders?): use one of embedders, loaders, rerankers, "
        f"queries, returns, metrics or {len(BenchmarkConfig.model_fields) - 6} others"
    ),
    "1: 2": (
        "'1': a benchmark has no such key: use one of corpus, glob, loaders, ground_truth, evaluation_type, chunkers "
        f"or {len(BenchmarkConfig.model_fields) - 6} others"
    ),
}


def message_of(write: Write, text: str, *, bare: bool = False) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load_config(write(text, bare=bare))
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return re.sub(r" \(line \d+\)", "", str(caught.value))


def test_a_mistake_is_named_with_its_line(write: Write) -> None:
    text = "chunkers:\n  - markdown\n  - type: sentence\n    max_chunk_size: [200, 0]\nk: [1,\n  five]\nfoo: 1\n"
    with pytest.raises(ConfigurationError) as caught:
        load_config(write(text))
    assert [sentence.partition(": ")[0] for sentence in sentences(caught.value)] == [
        "bench.yaml, chunkers[1].max_chunk_size[1] (line 6)",
        "bench.yaml, foo (line 9)",
        "bench.yaml, k[1] (line 8)",
    ]


@pytest.mark.parametrize("chunkers", WRONG_CHUNKERS)
def test_a_wrong_chunker_is_named_with_its_place(write: Write, chunkers: str) -> None:
    assert message_of(write, f"chunkers: {chunkers}") == f"bench.yaml, {WRONG_CHUNKERS[chunkers]}"


@pytest.mark.parametrize("setting", WRONG_SETTINGS)
def test_a_wrong_setting_is_named_with_its_place(write: Write, setting: str) -> None:
    assert message_of(write, f"chunkers: markdown\n{setting}") == f"bench.yaml, {WRONG_SETTINGS[setting]}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ground_truth: t\nchunkers: markdown", "corpus: it is missing: give a value"),
        ("corpus: c\nchunkers: markdown", "ground_truth: it is missing: give a value"),
        ("corpus: c\nground_truth: t", "nothing to compare: add chunkers or a system"),
        ("corpus: ''\nground_truth: t\nchunkers: markdown", "corpus: expected a path, found the text ''"),
        ("corpus: 3\nground_truth: t\nchunkers: markdown", "corpus: expected a path, found 3"),
        (
            "corpus: c\nground_truth: 3\nchunkers: markdown",
            "ground_truth: expected the path of a file, {langsmith: name}",
        ),
        ("corpus: c\nground_truth: ''\nchunkers: markdown", "ground_truth: expected a path, found the text ''"),
        ("corpus: c\nground_truth: []\nchunkers: markdown", "ground_truth: the list is empty: give the path of a file"),
        ("corpus: c\nground_truth: [t, t]\nchunkers: markdown", "ground_truth: file t is listed twice: remove one"),
        ("corpus: c\nground_truth: [t, [u]]\nchunkers: markdown", "ground_truth[1]: expected the path of a file"),
        (
            "corpus: c\nground_truth: {langsmiht: x}\nchunkers: markdown",
            "ground_truth.langsmiht: a truth source has no such key (did you mean langsmith?)",
        ),
        (
            "corpus: c\nground_truth: {langsmith: ''}\nchunkers: markdown",
            "ground_truth.langsmith.dataset: expected text that is not empty, found the text ''",
        ),
        ("corpus: c\nground_truth: {type: langsmith}\nchunkers: markdown", "ground_truth.dataset: it is missing: give"),
        ("corpus: c\nground_truth: {type: 'no:Nix'}\nchunkers: markdown", "ground_truth.type: there is no module 'no'"),
        ('corpus: "a\\0b"\nground_truth: t\nchunkers: markdown', "corpus: expected a path"),
    ],
)
def test_documents_truth_and_chunkers_are_needed(write: Write, text: str, expected: str) -> None:
    assert message_of(write, text, bare=True).removeprefix("bench.yaml")[2:].startswith(expected)


@pytest.mark.parametrize("section", ["embedders: {type: openai, api_key: geheim}", "api_key: geheim"])
def test_a_key_in_a_file_is_refused_and_not_repeated(write: Write, section: str) -> None:
    message = message_of(write, f"chunkers: markdown\n{section}")
    assert message.endswith("(keys of services are read from the environment)")
    assert "geheim" not in message


def test_every_mistake_of_a_file_is_told_once(write: Write) -> None:
    text = "chunkers: [{type: markdown, max_chunk_size: [0, x], y: 1}, {type: sentence, max_chunk_size: [0, x]}]\n"
    path = write(text + "embedders: nope\nk: []\nmetrics: [recal]\nfoo: 1\nfetch_k: 0\n")
    with pytest.raises(ConfigurationError) as caught:
        load_config(path)
    places = [sentence.partition(" (line")[0].removeprefix("bench.yaml, ") for sentence in sentences(caught.value)]
    first = ["chunkers[0].y", "chunkers[0].max_chunk_size[0]", "chunkers[0].max_chunk_size[1]"]
    second = ["chunkers[1].max_chunk_size[0]", "chunkers[1].max_chunk_size[1]"]
    assert places == [*first, *second, "embedders", "foo", "k", "metrics[0]", "fetch_k"]
    assert len(shown_sentences(caught.value)) == len(places)


def test_every_mistake_of_a_grid_is_told_once(write: Write) -> None:
    text = "chunkers: {type: recursive-token, chunk_size: [0, x], chunk_overlap: [-1, 20]}\nk: 0\n"
    with pytest.raises(ConfigurationError) as caught:
        load_config(write(text))
    assert [re.sub(r"^bench.yaml, | \(line \d+\)", "", sentence) for sentence in sentences(caught.value)] == [
        "chunkers.chunk_size[0]: expected a number of at least 1, found 0",
        "chunkers.chunk_overlap[0]: expected a number of at least 0, found -1",
        "chunkers.chunk_size[1]: expected a whole number, found the text 'x'",
        "k: expected a number of at least 1, found 0",
    ]


def test_of_very_many_mistakes_the_first_are_shown_and_the_rest_is_counted(write: Write) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_config(write("chunkers: markdown\n" + "".join(f"wrong{number}: 1\n" for number in range(50))))
    assert len(sentences(caught.value)) == 50
    shown = shown_sentences(caught.value)
    assert len(shown) == MOST + 1
    assert shown[-1] == "… and 30 more mistakes: correct these first"


def test_a_grid_of_more_than_a_thousand_is_refused_with_its_count(write: Write) -> None:
    sizes, overlaps = list(range(1000, 1100)), list(range(10))
    grid = f"chunkers: {{type: recursive-token, chunk_size: {sizes}, chunk_overlap: {overlaps}}}\n"
    assert len(load_config(write(grid)).configurations()) == 1000
    assert message_of(write, grid + "retrieval: [vector, bm25, hybrid]") == (
        "bench.yaml: the grid has 3,000 configurations: reduce it to at most 1,000"
    )
    huge = ", ".join(
        f"{key}: {list(range(1, 1001))}" for key in ("m", "nprobes", "ef", "ef_construction", "num_partitions")
    )
    assert message_of(write, f"chunkers: markdown\nstores: {{type: lancedb, index: {{type: hnsw, {huge}}}}}") == (
        "bench.yaml, stores: the grid has 1,000,000,000,000,000 stores: reduce it to at most 1,000"
    )


def test_a_long_text_is_cut_in_a_message(write: Write) -> None:
    assert len(message_of(write, f"chunkers: markdown\nk: {'x' * 100_000}")) < 200
    assert len(message_of(write, f"chunkers: markdown\n{'x' * 1000}: 1")) < 400
    assert len(message_of(write, f"chunkers: {'x' * 10_000}")) < 400
