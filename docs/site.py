"""Build the documentation as a site into build/site, without a network: ``python docs/site.py``, or ``make docs``.

Pages are written for the repository: the README is the first, and links are paths of files. They are copied to
build/pages, with whatever of the repository they link to, where each link is made to fit the site.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "build" / "pages"


def place(path: PurePosixPath) -> PurePosixPath:
    """Where a file of the repository is in the site: docs/ is its top, and a README the first page of its folder."""
    below = path.relative_to("docs") if path.is_relative_to("docs") else path
    return below.with_name("index.md") if below.name == "README.md" else below


def linked(path: PurePosixPath, target: str) -> PurePosixPath | None:
    """The file of the repository that a link of this page leads to; None where there is none."""
    found = PurePosixPath(os.path.normpath(path.parent / target.partition("#")[0]))
    return found if (ROOT / found).is_file() else None


def deeper(lines: list[str]) -> Iterator[str]:
    """Indent what belongs to a numbered item by four columns, which the site asks for, in place of three."""
    inside = False
    for line in lines:
        inside = bool(re.match(r"\d+\. ", line)) or (inside and not re.match(r"\S", line))
        yield f" {line}" if inside and line.startswith("   ") else line


def page(path: PurePosixPath) -> tuple[str, set[PurePosixPath]]:
    """The text of a page for the site, and the files that it links to."""
    used = set()

    def link(match: re.Match[str]) -> str:
        file = linked(path, match[1])
        if match[1].startswith("#") or file is None:
            return match[0]
        used.add(file)
        return f"]({os.path.relpath(place(file), place(path).parent)}{''.join(match[1].partition('#')[1:])})"

    text = re.sub(r"\]\(([^)\s]+)\)", link, (ROOT / path).read_text(encoding="utf-8"))
    return "\n".join(deeper(text.splitlines())) + "\n", used


def write_pages() -> None:
    """Copy the pages, and all that they link to, to build/pages."""
    shutil.rmtree(PAGES, ignore_errors=True)
    waiting = {PurePosixPath("README.md"), *(PurePosixPath("docs", file.name) for file in ROOT.glob("docs/*.md"))}
    waiting |= {PurePosixPath("docs", name) for name in ("site.css", "iframe-worker.js")}
    done: set[PurePosixPath] = set()
    while waiting:
        path = waiting.pop()
        done.add(path)
        target = PAGES / place(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            text, used = page(path)
            target.write_text(text, encoding="utf-8")
            waiting |= used - done
        else:
            shutil.copyfile(ROOT / path, target)


if __name__ == "__main__":
    write_pages()
    # Strict: a link that leads nowhere and a page that the navigation leaves out fail it. Quiet, it would not see them.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", "docs/mkdocs.yml"]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    sys.exit(subprocess.run(command, cwd=ROOT, env=quiet).returncode)  # noqa: S603  # our own command
