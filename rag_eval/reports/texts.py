"""Which text a report carries: whole documents where that is affordable, else what stands around the spans."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rag_eval.metrics.formulas import Counts
from rag_eval.reports.places import Places

MOST_CHARACTERS = 12_000_000
"""So much text makes a page of about ten megabytes, which a phone still opens."""

CONTEXT = 400
"""How much is carried on each side of a span where whole documents are not."""


@dataclass(frozen=True)
class CarriedTexts:
    """The text in the report: stretches of documents by document and start, none overlapping; and why not more."""

    places: Places
    note: str | None


def choose_texts(lengths: Counts, truth: Places, hits: Places, most: int = MOST_CHARACTERS) -> CarriedTexts:
    """The text to carry for these spans, at most about ``most`` characters.

    All documents with a span if that is affordable; else what stands around truth and hits; else around truth alone;
    else around as much of the truth, in the order given, as fits.
    """
    spans = Places.together([truth, hits])
    documents = np.unique(spans.document)
    whole = Places(documents, np.zeros_like(documents), lengths[documents])
    if whole.characters <= most:
        return CarriedTexts(whole, None)
    about = f"The documents concerned have {whole.characters:,} characters, too many for one page"
    for chosen, what in ((spans, "truth and hits"), (truth, "truth")):
        around = _around(chosen, lengths)
        if around.characters <= most:
            return CarriedTexts(around, f"{about}: it carries what stands around {what}.")
    afford = int(np.searchsorted(np.cumsum(truth.end - truth.start + 2 * CONTEXT), most, side="right"))
    note = f"{about}: it carries what stands around the first {afford:,} of {len(truth):,} spans of truth."
    return CarriedTexts(_around(truth.taken(np.arange(afford)), lengths), note)


def cut_texts(contents: pa.ChunkedArray, places: Places) -> list[bytes]:
    """The text of each stretch, in UTF-8."""
    texts: list[bytes] = []
    current, content = -1, ""
    for number, start, end in places.rows().tolist():
        if number != current:
            current, content = number, contents[number].as_py()
        texts.append(content[start:end].encode())
    return texts


def _around(spans: Places, lengths: Counts) -> Places:
    """The spans with what stands around them, merged."""
    start = np.maximum(spans.start - CONTEXT, 0)
    end = np.minimum(spans.end + CONTEXT, lengths[spans.document])
    return Places(spans.document, start, end).merged()
