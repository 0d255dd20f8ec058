"""Find and read the runs of a workspace, its baselines, and whether two runs can be compared."""

import json
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ValidationError

from rag_eval.config.models import LONGEST_NAME
from rag_eval.errors import ArtifactError, ConfigurationError
from rag_eval.formatting import asked, slug, suggestion
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.outcome import RUN_TIME, SUMMARY, BenchmarkOutcome
from rag_eval.storage.files import patterns_of
from rag_eval.tables import file_digests

VERSION: int = BenchmarkOutcome.model_fields["schema_version"].default
"""The version of the summary that can be read."""

LATEST, BASELINE = "latest", "baseline"
"""Names that stand for a run."""

STARTED_FILE = "last-run.json"

BASELINE_FILE, BASELINES = "baseline.json", "baselines"
"""The file of the baseline of benchmarks without a name, and the folder with a file for each named benchmark."""

MOST_NAMED = 3
_DIGITS = 12
"""Number of digits of a digest to show."""


def read_summary(path: Path) -> BenchmarkOutcome:
    """Read the outcome of a run; raises ``ArtifactError`` if the file is damaged or of another version."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ArtifactError(f"{str(path)!r} cannot be read: {error.strerror}") from None
    try:
        return BenchmarkOutcome.model_validate_json(data, strict=True)
    except ValidationError as error:
        raise ArtifactError(f"{str(path)!r} {_problem(data, error)}") from None


def _problem(data: bytes, error: ValidationError) -> str:
    try:
        content = json.loads(data)
    except ValueError:
        return "is damaged (not JSON): remove the run's folder"
    version = content.get("schema_version") if isinstance(content, dict) else None
    if version != VERSION:
        age = "an older" if isinstance(version, int) and version < VERSION else "another"
        return (
            f"was written by {age} version of rag-eval (schema_version {version!r}; this version reads {VERSION}): "
            "read it with that version, or run the benchmark again"
        )
    first = error.errors(include_url=False, include_input=False)[0]
    return f"is damaged at {'.'.join(map(str, first['loc']))} ({first['msg']}): remove the run's folder"


class Baseline(BaseModel):
    """The run that others are compared with, and when it was chosen (ISO 8601, UTC)."""

    run: str
    chosen: str


class Started(BaseModel):
    """When the last run was started by the command line, as run names have it, and the run it ended with."""

    started: str
    run: str | None = None


def note_start(workspace: Workspace) -> Started:
    """Note in the workspace that a run starts."""
    noted = Started(started=f"{datetime.now(UTC):{RUN_TIME}}")
    workspace.write_file(workspace.root / STARTED_FILE, noted.model_dump_json().encode())
    return noted


def note_end(workspace: Workspace, noted: Started, run: str) -> None:
    """Note that the run has ended with this outcome."""
    data = noted.model_copy(update={"run": run}).model_dump_json()
    workspace.write_file(workspace.root / STARTED_FILE, data.encode())


def check_finished(workspace: Workspace, run: str) -> None:
    """Raise ``ConfigurationError`` if the run is ``latest``, and a later one was started that has no outcome."""
    with suppress(OSError, ValidationError):
        noted = Started.model_validate_json(workspace.fetch_newest(workspace.root / STARTED_FILE).read_bytes())
        newest = max(run_names(workspace), default="")
        if run == LATEST and noted.run is None and noted.started > newest:
            raise ConfigurationError(
                "the last rag-eval run has not finished (it failed, was stopped or still runs), so there is nothing "
                f"new to compare: run the benchmark again, or name a run, such as {newest or 'RUN'}"
            )


def run_names(workspace: Workspace) -> list[str]:
    """Return the names of the finished runs, oldest first."""
    paths = (Path(name) for name in workspace.storage.names("runs"))
    return sorted(path.parent.name for path in paths if path.name == SUMMARY and len(path.parts) == 3)


def find_run(workspace: Workspace, run: str = LATEST, beside: BenchmarkOutcome | None = None) -> str:
    """Find a run by ``latest``, ``baseline``, its name or the start of it; raises ``ConfigurationError``.

    The baseline is the one of the benchmark of ``beside``, by default the latest run.
    """
    names = run_names(workspace)
    where = f"the workspace {workspace.address!r}"
    if not names:
        raise ConfigurationError(f"there is no run yet in {where}: run a benchmark first, or check the path")
    if run == LATEST:
        return names[-1]
    if run == BASELINE:
        return read_baseline(workspace, (beside or read_run(workspace)).config.name).run
    matching = [run] if run in names else [name for name in names if name.startswith(run)]
    if len(matching) != 1:
        hint = suggestion(run, [LATEST, BASELINE, *names])
        problem = f"{len(matching)} runs start with {run!r}" if matching else f"there is no run {run!r}{hint}"
        raise ConfigurationError(
            f"{problem} in {where}: use {LATEST}, {BASELINE} or a longer start of a name; the latest are "
            f"{', '.join(names[-3:])}"
        )
    return matching[0]


def read_run(workspace: Workspace, run: str = LATEST, beside: BenchmarkOutcome | None = None) -> BenchmarkOutcome:
    """Read the outcome of a run, named as for ``find_run``; raises like ``find_run``, and ``ArtifactError``."""
    name = find_run(workspace, run, beside)
    path = workspace.fetch(workspace.runs / name / SUMMARY)
    outcome = read_summary(path)
    if outcome.run != name:
        raise ArtifactError(f"{str(path)!r} is the summary of another run, {outcome.run}: remove the folder of {name}")
    return outcome


def read_both(workspace: Workspace, before: str, after: str) -> tuple[BenchmarkOutcome, BenchmarkOutcome]:
    """Read two runs; ``baseline`` means the baseline of the other run's benchmark."""
    if before == BASELINE:
        new = read_run(workspace, after)
        return read_run(workspace, before, new), new
    old = read_run(workspace, before)
    return old, read_run(workspace, after, old)


