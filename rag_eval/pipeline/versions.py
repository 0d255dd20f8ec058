"""What a result was made with."""

import platform
from importlib.metadata import PackageNotFoundError, version

DECIDING = (
    "rag-eval",
    "numpy",
    "lancedb",
    "tiktoken",
    "wordllama",
    "tokenizers",
    "openai",
    "cohere",
    "sentence-transformers",
    "transformers",
    "torch",
)
"""The packages whose version can change a number."""


def versions() -> dict[str, str]:
    """The version of Python and of each deciding package that is installed."""
    found = {"python": platform.python_version()}
    for package in DECIDING:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
