"""Files from anyone: what is not plain, well-formed YAML is refused at once and says where."""

import os
from pathlib import Path

import pytest

from rag_eval.config.loading import MAX_BYTES, load_config, read_yaml
from rag_eval.errors import ConfigurationError
from tests.config.conftest import Write

WRONG_YAML = {
    "k: 5\nk: 6": "bench.yaml, line 2: the key 'k' is already in line 1",
    "a: {b: 1, 'b': 2}": "bench.yaml, line 1: the key 'b' is already in line 1",
    "a: [\n": "bench.yaml, line 2: invalid YAML: ",
    "k: &k [1, *k]": "bench.yaml, k[1]: aliases are not supported",
    "a: b: c": "bench.yaml, line 1: invalid YAML: mapping values are not allowed here",
    "a: 1\n---\nb: 2": "bench.yaml, line 2: invalid YAML: but found another document",
    "a: &b 1\nc: *b": "bench.yaml, c: aliases are not supported",
    "a: !!python/object/apply:os.getcwd []": "bench.yaml, line 1: invalid YAML: could not determine a constructor",
    "a: !mine x": "bench.yaml, line 1: invalid YAML: could not determine a constructor",
    "? [a]\n: b": "bench.yaml, line 1: invalid YAML: found unhashable key",
    "k: 1\na: '\x07'": "bench.yaml, line 2: invalid YAML: the character '\\x07' is not allowed",
    "": "bench.yaml: the file is empty",
    "# nothing but this": "bench.yaml: the file is empty",
    "- a": "bench.yaml: expected keys and values",
    "text": "bench.yaml: expected keys and values",
    'k: "\\ud800"': "bench.yaml: '\\ud800' has half a surrogate pair",
    "k: " + "9" * 5000: "bench.yaml: a number has too many digits",
    "k: 0x" + "f" * 17: "bench.yaml: an integer has more than 64 bits",
    "k: 2024-13-45": "bench.yaml: a number has too many digits or a date does not exist",
    "k: " + "[" * 20_000: "bench.yaml: lists and mappings are nested too deeply",
}


@pytest.mark.parametrize("text", WRONG_YAML, ids=range(len(WRONG_YAML)))
def test_what_is_not_plain_yaml_is_refused_at_its_line(write: Write, text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_config(write(text, bare=True))
    assert str(caught.value).startswith(WRONG_YAML[text])


@pytest.mark.parametrize("name", ["bench.json", "bench", "bench.yaml.bak", ".yaml", "bench.toml"])
def test_the_suffix_says_what_a_file_is(write: Write, name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"its name must end in \.yaml or \.yml"):
        load_config(write("chunkers: markdown", name))


@pytest.mark.parametrize("name", ["bench.yml", "BENCH.YAML"])
def test_other_spellings_of_the_suffix_are_yaml(write: Write, name: str) -> None:
    assert load_config(write("chunkers: markdown", name)).k == [5]


def test_a_byte_order_mark_and_windows_line_ends_are_no_matter(tmp_path: Path) -> None:
    path = tmp_path / "bench.yaml"
    path.write_bytes("\ufeffcorpus: é\r\nground_truth: t\r\nchunkers: markdown".encode())
    assert load_config(path).corpus == tmp_path / "é"


def test_a_file_that_is_not_utf_8_is_named_with_line_and_byte(tmp_path: Path) -> None:
    path = tmp_path / "bench.yaml"
    path.write_bytes(b"# one\n# caf\xe9\n")
    with pytest.raises(ConfigurationError, match=r"^bench.yaml, line 2: byte 0xe9 is not UTF-8"):
        load_config(path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "folder.yaml").mkdir()
    os.mkfifo(tmp_path / "pipe.yaml")
    for name in ("none.yaml", "folder.yaml", "pipe.yaml", "a\0b.yaml"):
        with pytest.raises(ConfigurationError, match=r"there is no file '.*yaml': check the path"):
            load_config(tmp_path / name)


def test_a_path_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot read .* \(File name too long\)") as caught:
        load_config(tmp_path / ("x" * 5000 + ".yaml"))
    assert len(str(caught.value)) < 300


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read_is_named(write: Write) -> None:
    path = write("chunkers: markdown")
    path.chmod(0)
    with pytest.raises(ConfigurationError, match=r"cannot read .* \(Permission denied\)"):
        load_config(path)


def test_a_file_that_is_too_large_is_refused(write: Write) -> None:
    with pytest.raises(ConfigurationError, match=r"^bench\.yaml has more than 262,144 bytes"):
        load_config(write("#" * (MAX_BYTES + 1)))


def test_what_is_read_is_plain_data(write: Write) -> None:
    path = write("a: [1, 2.5, yes, null, text]\nb: {c: d}", bare=True)
    data, lines = read_yaml(path)
    assert data == {"a": [1, 2.5, True, None, "text"], "b": {"c": "d"}}
    assert lines == {"a": 1, "a[0]": 1, "a[1]": 1, "a[2]": 1, "a[3]": 1, "a[4]": 1, "b": 2, "b.c": 2}
