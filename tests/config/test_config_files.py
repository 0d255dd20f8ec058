"""Files from anyone: what is not plain, well-formed YAML or TOML is refused at once and says where."""

import os
from pathlib import Path

import pytest

from rag_eval.config.loading import MAX_BYTES, load_config, read_mapping
from rag_eval.errors import ConfigurationError
from tests.config.conftest import Write


def nested_aliases(first: str, repeat: str) -> str:
    """Nine aliases in every line to the line before: a few hundred bytes for 9^10 values."""
    lines = [f"a: &a {first}"]
    for before, name in zip("abcdefghi", "bcdefghij", strict=True):
        lines.append(f"{name}: &{name} {repeat % ', '.join([f'*{before}'] * 9)}")
    return "\n".join(lines)


WRONG_YAML = {
    "k: 5\nk: 6": "bench.yaml, line 2: the key 'k' stands twice, first in line 1",
    "a: {b: 1, 'b': 2}": "bench.yaml, line 1: the key 'b' stands twice, first in line 1",
    "a: [\n": "bench.yaml, line 2: not YAML: ",
    "a: b: c": "bench.yaml, line 1: not YAML: mapping values are not allowed here",
    "a: 1\n---\nb: 2": "bench.yaml, line 2: not YAML: but found another document",
    "a: *b": "bench.yaml, line 1: not YAML: found undefined alias",
    "a: !!python/object/apply:os.getcwd []": "bench.yaml, line 1: not YAML: could not determine a constructor",
    "a: !mine x": "bench.yaml, line 1: not YAML: could not determine a constructor",
    "? [a]\n: b": "bench.yaml, line 1: not YAML: found unhashable key",
    "k: 1\na: '\x07'": "bench.yaml, line 2: not YAML: the character '\\x07' is not allowed",
    "": "bench.yaml: the file is empty",
    "# nothing but this": "bench.yaml: the file is empty",
    "- a": "bench.yaml: expected keys and values",
    "text": "bench.yaml: expected keys and values",
    "k: &k [1, *k]": "bench.yaml, line 1: an alias stands for what it is part of",
    "k: &k {<<: *k}": "bench.yaml, line 1: an alias stands for what it is part of",
    'k: "\\ud800"': "bench.yaml: '\\ud800' has half a surrogate pair",
    "k: " + "9" * 5000: "bench.yaml: a number has thousands of digits",
    "k: 0x" + "f" * 17: "bench.yaml: a whole number has more than 64 bits",
    "k: 2024-13-45": "bench.yaml: a number has thousands of digits, or a date is on no calendar",
    "k: " + "[" * 20_000: "bench.yaml: lists and mappings are nested too deeply",
    nested_aliases("[x]", "[%s]"): "bench.yaml, line 6: more than 100,000 values, aliases written out",
    nested_aliases("{x: 1, y: 2}", "{<<: [%s]}"): "bench.yaml, line 6: more than 100,000 values, aliases written out",
}

WRONG_TOML = {
    "k = 5\nk = 6": "bench.toml: not TOML: Cannot overwrite a value",
    "k: 5": "bench.toml: not TOML: Expected '=' after a key",
    "k = " + "9" * 5000: "bench.toml: a number has thousands of digits",
    "k = 99999999999999999999": "bench.toml: a whole number has more than 64 bits",
    "k = " + "[" * 20_000: "bench.toml: lists and mappings are nested too deeply",
    "": "bench.toml: the file is empty",
    "k = 2024-01-01\nchunkers = 'markdown'\ncorpus = 'c'\nground_truth = 't'": (
        "bench.toml, k: expected a whole number, found a date or time"
    ),
}


@pytest.mark.parametrize("text", WRONG_YAML, ids=range(len(WRONG_YAML)))
def test_what_is_not_plain_yaml_is_refused_at_its_line(write: Write, text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_config(write(text, bare=True))
    assert str(caught.value).startswith(WRONG_YAML[text])


@pytest.mark.parametrize("text", WRONG_TOML, ids=range(len(WRONG_TOML)))
def test_what_is_not_toml_is_refused(write: Write, text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_config(write(text, "bench.toml", bare=True))
    assert str(caught.value).startswith(WRONG_TOML[text])


@pytest.mark.parametrize("name", ["bench.json", "bench", "bench.yaml.bak", ".yaml"])
def test_the_suffix_says_what_a_file_is(write: Write, name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is neither YAML nor TOML: name it \.yaml, \.yml or \.toml"):
        load_config(write("chunkers: markdown", name))


@pytest.mark.parametrize("name", ["bench.yml", "BENCH.YAML"])
def test_other_spellings_of_the_suffix_are_yaml(write: Write, name: str) -> None:
    assert load_config(write("chunkers: markdown", name)).k == [5]


@pytest.mark.parametrize("name", ["bench.yaml", "bench.toml"])
def test_a_byte_order_mark_and_windows_line_ends_are_no_matter(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    sign = ":" if name.endswith("yaml") else " ="
    lines = [
        f"{key}{sign} '{value}'" for key, value in (("corpus", "é"), ("ground_truth", "t"), ("chunkers", "markdown"))
    ]
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    assert load_config(path).corpus == tmp_path / "é"


@pytest.mark.parametrize("name", ["bench.yaml", "bench.toml"])
def test_a_file_that_is_not_utf_8_is_named_with_line_and_byte(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"# one\n# caf\xe9\n")
    with pytest.raises(ConfigurationError, match=rf"^{name}, line 2: byte 0xe9 is not UTF-8: save the file as UTF-8$"):
        load_config(path)
    path.write_bytes("corpus: x".encode("utf-16"))
    with pytest.raises(ConfigurationError, match=rf"^{name}, line 1: byte 0xff is not UTF-8"):
        load_config(path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "folder.yaml").mkdir()
    os.mkfifo(tmp_path / "pipe.yaml")
    for name in ("none.yaml", "folder.yaml", "pipe.yaml", "a\0b.yaml"):
        with pytest.raises(ConfigurationError, match=r"there is no file '.*yaml': check the path"):
            load_config(tmp_path / name)


def test_a_path_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot be read \(File name too long\)") as caught:
        load_config(tmp_path / ("x" * 5000 + ".yaml"))
    assert len(str(caught.value)) < 300


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read_is_named(write: Write) -> None:
    path = write("chunkers: markdown")
    path.chmod(0)
    with pytest.raises(ConfigurationError, match=r"cannot be read \(Permission denied\)"):
        load_config(path)


def test_a_file_that_is_too_large_is_refused(write: Write) -> None:
    with pytest.raises(ConfigurationError, match=r"^bench\.yaml has more than 262,144 bytes: that is no benchmark$"):
        load_config(write("#" * (MAX_BYTES + 1)))


def test_what_is_read_is_plain_data(write: Write) -> None:
    path = write("a: [1, 2.5, yes, null, text]\nb: {c: d}", bare=True)
    assert read_mapping(path) == {"a": [1, 2.5, True, None, "text"], "b": {"c": "d"}}
