"""Every heading and snippet of the seed documents has a row in the documentation, whose transcriptions run."""

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "seeds.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n# (.*?)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
# Beside the repository, or beside the folder that holds its work trees.
SEEDS = next((path for path in (ROOT.parent / "shared/seeds", ROOT.parents[1] / "shared/seeds") if path.is_dir()), None)


def rows(number: str) -> list[tuple[str, list[str]]]:
    """The place and the transcriptions of each row of a document's table."""
    section = PAGE.split(f"### {number}\n", 1)[1].split("\n### ", 1)[0]
    found = re.findall(r"^\| (.+?) \| (.+?) \| .*\|$", section, re.MULTILINE)
    return [(place, named.split(", ")) for place, named in found if place != "place"]


def places(text: str) -> list[str]:
    """The headings, and for each further snippet under a heading the heading with its number."""
    found: list[str] = []
    heading, snippets, is_code = "", 0, False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            is_code = not is_code
            snippets += is_code
            if is_code and snippets > 1:
                found.append(f"{heading} ({snippets})")
        elif not is_code and (match := re.match("#+ (.*)", line)):
            heading, snippets = match[1].strip(), 0
            found.append(heading)
    return found


def test_the_transcriptions_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LANGSMITH_API_KEY", "ORQ_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for name, code in BLOCKS:
        exec(compile(code, name, "exec"), names)  # noqa: S102  # the project's own documentation


@pytest.mark.parametrize("number", ["000", "001", "002", "003", "004"])
def test_every_row_names_transcriptions_that_are_there(number: str) -> None:
    known = {name for name, _ in BLOCKS}
    assert len(known) == len(BLOCKS)
    assert rows(number)
    assert {name for _, named in rows(number) for name in named} <= known


@pytest.mark.skipif(SEEDS is None, reason="the seed documents are not beside the repository")
@pytest.mark.parametrize("number", ["000", "001", "002", "003", "004"])
def test_every_heading_and_every_snippet_of_a_seed_has_a_row(number: str) -> None:
    assert SEEDS is not None
    (path,) = SEEDS.glob(f"{number}_*.txt")
    assert Counter(place for place, _ in rows(number)) == Counter(places(path.read_text(encoding="utf-8")))


def test_every_transcription_is_named_by_a_row() -> None:
    named = {name for number in ("000", "001", "002", "003", "004") for _, found in rows(number) for name in found}
    assert named == {name for name, _ in BLOCKS}
