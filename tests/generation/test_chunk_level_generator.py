"""Chunk-level generation over HTTP with the real SDK: ids that were shown, tied to one chunker."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest

from rag_eval import (
    ChunkLevelDataGenerator,
    ChunkLevelEvaluation,
    ChunkLevelSyntheticDatasetGenerator,
    Corpus,
    FilterOptions,
    GenerationOptions,
    LocalEmbedder,
    MarkdownChunker,
    RecursiveTokenChunker,
    generate_chunk_id,
    read_chunk_level,
    write_chunk_level,
)
from rag_eval.errors import ConfigurationError, GroundTruthError
from tests.doubles.openai_server import JSON, OpenAIServer
from tests.generation.corpora import corpus_of, harbours

CHUNKER = RecursiveTokenChunker(chunk_size=40)
Make = Callable[..., ChunkLevelSyntheticDatasetGenerator]


@pytest.fixture
def chunk_level(client: openai.OpenAI, tmp_path: Path) -> Make:
    def make(corpus: Corpus, chunker: Any = CHUNKER, **settings: Any) -> ChunkLevelSyntheticDatasetGenerator:
        given = {"model": "tiny", "workspace": tmp_path / "work", **settings}
        return ChunkLevelSyntheticDatasetGenerator(client, corpus, chunker, **given)

    return make


def test_questions_name_chunks_of_this_chunker_and_no_other_is_taken(chunk_level: Make, tmp_path: Path) -> None:
    corpus = harbours()
    options = GenerationOptions(filters=FilterOptions(max_question_similarity=None))
    truth = chunk_level(corpus, options=options).generate(3, upload_to_langsmith=False)
    assert len(truth) == 12
    known = {generate_chunk_id(text) for document in corpus for text in CHUNKER.chunk(document.content)}
    assert {name for item in truth for name in item.relevant_chunk_ids} <= known
    assert {item.chunker for item in truth} == {CHUNKER.name}
    assert "chunk_size=40" in CHUNKER.name
    assert truth[0].query.metadata["source_docs"] == ["storvåg.md"]
    write_chunk_level(tmp_path / "truth.jsonl", truth)
    assert read_chunk_level(tmp_path / "truth.jsonl") == truth
    evaluation = ChunkLevelEvaluation(corpus, truth)
    assert evaluation.run(CHUNKER, LocalEmbedder(), k=5).metrics["chunk_recall"] > 0.5
    with pytest.raises(GroundTruthError, match="was made with RecursiveTokenChunker"):
        evaluation.run(MarkdownChunker(), LocalEmbedder())


def test_unknown_ids_are_rejected_and_counted(chunk_level: Make, server: OpenAIServer) -> None:
    def reply(body: JSON) -> str:
        prompt = body["messages"][-1]["content"]
        shown = prompt[prompt.index("<<<chunk_") + 3 :][:18]
        chosen = [[shown], ["chunk_000000000000"], [shown, "chunk_0"], [], [f" {shown} ", shown]]
        asked = ("When does the harbour office open?", "Who?", "What?", "Why?", "At what hour does the office begin?")
        return json.dumps(
            {"questions": [{"number": n, "question": asked[n - 1], "chunk_ids": chosen[n - 1]} for n in range(1, 6)]}
        )

    server.reply = reply
    generator = chunk_level(harbours("Storvåg"))
    truth = generator.generate(5, upload_to_langsmith=False)
    assert [len(item.relevant_chunk_ids) for item in truth] == [1, 1]
    report = generator.report
    assert {reason: one.count for reason, one in report.dropped.items()} == {"unknown chunk id": 2, "no excerpt": 1}
    assert "chunk_000000000000" in report.dropped["unknown chunk id"].examples[0]


def test_long_documents_are_shown_in_runs_of_chunks(chunk_level: Make, server: OpenAIServer) -> None:
    options = GenerationOptions(window_tokens=120)
    truth = chunk_level(harbours("Storvåg"), options=options).generate(4, upload_to_langsmith=False)
    shown = [request.body["messages"][-1]["content"].count("<<<chunk_") for request in server.requests]
    assert len(shown) >= 2
    assert max(shown) <= 4
    assert truth


def test_cross_document_questions_need_chunks_that_no_document_has_alone(
    chunk_level: Make, server: OpenAIServer
) -> None:
    corpus = harbours("Storvåg", "Lyngholm")
    generator = chunk_level(corpus, options=GenerationOptions(cross_document=2))
    assert len(generator.generate(0, upload_to_langsmith=False)) == 2
    shared = "This notice hangs in every harbour of the coast.\n\n"
    both = {document.id: shared + document.content for document in corpus}
    chunker = MarkdownChunker(max_chunk_size=60)
    names = [generate_chunk_id(text) for text in chunker.chunk(both["storvåg.md"])[:2]]
    assert names[0] in {generate_chunk_id(text) for text in chunker.chunk(both["lyngholm.md"])}
    question = {"number": 1, "question": "Which notice hangs everywhere?", "chunk_ids": names}
    server.reply = lambda body: json.dumps({"questions": [question]})
    generator = chunk_level(corpus_of(both), chunker, options=GenerationOptions(cross_document=1))
    assert generator.generate(0, upload_to_langsmith=False) == []
    assert generator.report.dropped["one document only"].count == 1


def test_unanswerable_questions_name_the_chunker_too(chunk_level: Make) -> None:
    truth = chunk_level(harbours("Storvåg"), options=GenerationOptions(unanswerable=1)).generate(0, False)
    (item,) = truth
    assert item.unanswerable
    assert item.chunker == CHUNKER.name


def test_any_chunker_will_do_and_what_is_none_is_refused(chunk_level: Make) -> None:
    def paragraphs(text: str) -> list[str]:
        return text.split("\n\n")

    (item,) = chunk_level(harbours("Storvåg"), paragraphs).generate(1, upload_to_langsmith=False)
    assert "paragraphs" in str(item.chunker)
    with pytest.raises(ConfigurationError):
        chunk_level(harbours("Storvåg"), 7)
    assert ChunkLevelDataGenerator is ChunkLevelSyntheticDatasetGenerator
