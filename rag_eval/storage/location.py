"""The address of a bucket, ``s3://bucket/path``, and the folder on this machine that holds a copy of it."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from rag_eval.digests import data_sha256
from rag_eval.errors import ConfigurationError

SCHEME = "s3"


@dataclass(frozen=True, slots=True)
class BucketLocation:
    """A bucket and a path in it; keys and the endpoint come from the environment."""

    bucket: str
    path: str

    @classmethod
    def parse(cls, uri: str) -> "BucketLocation":
        """The location that an address names.

        Raises ``ConfigurationError`` when it is not one of a bucket, or holds keys, which are not repeated.
        """
        try:
            parts = urlsplit(uri)
        except ValueError:
            raise ConfigurationError("the workspace's address is none: give a folder, or s3://bucket/path") from None
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise ConfigurationError(
                "the workspace's address holds more than a bucket and a path: "
                "take keys out of it and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            )
        if parts.scheme != SCHEME:
            raise ConfigurationError(f"the workspace {uri!r} cannot be used: give a folder, or s3://bucket/path")
        names = [name for name in parts.path.split("/") if name]
        if not re.fullmatch(r"[a-z0-9][a-z0-9.-]+", parts.netloc) or {".", ".."} & set(names):
            raise ConfigurationError(f"{uri!r} names no bucket: write it like s3://bucket/path")
        return cls(parts.netloc, "/".join(names))

    def __str__(self) -> str:
        return f"{SCHEME}://{self.bucket}/{self.path}".rstrip("/")

    def key(self, name: str) -> str:
        """The bucket and the whole key of a name below the path."""
        return "/".join(part for part in (self.bucket, self.path, name) if part)

    @property
    def copy(self) -> Path:
        """The folder of the copy on this machine; another endpoint's bucket of the same name has another."""
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        readable = re.sub(r"[^a-z0-9.]+", "-", f"{self.bucket}-{self.path}".lower()).strip("-.")[:60]
        return caches / "rag-eval" / f"{readable}-{data_sha256([endpoint(), str(self)])[:16]}"


def endpoint() -> str | None:
    """Where the service is, when it is not Amazon's."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None