def documents_of_newest(workspace: Workspace, corpus: Path, glob: str | Sequence[str]) -> dict[str, str] | None:
    """Return the digests of the documents of the newest run on a corpus, by name; None if there is none to read."""
    for name in reversed(run_names(workspace)):
        with suppress(ArtifactError, ConfigurationError):
            outcome = read_run(workspace, name)
            is_same = patterns_of(glob) == patterns_of(outcome.corpus.glob)
            if is_same and outcome.corpus.folder.resolve() == corpus.resolve():
                return file_digests(workspace.read_tables(outcome.inputs.documents))
    return None


def choose_baseline(workspace: Workspace, run: str = LATEST) -> Baseline:
    """Make a run the baseline of its benchmark; raises like ``read_run`` does."""
    outcome = read_run(workspace, run)
    if not outcome.configurations:
        raise ConfigurationError(f"every configuration of {outcome.run} failed: choose a run that has scores")
    baseline = Baseline(run=outcome.run, chosen=datetime.now(UTC).isoformat(timespec="seconds"))
    path = _baseline_file(workspace, outcome.config.name)
    workspace.write_file(path, f"{baseline.model_dump_json(indent=2)}\n".encode())
    return baseline


def _baseline_file(workspace: Workspace, benchmark: str | None) -> Path:
    name = slug(benchmark or "", LONGEST_NAME)
    return workspace.root / (f"{BASELINES}/{name}.json" if name else BASELINE_FILE)


def has_baseline(workspace: Workspace, benchmark: str | None) -> bool:
    """Return whether a baseline was chosen for a benchmark."""
    return workspace.fetch_newest(_baseline_file(workspace, benchmark)).exists()


def baseline_runs(workspace: Workspace) -> set[str]:
    """Return the baselines of all benchmarks; raises ``ArtifactError`` as ``read_baseline`` does."""
    benchmarks = [None, *(Path(name).stem for name in workspace.storage.names(BASELINES))]
    return {read_baseline(workspace, name).run for name in benchmarks if has_baseline(workspace, name)}


def read_baseline(workspace: Workspace, benchmark: str | None) -> Baseline:
    """Read which run is the baseline of a benchmark.

    Raises ``ConfigurationError`` if there is none, and ``ArtifactError`` if it is missing or damaged.
    """
    path = workspace.fetch_newest(_baseline_file(workspace, benchmark))
    how = "choose one with rag-eval gate RUN --accept"
    try:
        baseline = Baseline.model_validate_json(path.read_bytes(), strict=True)
    except FileNotFoundError:
        others = sorted(Path(name).stem for name in workspace.storage.names(BASELINES))
        which = f" for the benchmark {benchmark!r}, only for {', '.join(others)}" if others and benchmark else ""
        raise ConfigurationError(f"the workspace {workspace.address!r} has no baseline{which}: {how}") from None
    except (OSError, ValidationError):
        raise ArtifactError(f"{str(path)!r} is not a baseline: {how}") from None
    if baseline.run not in run_names(workspace):
        raise ArtifactError(f"the baseline {baseline.run!r} is missing in the workspace {workspace.address!r}: {how}")
    return baseline


