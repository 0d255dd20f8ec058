"""``rag-eval truth pull``: ground truth from a LangSmith dataset."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rag_eval.publishing.langsmith_datasets import GroundTruth

DEFAULT_OUTPUT = Path("truth.jsonl")


def pull(
    dataset: Annotated[str, typer.Argument(help="The name of the LangSmith dataset.")],
    output: Annotated[Path, typer.Option(help="Where the ground truth is written.")] = DEFAULT_OUTPUT,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it is there.")] = False,
) -> None:
    """Write the ground truth of a LangSmith dataset, of either type, to a file."""
    from rich.console import Console

    from flows.cli.text import say
    from rag_eval.errors import ConfigurationError
    from rag_eval.publishing.langsmith_datasets import pull_truth
    from rag_eval.publishing.langsmith_service import LangSmithService
    from rag_eval.wording import counted

    if output.exists() and not overwrite:
        raise ConfigurationError(f"{str(output)!r} is there already: give another --output, or --overwrite")
    service = LangSmithService.connect()
    try:
        truth = pull_truth(service, dataset)
    finally:
        service.close()
    kind = write_truth(output, truth)
    line = f"{counted(len(truth), 'queries')} of {kind} ground truth from {dataset!r} are in {output}"
    say(Console(), line)


def write_truth(output: Path, truth: "GroundTruth") -> str:
    """Write ground truth of either type to a file, and give back its type."""
    from rag_eval.ground_truth.writing import write_chunk_level, write_token_level
    from rag_eval.types.ground_truth import TokenLevelGroundTruth

    spans = [item for item in truth if isinstance(item, TokenLevelGroundTruth)]
    if spans:
        write_token_level(output, spans)
        return "token-level"
    write_chunk_level(output, [item for item in truth if not isinstance(item, TokenLevelGroundTruth)])
    return "chunk-level"
