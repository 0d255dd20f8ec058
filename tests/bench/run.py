"""``make bench``: run every benchmark and write what was seen to ``RESULTS.md``.

Each module ``bench_*`` has ``run()``, which gives a list of figures. Figures are CPU seconds, ratios within one run, or
memory; inputs are seeded. With names as arguments, only those modules are run and the file is left alone.
"""

import importlib
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "RESULTS.md"


def main(names: list[str]) -> int:
    chosen = names or sorted(path.stem for path in HERE.glob("bench_*.py"))
    sections = []
    missed = 0
    for name in chosen:
        print(f"\n{name}", flush=True)
        figures: list[dict[str, Any]] = importlib.import_module(f"tests.bench.{name}").run()
        rows = [row(figure) for figure in figures]
        missed += sum(not figure["ok"] for figure in figures)
        print("\n".join(rows), flush=True)
        title = name.removeprefix("bench_").replace("_", " ")
        sections.append("\n".join([f"## {title}", "", "| figure | seen | target | |", "|---|---:|---:|---|", *rows]))
    if not names:
        RESULTS.write_text(heading() + "\n\n".join(sections) + "\n", encoding="utf-8")
        print(f"\nwritten to {RESULTS}")
    print(f"\n{missed} targets missed")
    return min(missed, 1)


def row(figure: dict[str, Any]) -> str:
    target = "" if figure["target"] is None else f"{figure['target']:g} {figure['unit']}"
    verdict = "" if figure["target"] is None else ("reached" if figure["ok"] else "missed")
    return f"| {figure['name']} | {figure['value']:.4g} {figure['unit']} | {target} | {verdict} |"


def heading() -> str:
    seen = datetime.now(UTC).strftime("%Y-%m-%d")
    return (
        "# Benchmarks\n\n"
        f"Seen on {seen} with Python {platform.python_version()} on {platform.system()} {platform.machine()}, by "
        "`make bench`. Ratios compare CPU seconds within one run.\n\n"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