def data_differences(
    before: BenchmarkOutcome, after: BenchmarkOutcome, workspace: Workspace | None = None
) -> list[str]:
    """Describe how the corpus and the ground truth of two runs differ; empty if they do not.

    Files are the same if their bytes are, or if what was read from them is: a blank line in a ground-truth file makes
    no difference. With a workspace the first documents that differ are named.
    """
    runs = (before, after)
    differences = [_corpus_difference(workspace, before, after)]
    if truth_digests(before) != truth_digests(after):
        if before.ground_truth.digest != after.ground_truth.digest:
            sides = [f"{asked(run.answerable, run.unanswerable)} ({_short(run.ground_truth.digest)})" for run in runs]
            differences.append(_sentence("the ground truth differs", sides, runs))
        elif before.config.copies != after.config.copies:
            sides = [run.config.copies for run in runs]
            differences.append(_sentence("the copies that count as evidence differ", sides, runs))
    return list(filter(None, differences))


def _corpus_difference(workspace: Workspace | None, before: BenchmarkOutcome, after: BenchmarkOutcome) -> str:
    """Describe how the documents differ; empty if they do not."""
    runs = (before, after)
    if before.inputs.documents_digest == after.inputs.documents_digest:
        return ""
    names = "" if workspace is None else _different_documents(workspace, before, after)
    if before.corpus.digest != after.corpus.digest:
        sides = [f"{run.documents:,} documents ({_short(run.corpus.digest)})" for run in runs]
        return _sentence("the corpus differs", sides, runs) + names
    loaders = [_loaders_in_words(run) for run in runs]
    # The same documents in another number of shards have another digest.
    if not names and loaders[0] == loaders[1] and len(before.inputs.documents) != len(after.inputs.documents):
        return ""
    return _sentence("the same files were read differently", loaders, runs) + names


def _loaders_in_words(run: BenchmarkOutcome) -> str:
    loaders = [f"{key} by {loader.label} ({_short(loader.digest)})" for key, loader in run.corpus.loaders.items()]
    return ", ".join(loaders) or "no loaders"


def _short(digest: str) -> str:
    return f"{digest[:_DIGITS]}…"


def _sentence(what: str, sides: Sequence[str], runs: Sequence[BenchmarkOutcome]) -> str:
    return f"{what}: {' and '.join(f'{side} in {run.run}' for side, run in zip(sides, runs, strict=True))}"


def _different_documents(workspace: Workspace, before: BenchmarkOutcome, after: BenchmarkOutcome) -> str:
    """Name changed, new and missing documents in brackets; empty if there are none, or tables are missing."""
    try:
        tables = [workspace.read_tables(run.inputs.documents) for run in (before, after)]
    except ArtifactError:
        return ""
    columns = ([table.column(name).to_pylist() for name in ("doc_id", "sha256")] for table in tables)
    old, new = (dict(zip(*pair, strict=True)) for pair in columns)
    kinds = {
        "changed": [name for name in old.keys() & new.keys() if old[name] != new[name]],
        "new": [*new.keys() - old.keys()],
        "gone": [*old.keys() - new.keys()],
    }
    parts = [f"{kind} {_some(sorted(names))}" for kind, names in kinds.items() if names]
    return f" ({'; '.join(parts)})" if parts else ""


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:MOST_NAMED]) + f" and {len(names) - MOST_NAMED:,} more" * (len(names) > MOST_NAMED)


def check_comparable(
    workspace: Workspace, before: BenchmarkOutcome, after: BenchmarkOutcome, *, allow_different: bool
) -> list[str]:
    """Describe how the data of two runs differ.

    Raises ``ConfigurationError`` if they do and that is not allowed, or if the evaluation types differ.
    """
    types = (before.config.evaluation_type, after.config.evaluation_type)
    if types[0] != types[1]:
        raise ConfigurationError(
            f"{before.run} is {types[0]} and {after.run} is {types[1]}: their scores cannot be compared"
        )
    differences = data_differences(before, after, workspace)
    if differences and not allow_different:
        raise ConfigurationError(
            f"the runs were not measured on the same data: {'; '.join(differences)}; compare the queries they share "
            "with --allow-different, or make the new data the baseline with rag-eval gate latest --accept"
        )
    return differences


def truth_digests(run: BenchmarkOutcome) -> tuple[str, str]:
    """Return the digests of the queries and of the answers, as read."""
    return run.inputs.truth.queries.digest, run.inputs.truth.answers.digest
