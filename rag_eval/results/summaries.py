"""Reading ``summary.json``, whatever version wrote it."""

import json
from pathlib import Path
from typing import get_args

from pydantic import ValidationError

from rag_eval.errors import ArtifactError
from rag_eval.pipeline.outcome import BenchmarkOutcome

VERSIONS: tuple[int, ...] = get_args(BenchmarkOutcome.model_fields["schema_version"].annotation)
"""The versions of the summary that can be read."""


def read_summary(path: Path) -> BenchmarkOutcome:
    """The outcome that a run kept.

    Raises ``ArtifactError`` when the file cannot be read, is of an unknown version, or is not a summary.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ArtifactError(f"{str(path)!r} cannot be read ({error.strerror}): check the file and its rights") from None
    try:
        return BenchmarkOutcome.model_validate_json(data)
    except ValidationError as error:
        raise ArtifactError(f"{str(path)!r} {_problem(data, error)}") from None


def _problem(data: bytes, error: ValidationError) -> str:
    try:
        content = json.loads(data)
    except ValueError:
        return "is not JSON: the file was damaged, remove the run's folder"
    version = content.get("schema_version") if isinstance(content, dict) else None
    known = " and ".join(map(str, VERSIONS))
    if version is None:
        return "has no schema_version: it was written by an earlier rag-eval, run the benchmark again"
    if version not in VERSIONS:
        return f"has the schema_version {version!r} and this rag-eval reads {known}: use the version that wrote it"
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"is not a summary of version {version} at {place} ({first['msg']}): remove the run's folder"
