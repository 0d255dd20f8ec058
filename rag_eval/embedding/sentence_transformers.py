"""Embed with a model of the sentence-transformers library, an optional dependency."""

import importlib
import logging
import os
import sys
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

OWNER = "sentence-transformers"
"""The owner of the models that the library finds by their bare names."""

DIGEST_CHARACTERS = 16
# Every model has one of these files in its folder.
LANDMARKS = ("config.json", "modules.json", "config_sentence_transformers.json")

logger = logging.getLogger(__name__)


def model_name(model: str, revision: str | None = None, owners: tuple[str, ...] = ()) -> str:
    """Return the name of the model with an identifier of its files.

    The identifier is the digest of the files of a folder, or the commit of a Hugging Face model on this machine, found
    under its name or as one of ``owners``, or else the revision. Nothing is loaded or downloaded. Raises
    ``ConfigurationError`` if a file of the folder cannot be read.
    """
    folder = Path(model)
    if folder.is_dir():
        return f"{folder.resolve().name}@{_folder_sha256(folder)[:DIGEST_CHARACTERS]}"
    commits = (_commit(repository, revision) for repository in (model, *(f"{owner}/{model}" for owner in owners)))
    version = next((commit for commit in commits if commit), revision)
    return f"{model}@{version}" if version else model


def _folder_sha256(folder: Path) -> str:
    """Return the digest of all files except hidden ones, which tools leave in the folder."""
    try:
        paths = sorted(
            path
            for path in folder.rglob("*")
            if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
        )
        return files_sha256(folder, paths, kept_sha256)
    except OSError as error:
        raise ConfigurationError(
            f"the model folder {str(folder)!r} cannot be read ({error.strerror}): check its files and permissions"
        ) from None


def _commit(repository: str, revision: str | None) -> str | None:
    """Return the commit of a model in the local Hugging Face cache, if it is there."""
    try:
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError
    except ImportError:
        return None
    home = os.environ.get("SENTENCE_TRANSFORMERS_HOME")
    for landmark in LANDMARKS:
        try:
            path = try_to_load_from_cache(repository, landmark, revision=revision, cache_dir=home)
        except HFValidationError:
            return None
        if isinstance(path, str):
            return Path(path).parent.name
    return None


def load_model(kind: str, model: str, allow_download: bool, **options: object) -> Any:
    """Load a ``SentenceTransformer`` or ``CrossEncoder``; raises ``ConfigurationError`` if that fails."""
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


@part
class SentenceTransformersEmbedder(BuiltInEmbedder):
    """A sentence-transformers model, by its name, its folder or as a loaded object.

    A model is loaded at the first use, and only from this machine unless ``allow_download=True``. An object needs a
    unique ``name``, and ``encode`` like a ``SentenceTransformer``, or ``encode_document`` and ``encode_query``, which
    add the model's prompts; with a ``tokenizer`` tokens are counted. Texts that are too long are truncated by the
    model, which is logged.

    Raises ``ConfigurationError`` if the library or the model is missing, or its vectors cannot be used.
    """

    symmetric = False  # models may have different prompts for texts and questions
    packages = ("sentence-transformers", "transformers", "tokenizers", "torch")

    model: Annotated[Any, name_or_object("encode"), Shown, Field(description="Name or folder of the model.")]
    _: KW_ONLY
    given_name: Annotated[str | None, PythonOnly] = Field(default=None, alias="name", kw_only=True)
    revision: Annotated[Name | None, Field(description="Version of the model: a branch, a tag or a commit.")] = None
    device: Annotated[
        Name | None, Running, Field(description="Device, such as cpu or cuda; null: the best available.")
    ] = None
    batch_size: Annotated[Count, Running, Field(description="Number of texts to embed at once.")] = 32
    normalize: Annotated[StrictBool, Field(description="Scale vectors to length 1.")] = False
    truncate_dim: Annotated[OptionalCount, Field(description="Number of leading dimensions to keep.")] = None
    allow_download: Annotated[StrictBool, Running, Field(description="Download the model if it is missing.")] = False

    def __post_init__(self) -> None:
        if not isinstance(self.model, str) and not self.given_name:
            raise ConfigurationError("a loaded model needs a unique name: give name")
        if not isinstance(self.model, str) and (self.revision or self.device or self.truncate_dim):
            raise ConfigurationError("revision, device and truncate_dim are for model names: set them on your object")
        self._loading = threading.Lock()
        self._loaded: Any = None if isinstance(self.model, str) else self.model

    @cached_property
    def name(self) -> str:
        """The model with the digest of its folder or its commit, and the settings that change its vectors."""
        model = self.given_name or f"{OWNER}/{model_name(str(self.model), self.revision, (OWNER,))}"
        dimension = "" if self.truncate_dim is None else f"/{self.truncate_dim}"
        return f"{model}{dimension}{'/normalized' if self.normalize else ''}"

    @property
    def remote(self) -> bool:
        """Whether it may download the model."""
        return self.allow_download

    @property
    def dimension(self) -> int:
        """The dimension of a vector. A text is embedded to find it."""
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
        encoded = encode(
            list(texts),
            batch_size=self.batch_size,
            show_progress_bar=False,
            convert_to_numpy=True,
            normalize_embeddings=self.normalize,
        )
        vectors = checked_vectors(encoded, len(texts), self.name, self._dimension)
        self._dimension = vectors.shape[1]
        lengths, limit = self._lengths(model, texts), self._limit(model)
        over = [place for place, length in enumerate(lengths or []) if length > limit]
        if lengths and over:
            logger.warning(
                "%s reads %d tokens of a text: %d of %d were truncated, first text %d with %d tokens (%s)",
                *(self.name, limit, len(over), len(texts), over[0], lengths[over[0]], preview(texts[over[0]])),
            )
        self._count(texts=len(texts), tokens=None if lengths is None else sum(min(n, limit) for n in lengths))
        return vectors

    @property
    def extra(self) -> tuple[str, str] | None:
        """The package that loads a model by its name; a loaded object needs none."""
        return ("sentence-transformers", "sentence_transformers") if isinstance(self.model, str) else None

    def count_tokens(self, texts: Sequence[str]) -> list[int] | None:
        """Return the number of tokens that the model reads of each text, without its prompts; None if unknown."""
        try:
            model = self._model()
        except ConfigurationError:  # cached vectors can be used without the model
            return None
        lengths, limit = self._lengths(model, texts), self._limit(model)
        return None if lengths is None else [min(length, limit) for length in lengths]

    @staticmethod
    def _lengths(model: Any, texts: Sequence[str]) -> list[int] | None:
        tokenizer = getattr(model, "tokenizer", None)
        if not callable(tokenizer):
            return None
        return [len(ids) for ids in tokenizer(list(texts), truncation=False, verbose=False)["input_ids"]]

    @staticmethod
    def _limit(model: Any) -> int:
        """Return the maximum number of tokens that the model reads of a text."""
        return getattr(model, "max_seq_length", None) or sys.maxsize

    def _model(self) -> Any:
        with self._loading:
            if self._loaded is None:
                options = {"revision": self.revision, "device": self.device, "truncate_dim": self.truncate_dim}
                self._loaded = load_model("SentenceTransformer", self.model, self.allow_download, **options)
            return self._loaded
