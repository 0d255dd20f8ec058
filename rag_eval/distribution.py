"""The name and version of this package, and the command that installs one of its extras."""

DISTRIBUTION = "rag-span-eval"
"""The name on PyPI, where ``rag-eval`` is another project. The import name is ``rag_eval``."""

VERSION = "0.1.0"
PRODUCT = "rag-eval"
"""The name under which results record the version."""


def install_command(extra: str) -> str:
    """Return the pip command that installs an extra."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"
