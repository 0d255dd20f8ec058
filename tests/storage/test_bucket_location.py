import pickle
from pathlib import Path

import pytest

from rag_eval.errors import ConfigurationError
from rag_eval.pipeline.workspace import Workspace
from rag_eval.storage.bucket import BucketLocation


def test_an_address_names_a_bucket_and_a_path() -> None:
    for uri in ("s3://bucket/a/b", "s3://bucket/a/b/", "s3://bucket//a//b"):
        location = BucketLocation.parse(uri)
        assert (location.bucket, location.path, str(location)) == ("bucket", "a/b", "s3://bucket/a/b")
    assert str(BucketLocation.parse("s3://my.bucket-1")) == "s3://my.bucket-1"


@pytest.mark.parametrize(
    "uri", ["s3://", "s3:///path", "s3://UPPER/x", "s3://a b/x", "gs://bucket/x", "s3://bucket/../other", "s3://[x/y"]
)
def test_what_is_no_bucket_is_refused(uri: str) -> None:
    with pytest.raises(ConfigurationError, match="s3://bucket/path"):
        Workspace.at(uri)


@pytest.mark.parametrize(
    "uri", ["s3://AKIAKEY:topsecret@bucket/x", "s3://bucket/x?secret=topsecret", "s3://b/x#topsecret"]
)
def test_keys_in_an_address_are_refused_and_not_repeated(uri: str) -> None:
    with pytest.raises(ConfigurationError, match="AWS_SECRET_ACCESS_KEY") as caught:
        Workspace.at(uri)
    assert "topsecret" not in str(caught.value)
    assert "AKIAKEY" not in str(caught.value)


def test_each_bucket_path_and_endpoint_has_its_own_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = ["s3://bucket/a/b", "s3://bucket/a-b", "s3://bucket-a/b", "s3://bucket/a/B"]
    copies = {Workspace.at(address).root for address in addresses}
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    copies |= {Workspace.at(address).root for address in addresses}
    assert len(copies) == 8


def test_a_workspace_that_another_machine_wrote_down_has_its_copy_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "there"))
    written, pickled = (made := Workspace.at("s3://bucket/a")).model_dump_json(), pickle.dumps(made)
    assert made.root.is_relative_to(tmp_path / "there")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "here"))
    for read in (Workspace.model_validate_json(written), pickle.loads(pickled)):  # noqa: S301  # our own
        assert read.root.is_relative_to(tmp_path / "here")
        assert read == Workspace.at("s3://bucket/a")


def test_a_folder_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Workspace.at(".rag-eval") == Workspace(root=tmp_path / ".rag-eval")
    assert Workspace.at(tmp_path / "x").address == str(tmp_path / "x")
