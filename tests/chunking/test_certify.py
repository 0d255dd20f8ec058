import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from chunker_contract import TrigramEmbedder

from rag_eval.chunking.certify import CHECKS, Certificate, Check, certify, nasty_texts
from rag_eval.chunking.chunker import BuiltInChunker
from rag_eval.chunking.markdown import MarkdownChunker
from rag_eval.chunking.placement import ChunkerPositionAdapter
from rag_eval.chunking.semantic import ClusterSemanticChunker, SemanticChunker
from rag_eval.chunking.sentence import SentenceChunker
from rag_eval.errors import ConfigurationError, TextEncodingError
from rag_eval.types.chunks import PositionAwareChunk
from rag_eval.types.documents import Document
from rag_eval.types.ids import generate_pa_chunk_id


def check(certificate: Certificate, name: str) -> Check:
    return next(check for check in certificate.checks if check.name == name)


def failed(certificate: Certificate) -> list[str]:
    return [check.name for check in certificate.checks if check.status == "failed"]


@dataclass
class Placed:
    """A position-aware chunker that cuts where it is told, right or wrong."""

    cuts: Callable[[str], list[tuple[str, int, int]]]
    name: str = "placed"

    def chunk_with_positions(self, doc: Document) -> list[PositionAwareChunk]:
        return [
            PositionAwareChunk(generate_pa_chunk_id(text), text, doc.id, start, end)
            for text, start, end in self.cuts(doc.content)
        ]


@dataclass
class Claim:
    text: str
    start_index: int


@pytest.mark.parametrize(
    "chunker",
    [
        SentenceChunker(100, 1),
        MarkdownChunker(100),
        SemanticChunker(TrigramEmbedder(), max_chunk_size=300),
        ClusterSemanticChunker(TrigramEmbedder(), 500, 200),
    ],
    ids=lambda chunker: type(chunker).__name__,
)
def test_built_in_chunkers_pass_on_the_nasty_texts(chunker: BuiltInChunker) -> None:
    certificate = certify(chunker)
    assert certificate.passed, str(certificate)
    assert certificate.positions == "own"
    assert [check.status for check in certificate.checks] == ["passed"] * len(CHECKS)
    assert certificate.texts == len(nasty_texts())


def test_the_nasty_texts_are_what_they_say() -> None:
    texts = nasty_texts()
    assert texts == nasty_texts()
    assert texts["empty"] == ""
    assert texts["whitespace only"].isspace()
    assert len(texts["1 MB line"]) == 1_000_000
    assert len(texts["1 MB line"].splitlines()) == 1
    everything = "".join(texts.values())
    for part in (
        "\r\n",
        "\r\r",
        "\x00",
        "\ufeff",
        "\u200d",
        "\u0301",
        "\u2028",
        "<|endoftext|>",
        "```",
        "।",
        "؟",
        "。",
    ):
        assert part in everything


@pytest.mark.parametrize(
    ("cuts", "failing", "example"),
    [
        (lambda text: [("b c", 1, 4)], "exact slices", "t at 1: 'b c'"),
        (lambda text: [("a b c d", 0, 99)], "exact slices", "t at 0: 'a b c d'"),
        (
            lambda text: [("", 0, 0), (text, 0, 7)],
            "runs",
            "t: \"InvalidSpanError: the span [0, 0) of 'certified' holds no character: "
            'start must be 0 or more and be…"',
        ),
        (lambda text: [(text, 0, 7), ("a", 0, 1)], "increasing starts", "t at 0: after a start at 0: 'a'"),
        (lambda text: [("a", 0, 1), ("c d", 4, 7)], "coverage", "t at 2: 'b'"),
        (lambda text: [("a b c", 0, 5)], "coverage", "t at 6: 'd'"),
        (lambda text: text.undefined, "runs", "t: \"AttributeError: 'str' object has no attribute 'undefined'\""),
    ],
)
def test_each_failure_is_found_with_its_first_example(
    cuts: Callable[[str], list[tuple[str, int, int]]], failing: str, example: str
) -> None:
    certificate = certify(Placed(cuts), {"t": "a b c d"})
    assert not certificate.passed
    assert failing in failed(certificate)
    assert str(check(certificate, failing).example) == example
    assert check(certificate, failing).failures == 1


