"""Load HTML pages, Word documents and notebooks as the text that a reader sees.

Headings are written as in Markdown, so that chunkers and contexts recognise them. Tables are written row by row.
"""

import io
import json
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from xml.etree import ElementTree

from rag_eval.documents.boxes import WordBox
from rag_eval.errors import UnreadableDocumentError
from rag_eval.parts import part

MOST_EXPANDED = 200_000_000
"""Maximum size in bytes of an unpacked Word document."""


@dataclass(frozen=True)
class LoadedText:
    """The text of a document.

    Args:
        text: The text.
        places: The offsets and names of pages, cells or other elements, in order.
        boxes: Where the words are on their pages, in the order of the text, or packed.
    """

    text: str
    places: list[tuple[int, str]] = field(default_factory=list)
    boxes: bytes | Sequence[WordBox] = b""


class Loader(Protocol):
    """Reads text from files of one format."""

    def load(self, data: bytes) -> LoadedText:
        """Return the text of a file. Raises ``UnreadableDocumentError`` if it has none."""


_BEGINNINGS = ("- ", *("#" * level + " " for level in range(1, 7)))


class _Pieces:
    """A growing text without blanks at line ends and with at most one empty line between parts."""

    def __init__(self) -> None:
        self.places: list[tuple[int, str]] = []
        self._parts: list[str] = []
        self._length = 0
        self._breaks = 2  # the number of line breaks at the end, as if some preceded the text

    def add(self, text: str) -> None:
        """Append a text unchanged."""
        if text:
            self._parts.append(text)
            self._length += len(text)
            self._breaks = 0

    def words(self, text: str) -> None:
        """Append a text with single blanks, and none at the start of a line."""
        plain = re.sub(r"[ \t\r\n\f\xa0]+", " ", text)
        ends_blank = self._parts and self._parts[-1][-1:] in " \n"
        self.add(plain.removeprefix(" ") if self._breaks or ends_blank else plain)

    def line(self, breaks: int = 1) -> None:
        """End the line; with 2 breaks, also leave an empty line."""
        if self._parts and self._parts[-1] in _BEGINNINGS:
            return  # the item or heading is still empty
        if self._parts and not self._breaks:
            last = self._parts[-1]
            self._parts[-1] = last.rstrip(" ")
            self._length -= len(last) - len(self._parts[-1])
        missing = breaks - self._breaks
        if missing > 0:
            self._parts.append("\n" * missing)
            self._length += missing
            self._breaks += missing

    def mark(self, name: str) -> None:
        """Record that an element starts here."""
        self.places.append((self._length, name))

    def loaded(self) -> LoadedText:
        """Return the text."""
        text = "".join(self._parts).rstrip()
        return LoadedText(f"{text}\n" if text else "", [place for place in self.places if place[0] < max(1, len(text))])


_SKIPPED = ("script", "style", "noscript", "template", "svg", "iframe", "object", "canvas", "audio", "video", "select")
_BLOCKS = frozenset(
    {"address", "article", "aside", "blockquote", "body", "dd", "div", "dl", "dt", "fieldset", "figcaption", "figure"}
    | {"footer", "form", "header", "hr", "main", "nav", "ol", "p", "pre", "section", "table", "ul", "title"}
)
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_DISPLAY_NONE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)


def _is_hidden(tag: str, attributes: Mapping[str, str]) -> bool:
    if tag in ("html", "body"):
        return False  # a script reveals such pages
    is_closed = tag == "dialog" and "open" not in attributes
    style = attributes.get("style", "")
    return tag in _SKIPPED or is_closed or "hidden" in attributes or _DISPLAY_NONE.search(style) is not None


