"""The adapters of sentence-transformers on models that are made on the spot, where torch is installed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rag_eval.embedding.embedder import text_vectors
from rag_eval.embedding.sentence_transformers import SentenceTransformersEmbedder
from rag_eval.parts import digest
from rag_eval.retrieval.rerankers import CrossEncoderReranker
from rag_eval.types.chunks import PositionAwareChunk
from rag_eval.types.ids import DocumentId, generate_pa_chunk_id

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
# Other libraries' own warnings are no errors of ours.
pytestmark = pytest.mark.filterwarnings("default")

WORDS = ["ferry", "noon", "bread", "night", "museum", "leaves", "is", "baked", "at", "the"]
TEXTS = ["the ferry leaves at noon", "bread is baked at night", "the museum leaves at night"]


def tiny_model(folder: Path, seed: int, *, scores: bool = False) -> Path:
    """Save a BERT of two layers with random weights: an encoder, or a cross-encoder where it ``scores``."""
    import torch
    import transformers

    torch.manual_seed(seed)
    folder.mkdir()
    words = folder / "vocab.txt"
    words.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]))
    tokenizer = transformers.BertTokenizerFast(vocab_file=str(words), model_max_length=32)
    config = transformers.BertConfig(
        vocab_size=len(WORDS) + 5,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
        num_labels=1,
    )
    made = transformers.BertForSequenceClassification(config) if scores else transformers.BertModel(config)
    made.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_an_embedder_gives_what_its_model_gives(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    folder = tiny_model(tmp_path / "tiny", 1)
    embedder = SentenceTransformersEmbedder(str(folder), normalize=True)
    vectors = text_vectors(embedder, [*TEXTS, TEXTS[0]])
    wanted = SentenceTransformer(str(folder), device="cpu").encode(TEXTS, normalize_embeddings=True)
    assert np.allclose(vectors[:3], wanted, atol=1e-6)
    assert np.array_equal(vectors[0], vectors[3])
    assert embedder.dimension == 16
    assert embedder.usage.tokens
    other = SentenceTransformersEmbedder(str(tiny_model(tmp_path / "other", 2)), normalize=True)
    assert digest(embedder) != digest(other)


def test_a_cross_encoder_orders_by_the_scores_of_its_model(tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder

    folder = tiny_model(tmp_path / "cross", 3, scores=True)
    chunks: list[Any] = [
        PositionAwareChunk(generate_pa_chunk_id(text), text, DocumentId("a.md"), n * 100, n * 100 + len(text))
        for n, text in enumerate(TEXTS)
    ]
    order = [chunks.index(one) for one in CrossEncoderReranker(str(folder)).rerank("ferry noon", chunks, 3)]
    scores = CrossEncoder(str(folder), device="cpu").predict([("ferry noon", text) for text in TEXTS])
    assert order == np.argsort(-scores, kind="stable").tolist()