def test_lost_characters_are_counted_one_by_one() -> None:
    certificate = certify(Placed(lambda text: [("one", 0, 3)]), {"t": "one two three"})
    assert (check(certificate, "coverage").failures, check(certificate, "coverage").looked_at) == (8, 11)


def test_a_chunker_that_changes_its_mind() -> None:
    runs = iter(range(100))
    certificate = certify(Placed(lambda text: [(text, 0, len(text))] * (1 + next(runs) % 2)), ["a", "b"])
    assert check(certificate, "determinism").failures == 2
    assert str(check(certificate, "determinism").example) == "text 1: the second run differs"


def test_the_size_limit_is_found_or_does_not_apply() -> None:
    assert check(certify(str.split, ["aaa b"]), "size limit").status == "not applicable"

    @dataclass(frozen=True)
    class Broken(BuiltInChunker):
        max_chunk_size: int = 2

        def cuts(self, text: str) -> list[tuple[int, int]]:
            return [(0, len(text))]

    assert failed(certify(Broken(), ["aaa"])) == ["size limit"]
    assert certify(Broken(), ["aa"]).passed


def test_a_chunk_of_another_document_is_not_an_exact_slice() -> None:
    class Elsewhere(Placed):
        def chunk_with_positions(self, doc: Document) -> list[PositionAwareChunk]:
            return [replace(chunk, doc_id="other.md") for chunk in super().chunk_with_positions(doc)]

    certificate = certify(Elsewhere(lambda text: [(text, 0, len(text))]), {"t": "a b"})
    assert failed(certificate) == ["exact slices"]
    assert "t at 0: 'a b' (of 'other.md'" in str(check(certificate, "exact slices").example)


def test_what_the_adapter_could_not_place_is_said_beside_what_is_lost() -> None:
    pieces = ["ab", "cd"]  # "cd" stands twice, too far away to tell which it is
    certificate = certify(lambda text: pieces, {"t": f"ab {'-' * 5000} cd {'-' * 5000} cd"})
    assert str(check(certificate, "coverage").example).endswith(
        "(places found by the adapter, 1 of 2 chunks without one)"
    )
    out_of_order = certify(lambda text: ["b", "a"], {"t": "a b"})
    assert "(places found by the adapter, 0 of 2" in str(check(out_of_order, "increasing starts").example)


def test_claims_are_certified_as_they_are() -> None:
    certificate = certify(lambda text: [Claim("ab", 0), Claim("ab", 2)], ["ab ab"])
    assert certificate.positions == "claimed"
    assert failed(certificate) == ["exact slices", "coverage"]
    assert check(certificate, "exact slices").failures == 1


def test_without_claims_what_the_adapter_finds_is_certified() -> None:
    certificate = certify(str.split, ["ab ab  ab"])
    assert (certificate.positions, certificate.chunks, certificate.passed) == ("found", 3, True)
    lossy = certify(lambda text: [text.lower(), "made up"], ["A b"])
    assert (lossy.skipped_chunks, failed(lossy)) == (2, ["exact slices", "coverage"])
    normalised = certify(lambda text: [" ".join(text.split())], ["a  b"])
    assert (normalised.skipped_chunks, failed(normalised)) == (0, ["exact slices"])


def test_an_adapter_is_certified_for_what_it_finds_even_where_its_chunker_claims() -> None:
    certificate = certify(ChunkerPositionAdapter(lambda text: [Claim("ab", 0), Claim("ab", 1)], name="c"), ["ab ab"])
    assert certificate.chunker == "PositionAdapter(c)"
    assert (certificate.positions, certificate.passed) == ("found", True)


def windows(unit: str, size: int, stride: int) -> Callable[[str], list[tuple[int, int]]]:
    """Cut windows of so many units, each so many after the one before: every one a slice, none skipped."""

    def cuts(text: str) -> list[tuple[int, int]]:
        units = [match.span() for match in re.finditer(unit, text)]
        starts = range(0, max(len(units) - size + stride, 1) if units else 0, stride)
        return [(units[i][0], units[min(i + size, len(units)) - 1][1]) for i in starts]

    return cuts


