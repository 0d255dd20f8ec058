"""Embeddings by a model of the sentence-transformers library, which comes with the extra of that name."""

import importlib
import logging
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, StrictBool

from rag_eval.distribution import install_command
from rag_eval.embedding.embedder import BuiltInEmbedder, Vectors, check_texts, checked_vectors
from rag_eval.errors import ConfigurationError, preview
from rag_eval.parts import PythonOnly, Running, Shown, part
from rag_eval.parts.part_settings import Count, Name, OptionalCount, name_or_object
from rag_eval.storage.files import files_sha256, kept_sha256

DIGEST_CHARACTERS = 16
# Every model has one of these at its top.
LANDMARKS = ("config.json", "modules.json", "config_sentence_transformers.json")


def model_name(model: str, revision: str | None = None, owners: tuple[str, ...] = ()) -> str:
    """Return the model with what tells its files from others of that name.

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
    """Return of all files but hidden ones, which tools leave beside a model."""
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
    """Return the commit of a model in the cache of the hub; None where it is not there."""
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


def load_model(kind: str, model: str, allow_download: bool, **options: object) -> Any:
    """Load a ``SentenceTransformer`` or ``CrossEncoder``; raises ``ConfigurationError`` when it cannot be loaded."""
    try:
        library = importlib.import_module("sentence_transformers")
    except ImportError:
        raise ConfigurationError(
            f"sentence-transformers is not installed: {install_command('sentence-transformers')}"
        ) from None
    try:
        return getattr(library, kind)(model, local_files_only=not allow_download, **options)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"the model {model!r} cannot be loaded ({preview(str(error), 200)}): check its name, and give "
            "allow_download=True if it is to be downloaded"
        ) from None


OWNER = "sentence-transformers"
"""Whose models the library finds by their bare names."""

logger = logging.getLogger(__name__)


@part
class SentenceTransformersEmbedder(BuiltInEmbedder):
    """A sentence-transformers model, by its name, its folder or as a loaded object.

    A name is loaded at the first use, and only from this machine unless ``allow_download=True``. An object has
    ``encode`` as a ``SentenceTransformer`` has it, or ``encode_document`` and ``encode_query``, which put the model's
    own prompts before texts and questions, and needs a ``name`` that no other model has; with a ``tokenizer`` tokens
    are counted. Texts longer than the model takes are cut by it, which is said in the log.
    ``truncate_dim`` keeps that many leading numbers, ``normalize`` scales vectors to length 1.

    Raises ``ConfigurationError`` when the library or the model is missing, or the model gives vectors that cannot be
    used.
    """

    symmetric = False  # models may put different prompts before texts and questions
    packages = ("sentence-transformers", "transformers", "tokenizers", "torch")

    model: Annotated[Any, name_or_object("encode"), Shown, Field(description="The model's name or folder.")]
    _: KW_ONLY
    given_name: Annotated[str | None, PythonOnly] = Field(default=None, alias="name", kw_only=True)
    revision: Annotated[Name | None, Field(description="The model's version: a branch, a tag or a commit.")] = None
    device: Annotated[
        Name | None, Running, Field(description="Where it runs, such as cpu or cuda; null: the best there is.")
    ] = None
    batch_size: Annotated[Count, Running, Field(description="How many texts are embedded at once.")] = 32
    normalize: Annotated[StrictBool, Field(description="Whether vectors are scaled to length 1.")] = False
    truncate_dim: Annotated[OptionalCount, Field(description="How many leading numbers are kept.")] = None
    allow_download: Annotated[StrictBool, Running, Field(description="true lets it download the model.")] = False

    def __post_init__(self) -> None:
        if not isinstance(self.model, str) and not self.given_name:
            raise ConfigurationError("a loaded model needs a name that tells it from all others: give name")
        if not isinstance(self.model, str) and (self.revision or self.device or self.truncate_dim):
            raise ConfigurationError("revision, device and truncate_dim are for models loaded here: set them on yours")
        self._loading = threading.Lock()
        self._loaded: Any = None if isinstance(self.model, str) else self.model

    def __repr__(self) -> str:
        return f"SentenceTransformersEmbedder({self.model!r})"

    @cached_property
    def name(self) -> str:
        """The model with the digest of its folder or its commit, and what changes its vectors."""
        cut = self.truncate_dim
        found = self.given_name or f"{OWNER}/{model_name(str(self.model), self.revision, (OWNER,))}"
        return found + (f"/{cut}" if cut is not None else "") + ("/normalized" if self.normalize else "")

    @property
    def remote(self) -> bool:
        """Where the model may be downloaded."""
        return self.allow_download

    @property
    def dimension(self) -> int:
        """How many numbers a vector has, found by embedding a word."""
        if self._dimension is None:
            self._dimension = self.embed(["dimension"]).shape[1]
        return self._dimension

    def embed(self, texts: Sequence[str]) -> Vectors:
        return self._encode(texts, "encode_document")

    def embed_query(self, text: str) -> NDArray[np.float32]:
        vector: NDArray[np.float32] = self.embed_queries([text])[0]
        return vector

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of the questions, in their order."""
        return self._encode(texts, "encode_query")

    def _encode(self, texts: Sequence[str], method: str) -> Vectors:
        check_texts(texts)
        if not texts:
            return np.zeros((0, self.dimension), np.float32)
        model = self._model()
        encode: Callable[..., object] = getattr(model, method, model.encode)
        given = encode(
            list(texts),
            batch_size=self.batch_size,
            show_progress_bar=False,
            convert_to_numpy=True,
            normalize_embeddings=self.normalize,
        )
        vectors = checked_vectors(given, len(texts), self.name, self._dimension)
        self._dimension = vectors.shape[1]
        counts = self._count_tokens(model, texts, is_told=True)
        self._count(texts=len(texts), tokens=None if counts is None else sum(counts))
        return vectors

    @property
    def extra(self) -> tuple[str, str] | None:
        """What loads a model by its name; an object is there already."""
        return ("sentence-transformers", "sentence_transformers") if isinstance(self.model, str) else None

    def count_tokens(self, texts: Sequence[str]) -> list[int] | None:
        """Return how many tokens it reads of each text, without its prompts; None where that cannot be told here."""
        try:
            model = self._model()
        except ConfigurationError:  # kept vectors are of use without it
            return None
        return self._count_tokens(model, texts)

    def _count_tokens(self, model: Any, texts: Sequence[str], *, is_told: bool = False) -> list[int] | None:
        """Return how many tokens the model reads of each text, without its prompts; what it cuts is told in the log."""
        tokenizer = getattr(model, "tokenizer", None)
        if not callable(tokenizer):
            return None
        lengths = [len(ids) for ids in tokenizer(list(texts), truncation=False, verbose=False)["input_ids"]]
        limit: int | None = getattr(model, "max_seq_length", None)
        if limit is None:
            return lengths
        over = [place for place, length in enumerate(lengths) if length > limit]
        if over and is_told:
            logger.warning(
                "%s reads %d tokens of a text: %d of %d were cut, first text %d with %d tokens (%s)",
                *(self.name, limit, len(over), len(texts), over[0], lengths[over[0]], preview(texts[over[0]])),
            )
        return [min(length, limit) for length in lengths]

    def _model(self) -> Any:
        with self._loading:
            if self._loaded is None:
                options = {"revision": self.revision, "device": self.device, "truncate_dim": self.truncate_dim}
                self._loaded = load_model("SentenceTransformer", self.model, self.allow_download, **options)
            return self._loaded
