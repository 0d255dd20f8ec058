"""An experiment's averages as Markdown."""

from rag_eval.experiments.types import ExperimentResult
from rag_eval.reports.markdown import escape_markdown
from rag_eval.wording import counted


def experiment_markdown(result: ExperimentResult) -> str:
    """A table of the averages with n and interval, what failed, and where the results are."""
    lines = [f"## {escape_markdown(result.name)}", "", "| score | mean | 95 % interval | n |", "|---|---:|---:|---:|"]
    for key, average in result.averages.items():
        interval = f"{average.low:.3f} to {average.high:.3f}" if average.low is not None else ""
        lines.append(f"| {escape_markdown(key)} | {average.mean:.3f} | {interval} | {average.n} |")
    lines += ["", f"{counted(result.total, 'samples')} in {result.seconds:.1f} s.", ""]
    lines += [f"- {escape_markdown(place)} failed {counted(count, 'times')}" for place, count in result.errors.items()]
    return "\n".join([*lines, *(f"- {name}: {_place(place)}" for name, place in result.saved.items())])


def _place(place: str) -> str:
    # A page of a server cannot link to a file.
    return f"[open]({place})" if place.startswith("https://") and " " not in place else escape_markdown(place)