CHARACTER, WORD, LINE, SENTENCE = r"(?s:.)", r"\S+", r"[^\n]*\n|[^\n]+", r"[^.!?。]+[.!?。]*\s*|[.!?。]+\s*"
WINDOWS = {
    "characters 100/50": windows(CHARACTER, 100, 50),
    "characters 100/90": windows(CHARACTER, 100, 90),
    "characters 64/63": windows(CHARACTER, 64, 63),
    "characters 150/20": windows(CHARACTER, 150, 20),
    "characters 1000/800": windows(CHARACTER, 1000, 800),
    "words 20/10": windows(WORD, 20, 10),
    "words 12/5": windows(WORD, 12, 5),
    "lines 3/1": windows(LINE, 3, 1),
    "lines 10/7": windows(LINE, 10, 7),
    "sentences 2/1": windows(SENTENCE, 2, 1),
}


def short_texts() -> dict[str, str]:
    """The texts without the one that has no line end and a megabyte."""
    return {name: text for name, text in nasty_texts().items() if len(text) < 100_000}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_that_are_perfect_by_construction_do_not_fail(name: str) -> None:
    certificate = certify(lambda text: [text[start:end] for start, end in WINDOWS[name](text)], short_texts())
    assert certificate.positions == "found"
    assert certificate.passed, str(certificate)


def without(pieces: list[str], index: int) -> list[str]:
    return pieces[:index] + pieces[index + 1 :] if len(pieces) > 10 else pieces


TURNS = iter(range(10**6))
FAULTS: dict[str, tuple[str, Callable[[list[str]], list[str]]]] = {
    "characters 100/50": ("coverage", lambda pieces: without(without(pieces, 5), 5)),
    "characters 100/90": ("coverage", lambda pieces: without(pieces, 5)),
    "characters 64/63": ("exact slices", lambda pieces: [piece.lower() for piece in pieces]),
    "characters 150/20": ("coverage", lambda pieces: pieces[:-8]),
    "characters 1000/800": ("coverage", lambda pieces: [piece[:799] for piece in pieces]),
    "words 20/10": ("increasing starts", lambda pieces: [*pieces[:3], *pieces[3:5][::-1], *pieces[5:]]),
    "words 12/5": ("exact slices", lambda pieces: [" ".join(piece.split()) for piece in pieces]),
    "lines 3/1": ("increasing starts", lambda pieces: [*pieces[:4], *pieces[3:]]),
    "lines 10/7": ("exact slices", lambda pieces: [*pieces, ""]),
    "sentences 2/1": ("determinism", lambda pieces: pieces[next(TURNS) % 2 :]),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_planted_in_windows_is_found(name: str) -> None:
    failing, spoil = FAULTS[name]
    certificate = certify(lambda text: spoil([text[a:b] for a, b in WINDOWS[name](text)]), short_texts())
    assert failing in failed(certificate), str(certificate)


def test_the_certificate_as_text() -> None:
    text = str(certify(lambda text: [text.replace("|", "")], {"pipes": "a|b\x00"}))
    lines = text.splitlines()
    assert "FAILED (1 texts, 1 chunks, 1 without a place; positions found by ChunkerPositionAdapter)" in lines[0]
    assert "\x00" not in text
    assert r"coverage: failed, 4 of 4, first pipes at 0: 'a|b\x00' (places found by the adapter" in text


def test_what_cannot_be_certified() -> None:
    with pytest.raises(ConfigurationError, match="is not a chunker"):
        certify(5)
    with pytest.raises(ConfigurationError, match="no texts"):
        certify(str.split, [])
    with pytest.raises(ConfigurationError, match="texts is 'text': give a list"):
        certify(str.split, "text")
    with pytest.raises(ConfigurationError, match="texts is '5': give a list"):
        certify(str.split, 5)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="the text 'text 1' is '1': give strings"):
        certify(str.split, [1])  # type: ignore[list-item]
    with pytest.raises(TextEncodingError, match="'bad'"):
        certify(str.split, {"bad": "\ud800"})


def test_an_interrupt_is_not_swallowed() -> None:
    def interrupted(text: str) -> list[str]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        certify(interrupted, ["a"])