class _Page:
    """Receives the elements of a page from the parser, which closes those without an end tag."""

    def __init__(self) -> None:
        self.pieces = _Pieces()
        self._hidden = 0  # number of open elements since the hidden one
        self._preformatted = 0
        self._cells = 0

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        if self._hidden or _is_hidden(tag, attributes):
            self._hidden += 1
        elif tag in _HEADINGS:
            self.pieces.line(2)
            self.pieces.add("#" * int(tag[1]) + " ")
        elif tag in _BLOCKS:
            self._border()
            self._preformatted += tag == "pre" and not self._cells
        elif tag in ("br", "tr"):
            self.pieces.line()
            self._cells = 0
        elif tag == "li":
            self.pieces.line()
            self.pieces.add("- ")
        elif tag in ("td", "th"):
            if self._cells:
                self.pieces.words(" ")
                self.pieces.add("| ")
            self._cells += 1

    def end(self, tag: str) -> None:
        if self._hidden:
            self._hidden -= 1
            return
        if tag in ("tr", "table"):
            self._cells = 0
        if tag in _HEADINGS:
            self.pieces.line(2)
        elif tag in _BLOCKS:
            self._border()
            self._preformatted = max(0, self._preformatted - (tag == "pre" and not self._cells))
        elif tag in ("tr", "li"):
            self.pieces.line()

    def _border(self) -> None:
        """Separate blocks by an empty line or, inside a table row, by a blank."""
        if self._cells:
            self.pieces.words(" ")
        else:
            self.pieces.line(2)

    def data(self, text: str) -> None:
        if not self._hidden:
            if self._preformatted:
                self.pieces.add(text)
            else:
                self.pieces.words(text)

    def close(self) -> LoadedText:
        return self.pieces.loaded()


@part
class HtmlLoader:
    """Loads the text of a page without scripts, styles and hidden elements."""

    def load(self, data: bytes) -> LoadedText:
        """Return the text. Pages that are not UTF-8 are decoded in their own charset, or as Windows-1252.

        Raises ``UnreadableDocumentError`` on binary data.
        """
        from lxml import etree

        parser = etree.HTMLParser(target=_Page(), encoding="utf-8", huge_tree=True)
        try:
            loaded: LoadedText = etree.fromstring(_decoded(data).encode("utf-8", "replace"), parser)
        except etree.XMLSyntaxError:  # a page without text
            return LoadedText("")
        return loaded


_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
BINARY = "is not text: it contains binary data"
_CONTROLS = bytes({*range(32)} - {*b"\t\n\f\r\x1b"})
MOST_CONTROLS = 0.05
"""Share of control characters above which data counts as binary."""


def is_binary(data: bytes) -> bool:
    """Return whether data is not text in any encoding. UTF-16 is text only with a byte-order mark."""
    if data.startswith(_UTF_16):
        return False
    return b"\0" in data or len(data) - len(data.translate(None, _CONTROLS)) > MOST_CONTROLS * len(data)


def _decoded(data: bytes) -> str:
    if data.startswith(_UTF_16):
        return data.decode("utf-16", "replace")
    if is_binary(data):
        raise UnreadableDocumentError(BINARY)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        charset = re.search(rb"charset\s*=\s*[\"']?\s*([\w-]+)", data[:4096], re.IGNORECASE)
        try:
            return data.decode(charset[1].decode() if charset else "cp1252", "replace")
        except (LookupError, UnicodeError):
            return data.decode("cp1252", "replace")


@part
class DocxLoader:
    """Loads the paragraphs, lists and tables of a Word document, without comments and deleted text."""

    def load(self, data: bytes) -> LoadedText:
        """Return the text. Raises ``UnreadableDocumentError`` if it is not a Word document, or too large."""
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive, archive.open("word/document.xml") as file:
                xml = file.read(MOST_EXPANDED + 1)
        except KeyError:
            raise UnreadableDocumentError("is not a Word document: it has no word/document.xml") from None
        except Exception as error:  # noqa: BLE001  # zipfile, zlib and lzma each raise their own on damaged data
            raise UnreadableDocumentError(f"is not a Word document, or damaged ({error})") from None
        if len(xml) > MOST_EXPANDED:
            raise UnreadableDocumentError(f"has more than {MOST_EXPANDED:,} bytes when unpacked")
        if b"<!DOCTYPE" in xml or b"\0" in xml:  # XML bombs use entities, perhaps in UTF-16
            raise UnreadableDocumentError("has a DOCTYPE or is not UTF-8, unlike any Word document")
        try:
            root = ElementTree.fromstring(xml)  # noqa: S314  # without a DOCTYPE there are no entities
        except (ElementTree.ParseError, ValueError) as error:
            raise UnreadableDocumentError(f"is a Word document with broken XML ({error})") from None
        pieces = _Pieces()
        for body in root.iterfind("{*}body"):
            _write_blocks(body, pieces)
        return pieces.loaded()


