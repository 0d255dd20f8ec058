"""Generated ground truth goes to LangSmith, now or when there is a key."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from langsmith import utils as langsmith_utils

from rag_eval import TokenLevelSyntheticDatasetGenerator
from rag_eval.services.langsmith_client import LangSmithService
from rag_eval.services.langsmith_truth import pull_truth
from tests.doubles.langsmith_server import KEY, LangSmithServer
from tests.generation.corpora import harbours

Make = Callable[..., TokenLevelSyntheticDatasetGenerator]


@pytest.fixture
def langsmith(monkeypatch: pytest.MonkeyPatch) -> Iterator[LangSmithServer]:
    for name in ("TRACING", "TRACING_V2", "PROJECT", "RUNS_ENDPOINTS"):
        monkeypatch.delenv(f"LANGSMITH_{name}", raising=False)
    langsmith_utils.get_env_var.cache_clear()
    with LangSmithServer() as running:
        monkeypatch.setenv("LANGSMITH_ENDPOINT", running.url)
        yield running


def test_without_a_key_the_upload_fails_and_goes_out_with_the_next(
    token_level: Make, langsmith: LangSmithServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = token_level(harbours())
    truth = generator.generate(1)
    upload = generator.report.upload
    assert upload is not None
    assert (upload.dataset_name, upload.state) == ("rag-eval-token-level-v1", "failed")
    assert "LANGSMITH_API_KEY" in str(upload.detail)
    assert langsmith.requests == []

    monkeypatch.setenv("LANGSMITH_API_KEY", KEY)
    again = token_level(harbours())
    assert again.generate(1) == truth
    assert again.report.upload is not None
    assert again.report.upload.state == "sent"
    service = LangSmithService.connect()
    pulled = pull_truth(service, "rag-eval-token-level-v1")
    service.close()
    assert sorted(item.query.text for item in pulled) == sorted(item.query.text for item in truth)
    metadata = pulled[0].query.metadata
    assert metadata["generation_type"] == "synthetic"
    assert {"source_docs", "generation_model", "difficulty", "query_type", "prompt_hash"} <= set(metadata)


def test_a_dataset_of_ones_own_and_no_upload_at_all(
    token_level: Make, langsmith: LangSmithServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANGSMITH_API_KEY", KEY)
    generator = token_level(harbours("Storvåg"))
    generator.generate(1, upload_to_langsmith=False)
    assert generator.report.upload is None
    assert langsmith.requests == []
    generator.generate(1, dataset_name="mine")
    assert generator.report.upload is not None
    assert (generator.report.upload.dataset_name, generator.report.upload.state) == ("mine", "sent")
