"""What is asked of each single question: its kind, its difficulty and who asks."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from rag_eval.generation.options import GenerationOptions
from rag_eval.types.ids import text_sha256


@dataclass(frozen=True, slots=True)
class Brief:
    """One question to be written; the number ties the answer to it."""

    number: int
    query_type: str
    difficulty: str
    persona: str | None = None

    def metadata(self) -> dict[str, object]:
        """What goes along with the question; without a persona there is none."""
        told: dict[str, object] = {"query_type": self.query_type, "difficulty": self.difficulty}
        return told if self.persona is None else {**told, "persona": self.persona}


def briefs_for(subject: str, count: int, options: GenerationOptions) -> Iterator[Brief]:
    """So many briefs for one subject, numbered from 1: the combinations in turn, the first by subject and seed.

    They do not depend on other documents, so that a corpus that grows keeps the answers it has.
    """
    combinations = list(product(options.personas or (None,), options.difficulties, options.query_types))
    first = int(text_sha256(f"{options.seed or 0}/{subject}")[:12], 16)
    for number in range(count):
        persona, difficulty, query_type = combinations[(first + number) % len(combinations)]
        yield Brief(number + 1, query_type, difficulty, persona)
