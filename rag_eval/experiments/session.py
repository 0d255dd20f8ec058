"""What the command line changes about the experiments of a file, and what it learns of them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rag_eval.experiments.gates import Gate
from rag_eval.experiments.outputs.base import Output
from rag_eval.experiments.types import ExperimentResult


@dataclass
class Session:
    """Settings that stand above the calls' own, and the results of the experiments run meanwhile."""

    concurrency: int | None = None
    output_dir: Path | None = None
    outputs: Sequence[Output] | None = None
    """In place of all others."""
    is_quiet: bool = False
    """Whether nothing is shown on the terminal."""
    raises: bool = True
    """Whether a failing experiment ends the file, or the next one is run."""
    gates: Sequence[Gate] = ()
    """What the experiments must reach; a misspelt one is told before any call is made, where that can be."""
    results: list[ExperimentResult] = field(default_factory=list)


_sessions: list[Session] = []


def current_session() -> Session:
    """The session under way, or an empty one."""
    return _sessions[-1] if _sessions else Session()


@contextmanager
def session(opened: Session) -> Iterator[Session]:
    """Run experiments under a session; process-wide, since a file may start threads and loops of its own."""
    _sessions.append(opened)
    try:
        yield opened
    finally:
        _sessions.remove(opened)
