"""The runs of a workspace: finding and reading them, the baseline, and whether two runs can be compared."""

import json
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

from pydantic import BaseModel, ValidationError

from rag_eval.config.models import LONGEST_NAME
from rag_eval.errors import ArtifactError, ConfigurationError
from rag_eval.formatting import asked, slug, suggestion
from rag_eval.ground_truth.copies import NearCopies
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.outcome import SUMMARY, BenchmarkOutcome
from rag_eval.storage.files import patterns_of
from rag_eval.tables import file_digests

VERSIONS: tuple[int, ...] = get_args(BenchmarkOutcome.model_fields["schema_version"].annotation)
"""The versions of the summary that can be read."""

LATEST, BASELINE = "latest", "baseline"
"""Names that stand for a run."""

BASELINE_FILE, BASELINES = "baseline.json", "baselines"
"""The baseline of benchmarks without a name, and the folder with a file for each that has one."""

MOST_NAMED = 3
"""So many documents that differ are named of each kind."""

_DIGITS = 12
"""How much of a digest is shown."""


def read_summary(path: Path) -> BenchmarkOutcome:
    """Read the outcome that a run kept; raises ``ArtifactError`` on a file of an unknown version, or no summary."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ArtifactError(f"{str(path)!r} cannot be read ({error.strerror}): check the file and its rights") from None
    try:
        return BenchmarkOutcome.model_validate_json(data, strict=True)
    except ValidationError as error:
        raise ArtifactError(f"{str(path)!r} {_problem(data, error)}") from None


def _problem(data: bytes, error: ValidationError) -> str:
    try:
        content = json.loads(data)
    except ValueError:
        return "is not JSON: the file was damaged, remove the run's folder"
    version = content.get("schema_version") if isinstance(content, dict) else None
    known = " and ".join(map(str, VERSIONS))
    if version is None:
        return "has no schema_version: it was written by an earlier rag-eval, run the benchmark again"
    if version not in VERSIONS:
        return f"has the schema_version {version!r} and this rag-eval reads {known}: use the version that wrote it"
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"is not a summary of version {version} at {place} ({first['msg']}): remove the run's folder"


class Baseline(BaseModel):
    """The run that others are compared with, and when it was chosen (ISO 8601, UTC)."""

    run: str
    chosen: str


def run_names(workspace: Workspace) -> list[str]:
    """Return the names of the finished runs, oldest first."""
    paths = (Path(name) for name in workspace.storage.names("runs"))
    return sorted(path.parent.name for path in paths if path.name == SUMMARY and len(path.parts) == 3)


def find_run(workspace: Workspace, run: str = LATEST, beside: BenchmarkOutcome | None = None) -> str:
    """Find a run by ``latest``, ``baseline``, a name or its start; raises ``ConfigurationError`` unless it is one.

    The baseline is that of the benchmark of ``beside``, by default of the latest run.
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
        meant = suggestion(run, [LATEST, BASELINE, *names])
        problem = f"{len(matching)} runs start with {run!r}" if matching else f"there is no run {run!r}{meant}"
        raise ConfigurationError(
            f"{problem} in {where}: use {LATEST}, {BASELINE} or more of a name; the latest are {', '.join(names[-3:])}"
        )
    return matching[0]


def read_run(workspace: Workspace, run: str = LATEST, beside: BenchmarkOutcome | None = None) -> BenchmarkOutcome:
    """Read the outcome of a run, named as for ``find_run``; raises as that does, and ``ArtifactError``."""
    name = find_run(workspace, run, beside)
    path = workspace.fetch(workspace.runs / name / SUMMARY)
    outcome = read_summary(path)
    if outcome.run != name:
        raise ArtifactError(f"{str(path)!r} is the summary of another run, {outcome.run}: remove the folder of {name}")
    return outcome


def read_both(workspace: Workspace, before: str, after: str) -> tuple[BenchmarkOutcome, BenchmarkOutcome]:
    """Read two runs; where one is the baseline, that of the other's benchmark."""
    if before == BASELINE:
        new = read_run(workspace, after)
        return read_run(workspace, before, new), new
    old = read_run(workspace, before)
    return old, read_run(workspace, after, old)


