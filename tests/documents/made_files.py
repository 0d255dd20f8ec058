"""Files of several formats, made of known text."""

import io
import zipfile
from collections.abc import Sequence
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
    """A PDF of pages of lines in Latin-1, in Helvetica; a page without lines has no text."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", ""]
    kids = []
    for lines in pages:
        shown = "".join(f"({_escaped(line)}) Tj T* " for line in lines)
        stream = f"BT /F1 12 Tf 14 TL 72 720 Td {shown}ET" if lines else ""
        kids.append(f"{len(objects) + 1} 0 R")
        font = "<< /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >>"
        contents = f"/Contents {len(objects) + 2} 0 R"
        objects.append(f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources {font} {contents} >>")
        objects.append(f"<< /Length {len(stream.encode('latin-1'))} >>\nstream\n{stream}\nendstream")
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>"
    out, places = io.BytesIO(), []
    out.write(b"%PDF-1.4\n")
    for number, one in enumerate(objects, start=1):
        places.append(out.tell())
        out.write(f"{number} 0 obj\n{one}\nendobj\n".encode("latin-1"))
    begin = out.tell()
    out.write(f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode())
    out.write("".join(f"{place:010} 00000 n \n" for place in places).encode())
    out.write(f"trailer << /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{begin}\n%%EOF\n".encode())
    return out.getvalue()


def _escaped(line: str) -> str:
    return line.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")
