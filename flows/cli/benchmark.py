"""``rag-eval run``: start the benchmark flow and print the ranked table."""

from pathlib import Path

from rich.console import Console

from flows.cli.prefect_home import use_local_prefect
from flows.cli.ranking import print_ranking
from rag_eval import sample
from rag_eval.config.benchmark import BenchmarkConfig
from rag_eval.config.chunkers import RecursiveTokenConfig
from rag_eval.errors import BenchmarkFailedError, ConfigurationError
from rag_eval.pipeline.outcome import BenchmarkOutcome
from rag_eval.pipeline.references import CorpusSource, TruthSource
from rag_eval.pipeline.workspace import Workspace


def run_benchmark(corpus: Path | None, truth: Path | None, glob: str, k: int, workspace: Path) -> None:
    """Run the benchmark on a folder, or on the sample, and print what it found."""
    if (corpus is None) != (truth is None):
        raise ConfigurationError("--corpus and --truth go together: give both, or neither for the sample")
    config = BenchmarkConfig(
        corpus=(corpus or sample.CORPUS).absolute(),
        glob=glob,
        ground_truth=(truth or sample.GROUND_TRUTH).absolute(),
        chunkers=[RecursiveTokenConfig(chunk_size=size) for size in (60, 300)],
        k=k,
    )
    # A wrong path is said before a server is started.
    CorpusSource.of(config.corpus, config.glob)
    TruthSource.of(config.ground_truth)
    console = Console()
    kept = Workspace(root=workspace.absolute())
    try:
        with console.status(use_local_prefect(kept)):
            from flows.benchmark import benchmark

            outcome = benchmark(config, kept)
    except BenchmarkFailedError as error:
        print_ranking(console, BenchmarkOutcome.model_validate_json(error.summary.read_bytes()), k)
        raise
    print_ranking(console, outcome, k)
    console.print(f"Kept in {kept.runs / outcome.run}", highlight=False, soft_wrap=True, markup=False)
