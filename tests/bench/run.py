"""``make bench``: run every benchmark and write what was seen to ``RESULTS.md``.

Each module ``bench_*`` has ``run()``, which gives a list of figures, and runs in a process of its own, so that memory
is its own too. Figures are CPU seconds, ratios within one run, or memory; inputs are seeded. With names as arguments,
only those modules are run, and only their sections of the file are replaced.
"""

import json
import platform
import re
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "RESULTS.md"
CHILD = "import importlib, json, sys; json.dump(importlib.import_module(sys.argv[1]).run(), open(sys.argv[2], 'w'))"


def main(names: list[str]) -> int:
    missed = 0
    for name in names or sorted(path.stem for path in HERE.glob("bench_*.py")):
        print(f"\n{name}", flush=True)
        figures = figures_of(name)
        rows = [row(figure) for figure in figures]
        missed += sum(not figure["ok"] for figure in figures)
        print("\n".join(rows), flush=True)
        keep(name.removeprefix("bench_").replace("_", " "), rows)
    print(f"\n{missed} targets missed")
    return min(missed, 1)


def keep(title: str, rows: list[str]) -> None:
    """Put a section into the file, in place of the one of the same title."""
    seen = datetime.now(UTC).strftime("%Y-%m-%d")
    text = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else ""
    sections = dict(section.split("\n", 1) for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:])
    head = ["", f"Seen on {seen}.", "", "| figure | seen | target | |", "|---|---:|---:|---|"]
    sections[title] = "\n".join([*head, *rows])
    body = "\n".join(f"## {name}\n{sections[name].rstrip()}\n" for name in sorted(sections))
    RESULTS.write_text(heading() + body, encoding="utf-8")


def figures_of(name: str) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "figures.json"
        subprocess.run([sys.executable, "-c", CHILD, f"tests.bench.{name}", str(output)], check=True)
        figures: list[dict[str, Any]] = json.loads(output.read_text())
    return figures


def row(figure: dict[str, Any]) -> str:
    target = "" if figure["target"] is None else f"{figure['target']:.3g} {figure['unit']}"
    verdict = "" if figure["target"] is None else ("reached" if figure["ok"] else "missed")
    return f"| {figure['name']} | {figure['value']:.4g} {figure['unit']}".rstrip() + f" | {target} | {verdict} |"


def heading() -> str:
    machine = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    return f"# Benchmarks\n\nBy `make bench`, with {machine}. Ratios compare CPU seconds within one run.\n\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
