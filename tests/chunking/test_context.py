"""Context at index time: what is searched of a chunk, while its place, its text and its id stay what they are."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rag_eval.chunking import CONTEXT
from rag_eval.chunking.context import CutDocument, HeadingContext, NeighbourContext, WrittenContext
from rag_eval.chunking.markdown import Outline
from rag_eval.chunking.recursive import RecursiveCharacterChunker
from rag_eval.errors import ConfigurationError
from rag_eval.llm.writing import Answers
from rag_eval.pipeline.document_steps import add_context, chunk
from rag_eval.pipeline.workspace import Workspace
from rag_eval.tables import documents_to_table
from rag_eval.types.documents import Corpus, Document
from rag_eval.types.ids import DocumentId
from tests.doubles.openai_chat import content, refusal
from tests.doubles.openai_server import OpenAIServer

TEXT = "# Ferries\n\nAll are white.\n\n## Storvåg\n\nThe last leaves at 22:40.\n\n## Vik\n\nNone on Sunday.\n"
CORPUS = Corpus(
    [Document(DocumentId("guide/ferries.md"), TEXT), Document(DocumentId("notes.txt"), "No headings here.")]
)
DOCUMENTS = documents_to_table(CORPUS)
CHUNKS: pa.Table = chunk(DOCUMENTS, RecursiveCharacterChunker(30))[0]
TEXTS = CHUNKS.column("content").to_pylist()
MISSING = "chunks are searched without context, because the model gave no usable one"


def searched(part: Any, workspace: Workspace | None = None) -> tuple[list[str], Any]:
    made, effort = add_context(CHUNKS, DOCUMENTS, part, workspace=workspace)
    assert made.drop_columns(["searched"]).equals(CHUNKS.drop_columns(["searched"]))
    return made.column("searched").to_pylist(), effort


def test_title_and_headings_precede_the_chunk() -> None:
    texts, effort = searched(HeadingContext())
    by_text = dict(zip(TEXTS, texts, strict=True))
    last = next(text for text in TEXTS if "22:40" in text)
    assert by_text[last] == f"Ferries: Storvåg: {last}"
    assert by_text["No headings here."] == "notes: No headings here."
    assert (effort.fresh, effort.total, effort.cost, effort.fallbacks) == (len(TEXTS), len(TEXTS), 0.0, {})


def test_metadata_titles_take_precedence() -> None:
    outline = Outline(Document(DocumentId("a.md"), "intro\n\n## B\n\ntext", {"title": "All of it"}))
    assert (outline.title, outline.path(0, 5), outline.path(5, 16)) == ("All of it", [], ["B"])


def test_neighbours_come_from_the_same_document() -> None:
    texts, _ = searched(NeighbourContext())
    assert texts[1] == "\n".join(TEXTS[:3])
    assert texts[-1] == TEXTS[-1]


def test_written_contexts_are_cached_and_missing_ones_counted(tmp_path: Path) -> None:
    def reply(body: dict[str, Any]) -> str:
        asked = body["messages"][-1]["content"]
        assert "<<<document " in asked
        assert "<<<chunk " in asked
        return json.dumps({"text": "About ferries." if "22:40" in asked.split("<<<chunk ")[1] else " "})

    with OpenAIServer() as server:
        server.reply = reply
        part = WrittenContext("m", base_url=server.base_url, input_price=1.0, output_price=2.0, concurrency=1)
        workspace = Workspace(root=tmp_path)
        texts, effort = searched(part, workspace)
        assert [text for text in texts if text.startswith("About ferries.\n\n")] == [texts[2]]
        assert effort.fresh == effort.total == len(TEXTS)
        assert len(server.requests) == 2 * len(TEXTS) - 1  # asked twice where nothing was given
        assert effort.cost > 0
        assert effort.fallbacks == {MISSING: len(TEXTS) - 1}
        again, kept = searched(part, workspace)
        assert again == texts
        assert (kept.fresh, kept.cost, kept.tokens, kept.fallbacks) == (0, 0.0, effort.tokens, effort.fallbacks)
        assert len(server.requests) == 2 * len(TEXTS) - 1


def test_a_refused_context_is_retried_and_then_omitted(tmp_path: Path) -> None:
    with OpenAIServer() as server:
        server.reply = lambda body: json.dumps({"text": "So."})
        server.faults += [refusal("no"), content("{")]
        part = WrittenContext("m", base_url=server.base_url, concurrency=1)
        texts, effort = searched(part, Workspace(root=tmp_path))
        assert texts == [TEXTS[0], *(f"So.\n\n{text}" for text in TEXTS[1:])]
        assert (effort.fallbacks, effort.cost) == ({MISSING: 1}, None)


def test_all_shards_of_a_stage_share_one_budget(tmp_path: Path) -> None:
    with OpenAIServer() as server:
        server.reply = lambda body: json.dumps({"text": "So."})
        prices = {"input_price": 1_000.0, "output_price": 1_000.0, "max_output_tokens": 16}
        part = WrittenContext("m", base_url=server.base_url, max_cost=1.0, **prices)  # type: ignore[arg-type]  # mixed
        shards = [[CutDocument(Document(DocumentId("a.md"), text), [text], [(0, len(text))])] for text in TEXTS]
        answers = Answers(tmp_path / "answers")
        with pytest.raises(ConfigurationError, match=r"max_cost of m, \$1, is reached after 0 of 1 texts"):
            [part.searched(shard, answers) for shard in shards]
        assert 0 < len(server.requests) < len(TEXTS)


def test_a_reached_budget_is_an_error_and_keeps_answers(tmp_path: Path) -> None:
    with OpenAIServer() as server:
        server.reply = lambda body: json.dumps({"text": "So."})
        prices = {"input_price": 1_000.0, "output_price": 1_000.0, "max_output_tokens": 16, "concurrency": 1}
        part = WrittenContext("m", base_url=server.base_url, max_cost=1.0, **prices)  # type: ignore[arg-type]  # mixed
        with pytest.raises(ConfigurationError, match=r"max_cost of m, \$1, is reached after \d of 5 texts: raise it"):
            searched(part, Workspace(root=tmp_path))
        paid = len(server.requests)
        assert 0 < paid < len(TEXTS)
        richer = WrittenContext("m", base_url=server.base_url, max_cost=100.0, **prices)  # type: ignore[arg-type]  # mixed
        searched(richer, Workspace(root=tmp_path))
        assert len(server.requests) == len(TEXTS)
    with pytest.raises(ConfigurationError, match="a limit on the cost needs prices"):
        WrittenContext("m", base_url="http://localhost:1", max_cost=1.0)


def test_context_functions_must_return_text() -> None:
    with_document = CONTEXT.take(lambda chunk, document: document.id if chunk.start else None)
    texts, _ = searched(with_document)
    assert texts[:2] == [TEXTS[0], f"guide/ferries.md\n\n{TEXTS[1]}"]
    assert searched(CONTEXT.take(lambda chunk: ""))[0] == TEXTS
    with pytest.raises(ConfigurationError, match="returned '3': return a text, or None"):
        searched(CONTEXT.take(lambda chunk: 3))
    with pytest.raises(ConfigurationError, match="expected a context"):
        CONTEXT.take(3)
