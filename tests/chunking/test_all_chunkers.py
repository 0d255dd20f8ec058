"""The contract of every built-in chunker, on texts that break chunkers."""

import pytest
from chunker_contract import TrigramEmbedder, check_contract
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import known_texts, nasty_texts

from rag_eval.chunking.chunker import BuiltInChunker, Chunker, PositionAwareChunker
from rag_eval.chunking.fixed_token import FixedTokenChunker
from rag_eval.chunking.markdown import MarkdownChunker
from rag_eval.chunking.recursive import RecursiveCharacterChunker, RecursiveTokenChunker
from rag_eval.chunking.semantic import ClusterSemanticChunker, SemanticChunker
from rag_eval.chunking.sentence import SentenceChunker
from rag_eval.errors import ConfigurationError, TextEncodingError


@pytest.mark.parametrize(
    ("chunker", "size"),
    [
        *((RecursiveCharacterChunker(*sizes), None) for sizes in ((1000, 200), (50, 0), (30, 29))),
        *((RecursiveTokenChunker(*sizes), None) for sizes in ((400, 0), (20, 19))),
        *((FixedTokenChunker(*sizes), None) for sizes in ((100, 0), (7, 3))),
        (SentenceChunker(100, 1), 100),
        (MarkdownChunker(100), 100),
        (SemanticChunker(TrigramEmbedder(), max_chunk_size=300), 300),
        (ClusterSemanticChunker(TrigramEmbedder(), 500, 200), 500),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_contract_on_known_texts(chunker: BuiltInChunker, size: int | None) -> None:
    for text in known_texts().values():
        check_contract(chunker, text, size, may_be_blank=isinstance(chunker, FixedTokenChunker))


@settings(deadline=None, derandomize=True, max_examples=300)
@given(nasty_texts(), st.integers(1, 40), st.integers(0, 3), st.sampled_from([0, 50, 95, 100]), st.booleans())
def test_contract(text: str, size: int, few: int, percentile: float, is_limited: bool) -> None:
    check_contract(SentenceChunker(size, few), text, size)
    limit = size if is_limited else None
    check_contract(SemanticChunker(TrigramEmbedder(), percentile, few, limit), text, limit)
    check_contract(ClusterSemanticChunker(TrigramEmbedder(), size + 20 * few, size), text, size + 20 * few)


@pytest.mark.parametrize("unit", ["a", "\n", " ", "👍🏽", "ab ", "x\n\n", ".\n", "漢", "a.)", ")"])
@pytest.mark.parametrize(
    "chunker",
    [RecursiveCharacterChunker(), RecursiveTokenChunker(), SentenceChunker(100)],
    ids=lambda chunker: chunker.name,
)
def test_long_texts_of_one_unit_are_cut_up_to_the_end(chunker: BuiltInChunker, unit: str) -> None:
    text = unit * (300_000 // len(unit)) + "end"
    assert chunker.cuts(text)[-1][1] == len(text)


@pytest.mark.parametrize("chunker", [FixedTokenChunker(2), RecursiveTokenChunker(2)], ids=lambda chunker: chunker.name)
def test_special_tokens_are_text_and_lone_surrogates_are_refused(chunker: BuiltInChunker) -> None:
    assert chunker.chunk("<|endoftext|>")[0] == "<|"
    with pytest.raises(TextEncodingError, match="lone surrogate"):
        chunker.cuts("abc \ud800 def")


def test_chunkers_satisfy_both_protocols() -> None:
    assert isinstance(SentenceChunker(), Chunker)
    assert isinstance(SentenceChunker(), PositionAwareChunker)


@pytest.mark.parametrize(
    ("chunker", "name"),
    [
        (FixedTokenChunker(), "FixedTokenChunker(tokens_per_chunk=100, chunk_overlap=0, encoding=cl100k_base)"),
        (RecursiveTokenChunker(), "RecursiveTokenChunker(chunk_size=400, chunk_overlap=0, encoding=cl100k_base)"),
        (SentenceChunker(), "SentenceChunker(max_chunk_size=1000, sentence_overlap=0)"),
        (MarkdownChunker(500), "MarkdownChunker(max_chunk_size=500)"),
        (
            SemanticChunker(TrigramEmbedder(), 90),
            "SemanticChunker(embedder=trigrams, breakpoint_percentile=90.0, window=1, max_chunk_size=None)",
        ),
        (
            ClusterSemanticChunker(TrigramEmbedder(), 3),
            "ClusterSemanticChunker(embedder=trigrams, max_chunk_size=3, piece_size=1)",
        ),
    ],
)
def test_names_contain_the_settings(chunker: BuiltInChunker, name: str) -> None:
    assert chunker.name == name


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (FixedTokenChunker, {"tokens_per_chunk": 0}, "a number of at least 1, found 0"),
        (FixedTokenChunker, {"chunk_overlap": 100}, "the overlap must be smaller"),
        (FixedTokenChunker, {"encoding": "gpt-4"}, "the encoding 'gpt-4' is unknown"),
        (RecursiveCharacterChunker, {"chunk_size": 10.5}, "a whole number, found 10.5"),
        (RecursiveCharacterChunker, {"chunk_size": "10"}, "a whole number, found the text '10'"),
        (RecursiveCharacterChunker, {"chunk_size": 100, "chunk_overlap": 100}, "the overlap must be smaller"),
        *((RecursiveCharacterChunker, {"separators": wrong}, "separators") for wrong in ([], "\n", ["\n", 3], None)),
        (RecursiveTokenChunker, {"chunk_size": True}, "a whole number, found true"),
        (RecursiveTokenChunker, {"chunk_overlap": -1}, "a number of at least 0, found -1"),
        (RecursiveTokenChunker, {"encoding": None}, "encoding"),
        (SentenceChunker, {"sentence_overlap": -1}, "a number of at least 0, found -1"),
        (MarkdownChunker, {"max_chunk_size": 0}, "a number of at least 1, found 0"),
        (SemanticChunker, {"breakpoint_percentile": 101}, "breakpoint_percentile"),
        (SemanticChunker, {"breakpoint_percentile": float("nan")}, "breakpoint_percentile"),
        (SemanticChunker, {"window": -1}, "a number of at least 0, found -1"),
        (SemanticChunker, {"embedder": TrigramEmbedder}, "embedder"),
        (ClusterSemanticChunker, {"max_chunk_size": 100, "piece_size": 101}, "must not be larger than a chunk"),
        (ClusterSemanticChunker, {"embedder": "cats"}, "there is no embedder 'cats'"),
    ],
)
def test_invalid_settings_are_refused(kind: type[BuiltInChunker], settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        kind(**settings)
