"""Figures and counts as people read them, the same wherever they are shown."""


def counted(number: int, plural: str) -> str:
    """A number and its noun: ``counted(1, "queries")`` is "1 query"."""
    return f"{number:,} {plural if number != 1 else singular(plural)}"


def singular(plural: str) -> str:
    """The singular of a regular English plural."""
    return f"{plural[:-3]}y" if plural.endswith("ies") else plural.removesuffix("s")


def number(value: float) -> str:
    """A score with three decimals, or a count of tokens without."""
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.0f}"


def signed(value: float) -> str:
    """A difference with its sign."""
    return f"{value:+.3f}" if abs(value) < 10 else f"{value:+.0f}"


def interval(low: float | None, high: float | None, *, with_sign: bool = False) -> str:
    """Both ends, or a dash when there is no interval."""
    if low is None or high is None:
        return "–"
    write = signed if with_sign else number
    return f"{write(low)}…{write(high)}"


def p_value(p: float) -> str:
    """A p-value with as many digits as matter."""
    return f"{p:.3f}" if p >= 0.0005 else "<0.001"


def basis(queries: int, units: int, unit: str) -> str:
    """What a test rests on."""
    if unit == "documents":
        return f"{counted(queries, 'queries')} in {counted(units, 'documents')}"
    return f"{counted(queries, 'queries')} in few documents, so that it holds for questions about these only"
