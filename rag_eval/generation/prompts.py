"""The prompts: files of this package, any of which a folder of the user's may replace.

Templates have places like ``${documents}``; a dollar sign that is no place is written ``$$``.
"""

from dataclasses import dataclass
from pathlib import Path
from string import Template

from rag_eval.disk.files import data_sha256, read_text
from rag_eval.errors import ConfigurationError, CorpusError, preview

FOLDER = Path(__file__).parent / "prompts"
QUESTIONS = frozenset({"briefs", "documents", "numbers"})

PLACES: dict[str, frozenset[str]] = {
    "system": frozenset(),
    "token_level": QUESTIONS,
    "cross_document": QUESTIONS,
    "chunk_level": QUESTIONS,
    "cross_document_chunks": QUESTIONS,
    "unanswerable": QUESTIONS,
    "verification": frozenset({"question", "documents"}),
}
"""The templates, and the places that each must have."""

VOCABULARIES = ("query_types", "difficulties")
"""Lists of ``- name: description``."""


@dataclass(frozen=True)
class Prompts:
    """The texts of all prompt files, by name."""

    texts: dict[str, str]

    @classmethod
    def load(cls, folder: str | Path | None = None) -> "Prompts":
        """Return the package's prompts, with those that ``folder`` holds in their place.

        Raises ``ConfigurationError`` when the folder is not there, holds a ``.md`` file that is no prompt, or a prompt
        lacks a place that it must have or has one that nothing fills.
        """
        names = (*PLACES, *VOCABULARIES)
        texts = {name: read_text(FOLDER / f"{name}.md") for name in names}
        if folder is not None:
            texts |= _replacements(Path(folder), names)
        for name, places in PLACES.items():
            _check_places(name, texts[name], places)
        return cls(texts)

    def render(self, name: str, **values: str) -> str:
        """Return a template with its places filled; what is filled in is not looked at again."""
        return Template(self.texts[name]).substitute(values).strip()

    def describe(self, vocabulary: str, name: str) -> str:
        """Return a name with its description, or alone where it has none."""
        for line in self.texts[vocabulary].splitlines():
            found, separator, description = line.strip().removeprefix("-").partition(":")
            if separator and line.lstrip().startswith("-") and found.strip() == name:
                return f"{name} ({description.strip()})"
        return name

    def sha256(self, name: str) -> str:
        """Return the digest of all texts that go into a prompt, in 16 hex digits."""
        return data_sha256([self.texts[part] for part in ("system", name, *VOCABULARIES)])[:16]


def _replacements(folder: Path, names: tuple[str, ...]) -> dict[str, str]:
    if not folder.is_dir():
        raise ConfigurationError(f"the folder of prompts {str(folder)!r} is not there: check the path")
    found = {path.stem: path for path in sorted(folder.glob("*.md"))}
    unknown = found.keys() - set(names)
    if unknown:
        raise ConfigurationError(
            f"{str(folder)!r} holds {preview(sorted(unknown)[0])}.md, which is no prompt: the prompts are "
            f"{', '.join(f'{name}.md' for name in names)}"
        )
    if not found:
        raise ConfigurationError(f"{str(folder)!r} holds no prompt: copy the ones to change from {str(FOLDER)!r}")
    try:
        return {name: read_text(path) for name, path in found.items()}
    except CorpusError as error:
        raise ConfigurationError(str(error)) from None


def _check_places(name: str, text: str, wanted: frozenset[str]) -> None:
    template = Template(text)
    if not template.is_valid():
        raise ConfigurationError(f"{name}.md has a dollar sign that is no place: write it as $$")
    found = set(template.get_identifiers())
    if found != wanted:
        missing, strange = sorted(wanted - found), sorted(found - wanted)
        wrong = [f"lacks ${{{place}}}" for place in missing] + [f"has ${{{place}}}" for place in strange]
        places = ", ".join(f"${{{place}}}" for place in sorted(wanted)) or "none"
        raise ConfigurationError(f"{name}.md {' and '.join(wrong)}: its places are {places}")
