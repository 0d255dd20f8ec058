"""What this package is called where it is installed, its version, and the command that installs an extra of it."""

DISTRIBUTION = "rag-span-eval"
"""The name for pip, where ``rag-eval`` is another project; one imports ``rag_eval`` and runs ``rag-eval``."""

VERSION = "0.1.0"
PRODUCT = "rag-eval"
"""What the version is recorded under, whatever the distribution is called."""


def install_command(extra: str) -> str:
    """Return the command that adds what an extra needs; where the package is installed, pip takes no other for it."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"