# Word uses two namespaces, so elements are found by their local names.

_AROUND = ("sdt", "sdtContent", "customXml", "ins", "moveTo", "smartTag")
_SKIPPED_IN_PARAGRAPHS = ("del", "moveFrom", "Fallback", "pPr", "rPr")


def _local(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _inside(parent: ElementTree.Element, *names: str) -> Iterator[ElementTree.Element]:
    """Yield the children of an element with one of these names, including those in wrappers."""
    for child in parent:
        if _local(child) in _AROUND:
            yield from _inside(child, *names)
        elif _local(child) in names:
            yield child


def _write_blocks(parent: ElementTree.Element, pieces: _Pieces) -> None:
    for block in _inside(parent, "p", "tbl"):
        if _local(block) == "p":
            _write_paragraph(block, pieces)
            continue
        pieces.line(2)
        for row in _inside(block, "tr"):
            pieces.words(" | ".join(" ".join(_paragraph(cell).split()) for cell in _inside(row, "tc")))
            pieces.line()
        pieces.line(2)


def _write_paragraph(paragraph: ElementTree.Element, pieces: _Pieces) -> None:
    is_item = paragraph.find("{*}pPr/{*}numPr") is not None
    named = paragraph.find("{*}pPr/{*}pStyle")
    styles = [] if named is None else [value for key, value in named.attrib.items() if key.rpartition("}")[2] == "val"]
    heading = re.fullmatch(
        r"(?:title|(?:heading|Überschrift|berschrift|titre|titolo)?\s*([1-6]))", "".join(styles), re.I
    )
    pieces.line(1 if is_item else 2)
    if heading:
        pieces.add("#" * int(heading[1] or 1) + " ")
    elif is_item:
        pieces.add("- ")
    pieces.words(_paragraph(paragraph))


def _paragraph(parent: ElementTree.Element) -> str:
    """Return the text of a paragraph or a cell without what was deleted or moved away."""
    written = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
    pieces = []
    for child in parent:
        name = _local(child)
        if name == "t":
            pieces.append(child.text or "")
        elif name not in _SKIPPED_IN_PARAGRAPHS:
            pieces.append(written.get(name) or _paragraph(child) + (" " if name == "p" else ""))
    return "".join(pieces)


@part
class NotebookLoader:
    """Loads the cells of a Jupyter notebook: Markdown, code between fences, and printed text."""

    def load(self, data: bytes) -> LoadedText:
        """Return the text and the offsets of the cells. Raises ``UnreadableDocumentError`` if it is not a notebook."""
        try:
            cells = json.loads(data)["cells"]
            pieces = _Pieces()
            for number, cell in enumerate(cells, start=1):
                text = _joined(cell["source"]).rstrip()
                blocks = [text]
                if cell["cell_type"] == "code":
                    code = f"```python\n{text}\n```" if text.strip() else ""
                    blocks = [code, *(f"```\n{output}\n```" for output in _outputs(cell) if output.strip())]
                pieces.line(2)
                pieces.mark(f"cell {number}")
                for block in blocks:
                    if block.strip():
                        pieces.line(2)
                        pieces.add(block)
            return pieces.loaded()
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise UnreadableDocumentError("is not a Jupyter notebook of version 4") from None


def _joined(source: object) -> str:
    return "".join(source) if isinstance(source, list) else str(source)


def _outputs(cell: Mapping[str, Any]) -> Iterator[str]:
    for output in cell.get("outputs", []):
        yield _joined(output.get("text") or output.get("data", {}).get("text/plain") or "").rstrip()
