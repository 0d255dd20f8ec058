"""The names and calls that users know from the product's description work as they are written there."""

import re
from pathlib import Path

import pytest

from rag_eval import generate_chunk_id
from rag_eval.services.langsmith_client import langsmith_client
from tests.doubles.langsmith_fixtures import no_langsmith_settings, server
from tests.doubles.langsmith_server import KEY, LangSmithServer

__all__ = ["no_langsmith_settings", "server"]

PAGE = Path(__file__).with_name("seed_snippets.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n# (.*?)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def langsmith(server: LangSmithServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server with the dataset of the snippets, whose text is in ``knowledge_base``."""
    monkeypatch.setenv("LANGSMITH_API_KEY", KEY)
    monkeypatch.setenv("LANGSMITH_ENDPOINT", server.url)
    text = "RAG combines retrieval with generation."
    Path("knowledge_base").mkdir()
    Path("knowledge_base", "rag.md").write_text(text)
    client = langsmith_client()
    outputs = {"chunk_ids": [generate_chunk_id(text)]}
    example = {"inputs": {"query": "What does RAG combine?"}, "reference_outputs": outputs}
    client.create_examples(dataset_id=client.create_dataset("my-dataset").id, examples=[example])
    client.close()


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ORQ_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def test_the_snippets_run_in_order(empty_folder: None, langsmith: None) -> None:
    names: dict[str, object] = {}
    assert BLOCKS
    for name, code in BLOCKS:
        exec(compile(code, name, "exec"), names)  # noqa: S102  # the project's own snippets
