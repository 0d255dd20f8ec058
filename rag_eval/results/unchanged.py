"""Find a run that would give the same results: its fingerprint is the digest of all inputs."""

from collections.abc import Sequence
from contextlib import suppress

from rag_eval.config.models import BenchmarkConfig, BenchmarkRecord
from rag_eval.errors import ArtifactError
from rag_eval.ground_truth.sources import FileTruth
from rag_eval.parts import digest
from rag_eval.pipeline import document_steps, ground_truth_steps, retrieve_steps, score_steps, search_steps
from rag_eval.pipeline.document_steps import CorpusSource
from rag_eval.pipeline.step import Step
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.outcome import SUMMARY, BenchmarkOutcome, versions
from rag_eval.results.runs import read_summary, run_names
from rag_eval.storage.files import data_sha256

STEPS = [
    step
    for module in (document_steps, ground_truth_steps, search_steps, retrieve_steps, score_steps)
    for step in vars(module).values()
    if isinstance(step, Step)
]


def source_digest(digests: Sequence[str]) -> str:
    """Return the digest of all sources of ground truth from their digests; a single source keeps its own."""
    return digests[0] if len(digests) == 1 else data_sha256(list(digests))


def fingerprint(config: BenchmarkConfig, corpus: CorpusSource, truth: str | None, *, reanchor: bool) -> str | None:
    """Return the digest of the benchmark, its documents, ground truth and parts, and of the versions that compute it.

    Args:
        config: The benchmark.
        corpus: Its documents.
        truth: The digest of its ground truth; None if it is unknown.
        reanchor: Whether spans are moved to where their text is.

    Returns:
        None if the ground truth is not in files.
    """
    if truth is None or not all(isinstance(source, FileTruth) for source in config.ground_truth):
        return None
    return data_sha256(
        {
            "config": BenchmarkRecord.of(config).model_dump(mode="json"),
            "parts": [digest(part) for part in config.parts()],
            "corpus": corpus.key_data,
            "truth": truth,
            "reanchor": reanchor,
            "versions": versions(config.parts()),
            "steps": {step.name: step.version for step in STEPS},
        }
    )


def unchanged_run(workspace: Workspace, config: BenchmarkConfig, *, reanchor: bool) -> BenchmarkOutcome | None:
    """Return the newest complete run of a benchmark if nothing has changed since; None if a run is needed.

    A run is also needed if it is to be published, or if tables of the earlier one are missing.

    Raises:
        CorpusError: The documents cannot be read.
        GroundTruthError: The ground truth cannot be read.
    """
    names = run_names(workspace)
    files = [source for source in config.ground_truth if isinstance(source, FileTruth)]
    if workspace.refresh or config.langsmith_dataset is not None or not names or len(files) < len(config.ground_truth):
        return None
    truth = source_digest([source.observe(config.evaluation_type).digest for source in files])
    corpus = CorpusSource.of(config.corpus, config.glob, config.loaders)
    wanted = fingerprint(config, corpus, truth, reanchor=reanchor)
    for name in reversed(names):
        path = workspace.runs / name / SUMMARY
        with suppress(OSError, ArtifactError):
            if f'"{wanted}"'.encode() in path.read_bytes():
                run = read_summary(path)
                if run.fingerprint == wanted and _is_complete(workspace, run):
                    return run
    return None


def _is_complete(workspace: Workspace, run: BenchmarkOutcome) -> bool:
    tables = [configuration.scores for configuration in run.configurations]
    return not run.failures and not any(map(workspace.problem, tables))
