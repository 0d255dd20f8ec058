"""Questions that a source asks more than once."""

from collections.abc import Iterable

from rag_eval.errors import preview
from rag_eval.ground_truth.importing.result import ImportNotes
from rag_eval.types.ground_truth import Query, TokenLevelGroundTruth


def unique_questions(items: Iterable[TokenLevelGroundTruth], notes: ImportNotes) -> list[TokenLevelGroundTruth]:
    """The items with each query id once, in the order of their first appearance; a place is kept once a query.

    Where the same question has the same id, what is relevant to either is relevant to both, and they become one.
    Where one id stands for different questions, the first is kept. The same question under different ids stays, as
    in the source. All are noted.
    """
    by_id: dict[str, TokenLevelGroundTruth] = {}
    asked: dict[str, str] = {}
    for item in items:
        query = item.query
        earlier = by_id.get(query.id)
        if earlier is None:
            other = asked.setdefault(query.text, query.id)
            if other != query.id:
                notes.mend("question asked under several ids, kept", f"{other} and {query.id} {preview(query.text)}")
            by_id[query.id] = _with_places_once(query, item)
        elif earlier.query.text == query.text:
            notes.mend("question asked more than once, made one", f"{query.id} {preview(query.text)}")
            by_id[query.id] = _with_places_once(earlier.query, earlier, item)
        else:
            notes.leave_out("query id used for another question", f"{query.id} {preview(query.text)}")
    return list(by_id.values())


def _with_places_once(query: Query, *items: TokenLevelGroundTruth) -> TokenLevelGroundTruth:
    spans = list(dict.fromkeys(span for item in items for span in item.relevant_spans))
    return TokenLevelGroundTruth(query, spans, unanswerable=not spans and all(item.unanswerable for item in items))
