import re

from tasks.artifacts import artifact_key


def test_a_key_of_an_artifact_is_what_prefect_takes_and_no_others() -> None:
    names = ["a 1/0, vector", "a 1.0, vector", "a 1 0 vector", "Ä, 漢字", "é, 漢字", "x" * 500, "x" * 501, ""]
    keys = [artifact_key(name) for name in names]
    assert len(set(keys)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9-]+", key) for key in keys)
    assert max(map(len, keys)) < 120
    assert keys[0].startswith("chunking-a-1-0-vector-")
