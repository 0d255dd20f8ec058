"""Files of several formats, made of known text."""

import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from xml.sax.saxutils import escape

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def docx(paragraphs: Sequence[tuple[str, str]], table: Sequence[Sequence[str]] = ()) -> bytes:
    """A Word document of paragraphs with their styles, and a table at its end."""
    body = "".join(
        f'<w:p><w:pPr><w:pStyle w:val="{style}"/></w:pPr><w:r><w:t>{escape(text)}</w:t></w:r></w:p>'
        for style, text in paragraphs
    )
    rows = "".join(
        "<w:tr>" + "".join(f"<w:tc><w:p><w:r><w:t>{escape(cell)}</w:t></w:r></w:p></w:tc>" for cell in row) + "</w:tr>"
        for row in table
    )
    return packed(f'<w:document xmlns:w="{W}"><w:body>{body}<w:tbl>{rows}</w:tbl></w:body></w:document>'.encode())


def packed(xml: bytes) -> bytes:
    """An archive with this as the document of a Word file."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", xml)
    return file.getvalue()


def pdf(pages: Sequence[Sequence[str]]) -> bytes:
    """A PDF of pages of lines, in Helvetica; a page without lines has no text."""
    drawn = [[(72.0, 720.0 - 14 * number, 12.0, line) for number, line in enumerate(lines)] for lines in pages]
    return written(612, 792, drawn)


def written(
    width: int,
    height: int,
    pages: Sequence[Sequence[tuple[float, float, float, str]]],
    width_of: Callable[[str, float], float] | None = None,
) -> bytes:
    """A PDF of texts at (across, up) in a size; of glyphs as wide as ``width_of`` says, whatever they look like."""
    letters = sorted({letter for page in pages for *_, text in page for letter in text})
    codes = {letter: number for number, letter in enumerate(letters, start=33)} if width_of else {}
    kind = "/Type /Font /Subtype /Type1 /BaseFont /Helvetica"
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", "", f"<< {kind} >>"]
    if width_of:
        shown = "\n".join(f"<{code:02x}> <{letter.encode('utf-16-be').hex()}>" for letter, code in codes.items())
        head = "/CIDInit /ProcSet findresource begin begincmap 1 begincodespacerange <00> <ff> endcodespacerange"
        cmap = f"{head} {len(codes)} beginbfchar\n{shown}\nendbfchar endcmap end"
        widths = " ".join(f"{1000 * width_of(letter, 1):.0f}" for letter in letters)
        glyphs = f"/Encoding << /Differences [33{' /l' * len(codes)}] >>"  # narrower than any width
        told = f"{glyphs} /FirstChar 33 /LastChar {32 + len(codes)} /Widths [{widths}] /ToUnicode 4 0 R"
        objects[2] = f"<< {kind} {told} >>"
        objects.append(f"<< /Length {len(cmap)} >>\nstream\n{cmap}\nendstream")
    kids = []
    for page in pages:
        stream = "".join(
            f"BT /F1 {size} Tf {left:.2f} {up:.2f} Td ({_escaped(text, codes)}) Tj ET\n"
            for left, up, size, text in page
        )
        kids.append(f"{len(objects) + 1} 0 R")
        font, contents = "<< /Font << /F1 3 0 R >> >>", f"/Contents {len(objects) + 2} 0 R"
        objects.append(f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {width} {height}] /Resources {font} {contents} >>")
        objects.append(f"<< /Length {len(stream.encode('latin-1'))} >>\nstream\n{stream}\nendstream")
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>"
    out, places = io.BytesIO(), []
    out.write(b"%PDF-1.4\n")
    for number, item in enumerate(objects, start=1):
        places.append(out.tell())
        out.write(f"{number} 0 obj\n{item}\nendobj\n".encode("latin-1"))
    begin = out.tell()
    out.write(f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode())
    out.write("".join(f"{place:010} 00000 n \n" for place in places).encode())
    out.write(f"trailer << /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{begin}\n%%EOF\n".encode())
    return out.getvalue()


def _escaped(text: str, codes: Mapping[str, int]) -> str:
    coded = "".join(chr(codes[letter]) for letter in text) if codes else text
    return "".join(
        f"\\{ord(character):03o}" if character in "\\()\r\n" or character < " " else character for character in coded
    )
