"""SQuAD 1.1 and 2.0, and files of the same shape: ``data`` of articles with ``paragraphs`` and their questions.

An article becomes a document, with a blank line between its paragraphs. Every answer, of any annotator, is a span;
``is_impossible`` makes a question unanswerable.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import Field

from rag_eval.errors import preview
from rag_eval.formatting import counted
from rag_eval.ground_truth.importing.importer import (
    FileNames,
    Filled,
    ImportedTruth,
    ImportNotes,
    NotBlank,
    Placer,
    SourceModel,
    json_list,
    unique_questions,
)
from rag_eval.ground_truth.records import EncodableText
from rag_eval.types.documents import Document
from rag_eval.types.evidence import Query, TokenLevelGroundTruth
from rag_eval.types.ids import DocumentId, QueryId, QueryText, generate_query_id

BETWEEN = "\n\n"


class _Article(SourceModel):
    title: object = None
    paragraphs: list[object]


class _Paragraph(SourceModel):
    context: Filled
    qas: list[object] = Field(default_factory=list)


class _Question(SourceModel):
    question: NotBlank
    id: EncodableText | int | None = None
    answers: object = None
    is_impossible: object = False


def read_squad(path: Path) -> ImportedTruth:
    """Read the questions of a file, and its articles as documents; raise ``GroundTruthError`` on other files."""
    notes = ImportNotes()
    names, placer = FileNames(notes), Placer(notes)
    documents: list[Document] = []
    truth: list[TokenLevelGroundTruth] = []
    for number, record in enumerate(json_list(path, "data", "a file in the format of SQuAD")):
        place = f"article {number}"
        article = notes.parsed(_Article, record, "article without a paragraph", place)
        if article is None:
            continue
        paragraphs = list(_paragraphs(article, place, notes))
        if not paragraphs:
            notes.leave_out("article without a paragraph", place)
            continue
        title = article.title if isinstance(article.title, str) and article.title else f"article-{number}"
        questions = sum(len(paragraph.qas) for _, paragraph in paragraphs)
        content = BETWEEN.join(paragraph.context for _, paragraph in paragraphs)
        document = names.document(title, content, f"{place} with {counted(questions, 'questions')}")
        if document is None:
            continue
        documents.append(document)
        truth += _items(paragraphs, title, document, placer, notes)
    return ImportedTruth(unique_questions(truth, notes), notes, documents)


def _items(
    paragraphs: Sequence[tuple[str, _Paragraph]], title: str, document: Document, placer: Placer, notes: ImportNotes
) -> Iterator[TokenLevelGroundTruth]:
    """Yield the questions of an article with the places of their answers in its document."""
    base = 0
    for where, paragraph in paragraphs:
        source = Document(DocumentId(f"{title}, {where}"), paragraph.context)
        for question in paragraph.qas:
            if (item := _item(question, title, where, source, placer, notes)) is not None:
                spans = [document.span(base + span.start, base + span.end) for span in item.relevant_spans]
                yield TokenLevelGroundTruth(item.query, spans, item.unanswerable)
        base += len(paragraph.context) + len(BETWEEN)


def _paragraphs(article: _Article, place: str, notes: ImportNotes) -> Iterator[tuple[str, _Paragraph]]:
    for number, record in enumerate(article.paragraphs):
        where = f"{place}, paragraph {number}"
        if paragraph := notes.parsed(_Paragraph, record, "paragraph without a context or a list of questions", where):
            yield where, paragraph


def _item(
    record: object, title: str, place: str, paragraph: Document, placer: Placer, notes: ImportNotes
) -> TokenLevelGroundTruth | None:
    """Return a question with its answers in the paragraph."""
    question = notes.parsed(_Question, record, "question without a text", place)
    if question is None:
        return None
    where = f"{place}, {preview(question.question)}"
    answers = question.answers or []
    query_id = QueryId(str(question.id)) if question.id not in (None, "") else generate_query_id(question.question)
    query = Query(query_id, QueryText(question.question), {"source": "squad", "title": title})
    if question.is_impossible is True:
        if answers:
            notes.leave_out("question called impossible that has answers", where)
            return None
        return TokenLevelGroundTruth(query, [], unanswerable=True)
    places = [
        (answer.get("answer_start"), None, answer.get("text")) if isinstance(answer, dict) else (None, None, None)
        for answer in (answers if isinstance(answers, list) else [])
    ]
    spans = [span for numbers in places if (span := placer.place(paragraph, *numbers, where)) is not None]
    if not spans:
        notes.leave_out("question without an answer that could be placed", where)
        return None
    return TokenLevelGroundTruth(query, spans)
