"""Quality filters: each says which candidates to drop, and shows why."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rag_eval.embedding.base import Embedder, Vectors, embed_queries, text_vectors
from rag_eval.generation.candidates import Candidate
from rag_eval.generation.options import GenerationOptions
from rag_eval.generation.report import Reason
from rag_eval.retrieval.words import words
from rag_eval.stores.vectors import row_dots, unit_vectors
from rag_eval.tokens import count_tokens

RUN = 3
"""So many words in a row that stand in an excerpt too are copied."""

BLOCK = 1_024


@dataclass(frozen=True, slots=True)
class Drop:
    """A candidate that a filter drops: its place in the list, the reason, and what shows it."""

    place: int
    reason: Reason
    detail: str


def filtered(
    candidates: Sequence[Candidate], options: GenerationOptions, embedder: Embedder, *, by_length: bool
) -> tuple[list[Candidate], list[tuple[Candidate, Drop]]]:
    """The candidates that pass all filters, in their order, and those that do not.

    Each filter sees what the ones before have left. Without ``by_length`` the lengths of the texts are left alone.
    """
    kept = list(candidates)
    dropped: list[tuple[Candidate, Drop]] = []
    filters = [lengths] if by_length else []
    for drops in (*filters, leaks, irrelevances, repetitions):
        found = {drop.place: drop for drop in drops(kept, options, embedder)}
        dropped += [(kept[place], drop) for place, drop in found.items()]
        kept = [candidate for place, candidate in enumerate(kept) if place not in found]
    return kept, dropped


def lengths(candidates: Sequence[Candidate], options: GenerationOptions, embedder: Embedder) -> Iterator[Drop]:
    """Questions with an excerpt of fewer or more tokens than allowed."""
    fewest, most = options.filters.min_excerpt_tokens, options.filters.max_excerpt_tokens
    for place, candidate in enumerate(candidates):
        for text in candidate.evidence:
            tokens = count_tokens(text, options.encoding)
            if fewest is not None and tokens < fewest:
                yield Drop(place, "excerpt too short", f"{tokens} tokens, {fewest} at least: {text}")
                break
            if most is not None and tokens > most:
                yield Drop(place, "excerpt too long", f"{tokens} tokens, {most} at most: {text}")
                break


def leaks(candidates: Sequence[Candidate], options: GenerationOptions, embedder: Embedder) -> Iterator[Drop]:
    """Questions that repeat an excerpt: see ``leakage``."""
    most = options.filters.max_leakage
    for place, candidate in enumerate(candidates if most is not None else ()):
        share, text = max(((leakage(candidate.text, text), text) for text in candidate.evidence), default=(0.0, ""))
        if most is not None and share > most:
            yield Drop(place, "copies the excerpt", f"{share:.0%} of its words, {most:.0%} at most: {text}")


def leakage(question: str, excerpt: str) -> float:
    """The share of the question's words that stand in a run of three or more which the excerpt holds too; 0 to 1.

    0 for a question without words. Scripts without spaces count pairs of characters as words.
    """
    asked, told = words(question), words(excerpt)
    runs = {tuple(told[place : place + RUN]) for place in range(len(told) - RUN + 1)}
    copied = np.zeros(len(asked), bool)
    for place in range(len(asked) - RUN + 1):
        if tuple(asked[place : place + RUN]) in runs:
            copied[place : place + RUN] = True
    return float(copied.mean()) if asked else 0.0


def irrelevances(candidates: Sequence[Candidate], options: GenerationOptions, embedder: Embedder) -> Iterator[Drop]:
    """Questions whose excerpts, taken together, are less similar to them than allowed."""
    least = options.filters.min_relevance
    places = [place for place, candidate in enumerate(candidates) if candidate.evidence]
    if least is None or not places:
        return
    asked = unit_vectors(embed_queries(embedder, [candidates[place].text for place in places]), "questions' vectors")
    told = ["\n".join(candidates[place].evidence) for place in places]
    answers = unit_vectors(text_vectors(embedder, told), "excerpts' vectors")
    similarities = row_dots(asked.astype(np.float64), answers.astype(np.float64))
    for place, similarity, text in zip(places, similarities.tolist(), told, strict=True):
        if similarity < least:
            yield Drop(place, "excerpt not relevant", f"similarity {similarity:.2f}, {least:.2f} at least: {text}")


def repetitions(candidates: Sequence[Candidate], options: GenerationOptions, embedder: Embedder) -> Iterator[Drop]:
    """Questions that an earlier one asks too: word for word, or nearly, with the same numbers in them.

    Questions of the same words are always dropped, as they would have the same id.
    """
    most = options.filters.max_question_similarity
    first: dict[tuple[str, ...], int] = {}
    others: list[int] = []
    for place, candidate in enumerate(candidates):
        earlier = first.setdefault(tuple(words(candidate.text)) or (candidate.text,), place)
        if earlier != place:
            yield Drop(place, "near duplicate", f"the same words as: {candidates[earlier].text}")
        else:
            others.append(place)
    if most is None or len(others) < 2:
        return
    vectors = unit_vectors(embed_queries(embedder, [candidates[place].text for place in others]), "questions' vectors")
    # By their numbers apart: "Route 2" and "Route 3" are near each other in any space of words.
    groups: dict[frozenset[str], list[int]] = {}
    for row, place in enumerate(others):
        numbers = frozenset(word for word in words(candidates[place].text) if any(c.isdigit() for c in word))
        groups.setdefault(numbers, []).append(row)
    for rows in groups.values():
        for later, earlier, similarity in _alike(vectors[rows], most):
            nearest = candidates[others[rows[earlier]]].text
            detail = f"similarity {similarity:.2f} with: {nearest}"
            yield Drop(others[rows[later]], "near duplicate", detail)


def _alike(vectors: Vectors, least: float) -> Iterator[tuple[int, int, float]]:
    """Each row that is as similar as ``least`` to an earlier one that is not so itself, with that one."""
    kept = np.ones(len(vectors), bool)
    for begin in range(0, len(vectors), BLOCK):
        similarities = vectors[begin : begin + BLOCK] @ vectors[: begin + BLOCK].T
        for row in range(begin, min(begin + BLOCK, len(vectors))):
            scores = np.where(kept[:row], similarities[row - begin, :row], -np.inf)
            if row and scores.max() >= least:
                kept[row] = False
                yield row, int(np.argmax(scores)), float(scores.max())
