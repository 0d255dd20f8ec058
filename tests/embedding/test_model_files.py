"""A model is known by its files, not by its name."""

import os
import shutil
from pathlib import Path

import pytest

from rag_eval.embedding.sentence_transformers import SentenceTransformersEmbedder, model_name
from rag_eval.errors import ConfigurationError
from rag_eval.pipeline.step import key_part
from rag_eval.retrieval.rerankers import CrossEncoderReranker


def model_folder(folder: Path, weights: bytes = b"1234") -> Path:
    (folder / "1_Pooling").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "1_Pooling" / "model.safetensors").write_bytes(weights)
    return folder


def hub_model(cache: Path, repository: str, commits: dict[str, str]) -> None:
    """A model as the Hugging Face hub keeps it on a machine: a commit for each revision."""
    root = cache / f"models--{repository.replace('/', '--')}"
    for revision, commit in commits.items():
        (root / "refs").mkdir(parents=True, exist_ok=True)
        (root / "refs" / revision).write_text(commit)
        (root / "snapshots" / commit).mkdir(parents=True, exist_ok=True)
        (root / "snapshots" / commit / "config.json").write_text("{}")


def test_a_folder_is_known_by_its_files_wherever_it_lies(tmp_path: Path) -> None:
    name = model_name(str(model_folder(tmp_path / "here" / "tiny")))
    assert name.startswith("tiny@")
    shutil.copytree(tmp_path / "here" / "tiny", tmp_path / "there" / "tiny")
    assert model_name(str(tmp_path / "there" / "tiny")) == name
    (tmp_path / "there" / "tiny" / ".cache").mkdir()
    (tmp_path / "there" / "tiny" / ".cache" / "lock").touch()
    assert model_name(str(tmp_path / "there" / "tiny")) == name
    (tmp_path / "there" / "tiny" / "1_Pooling" / "model.safetensors").write_bytes(b"5678")
    assert model_name(str(tmp_path / "there" / "tiny")) != name


def test_a_model_of_the_hub_is_known_by_the_commit_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SENTENCE_TRANSFORMERS_HOME", str(tmp_path))
    assert model_name("org/model") == "org/model"
    assert model_name("org/model", "v1") == "org/model@v1"
    hub_model(tmp_path, "org/model", {"main": "a" * 40, "v1": "b" * 40})
    hub_model(tmp_path, "owner/bare", {"main": "c" * 40})
    assert model_name("org/model") == f"org/model@{'a' * 40}"
    assert model_name("org/model", "v1") == f"org/model@{'b' * 40}"
    assert model_name("bare") == "bare"
    assert model_name("bare", owners=("owner",)) == f"bare@{'c' * 40}"
    assert model_name("no such: model?") == "no such: model?"


@pytest.mark.parametrize("config", [SentenceTransformersEmbedder, CrossEncoderReranker])
def test_a_key_varies_on_the_files_behind_a_model(
    tmp_path: Path, config: type[SentenceTransformersEmbedder | CrossEncoderReranker]
) -> None:
    folder = model_folder(tmp_path / "tiny")
    before = key_part(config(model=str(folder)))
    assert key_part(config(model=str(folder))) == before
    weights = folder / "1_Pooling" / "model.safetensors"
    weights.write_bytes(b"5678")
    assert key_part(config(model=str(folder))) != before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "tiny")
    (folder / "config.json").chmod(0)
    with pytest.raises(ConfigurationError, match=r"tiny' cannot be read \(Permission denied\)"):
        model_name(str(folder))
