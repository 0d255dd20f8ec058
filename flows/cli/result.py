"""What a run found, printed: the ranking, what it took, and where everything is."""

from rich.console import Console

from flows.cli.figures import print_json
from flows.cli.publish import known_publications, print_publications
from flows.cli.ranking import print_outcome, print_work
from flows.cli.text import say
from rag_eval.errors import ArtifactError
from rag_eval.pipeline.outcome import BenchmarkOutcome
from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports.ranking import ranking_of
from rag_eval.reports.write import page_of
from rag_eval.results.score_files import read_scores
from rag_eval.stats.comparison import Placed


def print_result(outcome: BenchmarkOutcome, workspace: Workspace, *, as_json: bool, k: int | None = None) -> None:
    """Print the ranking, at another number of hits if asked, and where it is kept and published.

    Or print the whole outcome as JSON. Raises ``ConfigurationError`` when nothing was measured at k.
    """
    shown = outcome if k is None else outcome.at(k)
    console, published = Console(), known_publications(workspace, outcome.run)
    if as_json:
        print_json(console, outcome.model_dump(mode="json") | {"published": [one.model_dump() for one in published]})
        return
    print_outcome(console, shown, _how_sure(console, shown, workspace))
    others = [str(other) for other in outcome.config.k if str(other) != shown.ranking_metric.partition("@")[2]]
    if others:
        further = f", or {', '.join(others[1:])}" if others[1:] else ""
        say(console, f"The averages at another k: rag-eval show --k {others[0]}{further}")
    print_work(console, outcome)
    print_publications(console, published)
    say(console, f"Kept in {workspace.address}/runs/{outcome.run}")
    if (page := workspace.kept(page_of(workspace, outcome))).exists():
        say(console, f"Report: {page}")


def _how_sure(console: Console, outcome: BenchmarkOutcome, workspace: Workspace) -> list[Placed] | None:
    """The ranking with its tests; None where the scores of single queries are gone, which is said."""
    if not outcome.configurations:
        return None
    try:
        return ranking_of(outcome, read_scores(workspace, outcome, outcome.ranking_metric))
    except ArtifactError as error:
        say(console, f"How sure the ranking is cannot be told: {error}", "yellow")
        return None