def documents_of_newest(workspace: Workspace, corpus: Path, glob: str | Sequence[str]) -> dict[str, str] | None:
    """Return the digests of the documents of the newest run on a corpus, by name; None if there is no such run.

    Runs and tables that cannot be read are ignored.
    """
    for name in reversed(run_names(workspace)):
        with suppress(ArtifactError, ConfigurationError):
            outcome = read_run(workspace, name)
            same = patterns_of(glob) == patterns_of(outcome.corpus.glob)
            if same and outcome.corpus.folder.resolve() == corpus.resolve():
                tables = [workspace.read_table(shard) for shard in outcome.inputs.documents]
                return {doc_id: digest for table in tables for doc_id, digest in file_digests(table).items()}
    return None


def choose_baseline(workspace: Workspace, run: str = LATEST) -> Baseline:
    """Make a run the baseline of its benchmark, in place of the one before; raises as ``read_run`` does."""
    outcome = read_run(workspace, run)
    if not outcome.configurations:
        raise ConfigurationError(f"every configuration of {outcome.run} failed: choose a run that has scores")
    chosen = Baseline(run=outcome.run, chosen=datetime.now(UTC).isoformat(timespec="seconds"))
    workspace.write_file(
        _baseline_file(workspace, outcome.config.name), f"{chosen.model_dump_json(indent=2)}\n".encode()
    )
    return chosen


def _baseline_file(workspace: Workspace, benchmark: str | None) -> Path:
    """Return the file that has the baseline of a benchmark."""
    name = slug(benchmark or "", LONGEST_NAME)
    return workspace.root / (f"{BASELINES}/{name}.json" if name else BASELINE_FILE)


def has_baseline(workspace: Workspace, benchmark: str | None) -> bool:
    """Return whether a baseline was chosen for a benchmark."""
    return workspace.fetch_newest(_baseline_file(workspace, benchmark)).exists()


def baseline_runs(workspace: Workspace) -> set[str]:
    """Return the baselines of all benchmarks; raises ``ArtifactError`` as ``read_baseline`` does."""
    others = [Path(name).stem for name in workspace.storage.names(BASELINES)]
    return {read_baseline(workspace, one).run for one in (None, *others) if has_baseline(workspace, one)}


def read_baseline(workspace: Workspace, benchmark: str | None) -> Baseline:
    """Read which run is the baseline of a benchmark.

    Raises ``ConfigurationError`` without one, ``ArtifactError`` if it is gone.
    """
    path = workspace.fetch_newest(_baseline_file(workspace, benchmark))
    try:
        found = Baseline.model_validate_json(path.read_bytes(), strict=True)
    except FileNotFoundError:
        others = sorted(Path(name).stem for name in workspace.storage.names(BASELINES))
        of = f"for the benchmark {benchmark!r}, only for {', '.join(others)}" if others and benchmark else ""
        raise ConfigurationError(
            " ".join(filter(None, (f"the workspace {workspace.address!r} has no baseline", of)))
            + ": choose one with rag-eval gate RUN --accept"
        ) from None
    except (OSError, ValidationError):
        raise ArtifactError(f"{str(path)!r} is not a baseline: choose one with rag-eval gate RUN --accept") from None
    if found.run not in run_names(workspace):
        raise ArtifactError(
            f"the baseline {found.run!r} is gone from the workspace {workspace.address!r}: choose another"
        )
    return found


def data_differences(
    before: BenchmarkOutcome, after: BenchmarkOutcome, workspace: Workspace | None = None
) -> list[str]:
    """Say how the corpus and the ground truth differ, in a few words each with both digests; [] when they do not.

    Files are the same when their bytes are, or when what was read from them is: a blank line in a ground-truth file
    makes no other truth. The first documents that differ are named where a workspace with their tables is given.
    """
    runs = (before, after)
    found = [_corpus_difference(workspace, before, after)]
    if truth_digests(before) != truth_digests(after):
        if before.ground_truth.digest != after.ground_truth.digest:
            sides = [f"{asked(run.answerable, run.unanswerable)} ({_short(run.ground_truth.digest)})" for run in runs]
            found.append(_sentence("the ground truth differs", sides, runs))
        elif before.config.copies != after.config.copies:
            copies = [run.config.copies for run in runs]
            sides = [f"near {one.near:g}" if isinstance(one, NearCopies) else one for one in copies]
            found.append(_sentence("the copies that count as evidence differ", sides, runs))
    return list(filter(None, found))


