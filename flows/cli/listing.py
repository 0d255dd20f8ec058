"""What there is to choose from."""

import inspect

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rag_eval.config.benchmark import BenchmarkConfig
from rag_eval.config.registry import SECTIONS
from rag_eval.metrics.registry import CHUNK_LEVEL_METRICS, TOKEN_LEVEL_METRICS


def print_components(section: str) -> None:
    """Print the parts of one kind with their settings, defaults and meaning."""
    console = Console()
    for name, component in SECTIONS[section].members.items():
        console.print(Text(name, style="bold"), Text(_first_line(component)))
        table = Table(box=None, padding=(0, 2, 0, 2), show_header=False)
        for setting, field in component.model_fields.items():
            if setting == "type":
                continue
            default = "required" if field.is_required() else f"= {field.get_default()!r}"
            table.add_row(Text(setting), Text(default, style="dim"), Text(field.description or ""))
        if table.row_count:
            console.print(table)


def print_metrics() -> None:
    """Print the metrics of both levels with their formulas."""
    console = Console()
    for level, registry in (("token-level", TOKEN_LEVEL_METRICS), ("chunk-level", CHUNK_LEVEL_METRICS)):
        console.print(Text(level, style="bold"))
        table = Table(box=None, padding=(0, 2, 0, 2), show_header=False)
        for name, metric in registry.items():
            table.add_row(Text(name), Text(_first_line(metric)))
        console.print(table)


def print_configurations(config: BenchmarkConfig) -> None:
    """Print every configuration of a benchmark."""
    console = Console()
    configurations = config.configurations()
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("#", justify="right")
    table.add_column("configuration")
    for number, configuration in enumerate(configurations, start=1):
        table.add_row(str(number), Text(configuration.name))
    console.print(table)
    ks = ", ".join(map(str, config.k))
    console.print(f"{len(configurations)} configurations, {config.evaluation_type}, k = {ks}", highlight=False)


def _first_line(documented: type) -> str:
    return (inspect.getdoc(documented) or "").splitlines()[0]
