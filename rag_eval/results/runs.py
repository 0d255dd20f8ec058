"""The runs of a workspace by name, and which of them is the baseline."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime

from rag_eval.choices import suggestion
from rag_eval.errors import ArtifactError, ConfigurationError
from rag_eval.pipeline.outcome import SUMMARY, BenchmarkOutcome
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.summaries import read_summary

LATEST = "latest"
BASELINE = "baseline"
BASELINE_FILE = "baseline.json"


@dataclass(frozen=True, slots=True)
class Baseline:
    """The run that others are held against, and when it was chosen (ISO 8601, UTC)."""

    run: str
    chosen: str


def run_names(workspace: Workspace) -> list[str]:
    """The names of the finished runs, oldest first."""
    return workspace.runs_with(SUMMARY)


def find_run(workspace: Workspace, run: str = LATEST) -> str:
    """The full name of a run: ``latest``, ``baseline``, a name, or the start of one.

    Raises ``ConfigurationError`` when there is no such run, or more than one.
    """
    names = run_names(workspace)
    where = f"the workspace {workspace.address!r}"
    if not names:
        raise ConfigurationError(f"there is no run yet in {where}: run a benchmark first, or check the path")
    if run == LATEST:
        return names[-1]
    if run == BASELINE:
        return read_baseline(workspace).run
    matching = [run] if run in names else [name for name in names if name.startswith(run)]
    if len(matching) != 1:
        meant = suggestion(run, [LATEST, BASELINE, *names])
        problem = f"{len(matching)} runs start with {run!r}" if matching else f"there is no run {run!r}{meant}"
        raise ConfigurationError(
            f"{problem} in {where}: use {LATEST}, {BASELINE} or more of a name; the latest are {', '.join(names[-3:])}"
        )
    return matching[0]


def read_run(workspace: Workspace, run: str = LATEST) -> BenchmarkOutcome:
    """The outcome of a run, named as for ``find_run``.

    Raises ``ConfigurationError`` when there is no such run and ``ArtifactError`` when it cannot be read.
    """
    return read_summary(workspace.kept(workspace.runs / find_run(workspace, run) / SUMMARY))


def choose_baseline(workspace: Workspace, run: str = LATEST) -> Baseline:
    """Make a run the baseline, in place of the one before; raises as ``read_run`` does."""
    outcome = read_run(workspace, run)
    if not outcome.configurations:
        raise ConfigurationError(f"every configuration of {outcome.run} failed: choose a run that has scores")
    chosen = Baseline(outcome.run, datetime.now(UTC).isoformat(timespec="seconds"))
    content = json.dumps({"run": chosen.run, "chosen": chosen.chosen}, indent=2)
    workspace.keep(workspace.root / BASELINE_FILE, f"{content}\n".encode())
    return chosen


def has_baseline(workspace: Workspace) -> bool:
    """Whether a baseline was chosen."""
    return workspace.newest(workspace.root / BASELINE_FILE).exists()


def read_baseline(workspace: Workspace) -> Baseline:
    """The baseline.

    Raises ``ConfigurationError`` when none is chosen and ``ArtifactError`` when it is gone or unreadable.
    """
    path = workspace.newest(workspace.root / BASELINE_FILE)
    try:
        content = json.loads(path.read_bytes())
        found = Baseline(str(content["run"]), str(content["chosen"]))
    except FileNotFoundError:
        raise ConfigurationError(
            f"the workspace {workspace.address!r} has no baseline: choose one with rag-eval baseline set RUN"
        ) from None
    except (OSError, ValueError, KeyError, TypeError):
        raise ArtifactError(f"{str(path)!r} is not a baseline: choose one with rag-eval baseline set RUN") from None
    if found.run not in run_names(workspace):
        raise ArtifactError(
            f"the baseline {found.run!r} is gone from the workspace {workspace.address!r}: choose another"
        )
    return found
