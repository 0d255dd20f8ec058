"""The names and calls that users know from the product's description work as they are written there."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).with_name("seed_snippets.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n# (.*?)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_snippets_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LANGSMITH_API_KEY", "ORQ_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    assert BLOCKS
    for name, code in BLOCKS:
        exec(compile(code, name, "exec"), names)  # noqa: S102  # the project's own snippets
