"""Which files stand behind a model's name: the name alone says nothing of them."""

import os
from pathlib import Path

from rag_eval.digests import files_sha256, kept_sha256
from rag_eval.errors import ConfigurationError

DIGEST_CHARACTERS = 16
# Every model has one of these at its top.
LANDMARKS = ("config.json", "modules.json", "config_sentence_transformers.json")


def model_name(model: str, revision: str | None = None, owners: tuple[str, ...] = ()) -> str:
    """The model with what tells its files from others of that name.

    For a folder that is its own name and the digest of its files, wherever it lies; for a model of the Hugging Face hub
    the commit that is on this machine, found under its name or as one of ``owners``; else the revision, if any.
    Loads and downloads nothing. Raises ``ConfigurationError`` when a file of the folder cannot be read.
    """
    folder = Path(model)
    if folder.is_dir():
        return f"{folder.resolve().name}@{_folder_sha256(folder)[:DIGEST_CHARACTERS]}"
    commits = (_commit(repository, revision) for repository in (model, *(f"{owner}/{model}" for owner in owners)))
    version = next((commit for commit in commits if commit), revision)
    return f"{model}@{version}" if version else model


def _folder_sha256(folder: Path) -> str:
    """Of all files but hidden ones, which tools leave beside a model."""
    try:
        paths = sorted(
            path
            for path in folder.rglob("*")
            if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
        )
        return files_sha256(folder, paths, kept_sha256)
    except OSError as error:
        raise ConfigurationError(
            f"the model folder {str(folder)!r} cannot be read ({error.strerror}): check its files and their rights"
        ) from None


def _commit(repository: str, revision: str | None) -> str | None:
    """The commit of a model in the cache of the hub; None where it is not there."""
    try:
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError
    except ImportError:
        return None
    for landmark in LANDMARKS:
        try:
            found = try_to_load_from_cache(
                repository, landmark, revision=revision, cache_dir=os.environ.get("SENTENCE_TRANSFORMERS_HOME")
            )
        except HFValidationError:
            return None
        if isinstance(found, str):
            return Path(found).parent.name
    return None