def _corpus_difference(workspace: Workspace | None, before: BenchmarkOutcome, after: BenchmarkOutcome) -> str:
    """Say how the documents differ; empty if they do not."""
    runs = (before, after)
    if before.inputs.documents_digest == after.inputs.documents_digest:
        return ""
    named = _named(workspace, before, after)
    if before.corpus.digest != after.corpus.digest:
        sides = [f"{run.documents:,} documents ({_short(run.corpus.digest)})" for run in runs]
        return _sentence("the corpus differs", sides, runs) + named
    loaders = [
        ", ".join(f"{key} by {loader.label} ({_short(loader.digest)})" for key, loader in run.corpus.loaders.items())
        for run in runs
    ]
    # What the same loaders read has another digest in another number of shards.
    if not named and loaders[0] == loaders[1] and len(before.inputs.documents) != len(after.inputs.documents):
        return ""
    return (
        _sentence("the same files were read to other texts", [read or "no loaders" for read in loaders], runs) + named
    )


def _short(digest: str) -> str:
    return f"{digest[:_DIGITS]}…"


def _sentence(what: str, sides: Sequence[str], runs: Sequence[BenchmarkOutcome]) -> str:
    return f"{what}: {' and '.join(f'{side} in {run.run}' for side, run in zip(sides, runs, strict=True))}"


def _named(workspace: Workspace | None, before: BenchmarkOutcome, after: BenchmarkOutcome) -> str:
    """Name documents that changed, are new or are gone, in brackets; empty if none is, or the tables are gone."""
    if workspace is None:
        return ""
    try:
        tables = [workspace.read_tables(run.inputs.documents) for run in (before, after)]
    except ArtifactError:
        return ""
    columns = ([table.column(name).to_pylist() for name in ("doc_id", "sha256")] for table in tables)
    old, new = (dict(zip(*pair, strict=True)) for pair in columns)
    kinds = {
        "changed": sorted(one for one in old.keys() & new.keys() if old[one] != new[one]),
        "new": sorted(new.keys() - old.keys()),
        "gone": sorted(old.keys() - new.keys()),
    }
    told = [
        f"{kind} {', '.join(ids[:MOST_NAMED])}" + f" and {len(ids) - MOST_NAMED:,} more" * (len(ids) > MOST_NAMED)
        for kind, ids in kinds.items()
        if ids
    ]
    return f" ({'; '.join(told)})" if told else ""


def check_comparable(
    workspace: Workspace, before: BenchmarkOutcome, after: BenchmarkOutcome, *, allow_different: bool
) -> list[str]:
    """Say how the data of two runs differ.

    Raises ``ConfigurationError`` when anything does and that is not allowed, and when they are not of one evaluation
    type, which is never allowed.
    """
    types = (before.config.evaluation_type, after.config.evaluation_type)
    if types[0] != types[1]:
        raise ConfigurationError(
            f"{before.run} is {types[0]} and {after.run} is {types[1]}: their scores cannot be compared"
        )
    differences = data_differences(before, after, workspace)
    if differences and not allow_different:
        raise ConfigurationError(
            f"the runs were not measured on the same data: {'; '.join(differences)}; "
            "--allow-different compares them on the queries they share; when documents or questions were meant to "
            "change, rag-eval gate latest --accept makes the new ones the measure"
        )
    return differences


def truth_digests(run: BenchmarkOutcome) -> tuple[str, str]:
    """Return the digests of the queries and of the answers, as they were read."""
    return run.inputs.truth.queries.digest, run.inputs.truth.answers.digest
