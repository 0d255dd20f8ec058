"""SQuAD 1.1 and 2.0, and what is shaped like it: ``data`` of articles with ``paragraphs`` and their questions.

An article becomes one document, its paragraphs with a blank line between. Each answer, of every annotator, is a span;
``is_impossible`` makes a question unanswerable.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rag_eval.errors import GroundTruthError, preview
from rag_eval.formatting import counted
from rag_eval.ground_truth.importing.importer import (
    FileNames,
    ImportedTruth,
    ImportNotes,
    Placer,
    json_file,
    unique_questions,
)
from rag_eval.types.documents import Document
from rag_eval.types.evidence import Query, TokenLevelGroundTruth
from rag_eval.types.ids import DocumentId, QueryId, QueryText, generate_query_id

BETWEEN = "\n\n"


def read_squad(path: Path) -> ImportedTruth:
    """Read the questions of a file and its articles as documents; raises ``GroundTruthError`` on other files."""
    data = json_file(path)
    articles = data.get("data") if isinstance(data, dict) else None
    if not isinstance(articles, list):
        raise GroundTruthError(
            f"{str(path)!r} has no list of articles under 'data': check that it is shaped like SQuAD"
        )
    notes = ImportNotes()
    names, placer = FileNames(notes), Placer(notes)
    documents: list[Document] = []
    truth: list[TokenLevelGroundTruth] = []
    for number, article in enumerate(articles):
        place = f"article {number}"
        paragraphs = list(_paragraphs(article, place, notes))
        if not paragraphs:
            notes.leave_out("article without a paragraph", place)
            continue
        title = article.get("title")
        title = title if isinstance(title, str) and title else f"article-{number}"
        content = BETWEEN.join(context for _, context, _ in paragraphs)
        document = names.document(title, content, f"{place} with {counted(_questions(paragraphs), 'questions')}")
        if document is None:
            continue
        documents.append(document)
        base = 0
        for where, context, questions in paragraphs:
            paragraph = Document(DocumentId(f"{title}, {where}"), context)
            for question in questions:
                item = _item(question, title, where, (document, base, paragraph), placer, notes)
                if item is not None:
                    truth.append(item)
            base += len(context) + len(BETWEEN)
    return ImportedTruth(unique_questions(truth, notes), notes, documents)


def _questions(paragraphs: list[tuple[str, str, list[Any]]]) -> int:
    return sum(len(questions) for _, _, questions in paragraphs)


def _paragraphs(article: Any, place: str, notes: ImportNotes) -> Iterator[tuple[str, str, list[Any]]]:
    found = article.get("paragraphs") if isinstance(article, dict) else None
    for number, paragraph in enumerate(found if isinstance(found, list) else []):
        where = f"{place}, paragraph {number}"
        context = paragraph.get("context") if isinstance(paragraph, dict) else None
        questions = paragraph.get("qas", []) if isinstance(paragraph, dict) else None
        if isinstance(context, str) and context and isinstance(questions, list):
            yield where, context, questions
        else:
            notes.leave_out("paragraph without a context or a list of questions", where)


def _item(
    question: Any, title: str, place: str, home: tuple[Document, int, Document], placer: Placer, notes: ImportNotes
) -> TokenLevelGroundTruth | None:
    text = question.get("question") if isinstance(question, dict) else None
    if not isinstance(text, str) or not text.strip():
        notes.leave_out("question without a text", place)
        return None
    where = f"{place}, {preview(text)}"
    if not notes.can_write(place, text, str(question.get("id"))):
        return None
    answers = question.get("answers") or []
    given = question.get("id")
    query_id = QueryId(str(given)) if type(given) in (str, int) and str(given) else generate_query_id(text)
    query = Query(query_id, QueryText(text), {"source": "squad", "title": title})
    if question.get("is_impossible") is True:
        if answers:
            notes.leave_out("question called impossible that has answers", where)
            return None
        return TokenLevelGroundTruth(query, [], unanswerable=True)
    document, base, paragraph = home
    spans = []
    for answer in answers if isinstance(answers, list) else []:
        start, said = (answer.get("answer_start"), answer.get("text")) if isinstance(answer, dict) else (None, None)
        found = placer.place(paragraph, start, None, said, where)
        if found is not None:
            spans.append(document.span(base + found.start, base + found.end))
    if not spans:
        notes.leave_out("question without an answer that could be placed", where)
        return None
    return TokenLevelGroundTruth(query, spans)
