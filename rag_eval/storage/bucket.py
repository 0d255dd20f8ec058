"""Access the files of a workspace: in a folder, or in a bucket with copies in a folder.

Tables, indexes and cached rows never change under their name, so that a copy is never stale, and machines that write
the same object at once write the same bytes. Objects are written after the objects that they refer to.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rag_eval.errors import ConfigurationError, RequestRefusedError, ServiceError
from rag_eval.retry import STORAGE_RETRIES
from rag_eval.storage.files import (
    SCRATCH_PREFIX,
    data_sha256,
    put_in_place,
    scratch_path,
    stays_inside,
    user_folder,
    writing,
)

if TYPE_CHECKING:
    from obstore.store import S3Store

SCHEME = "s3"


@dataclass(frozen=True, slots=True)
class BucketLocation:
    """A bucket and a path in it; keys and the endpoint come from the environment."""

    bucket: str
    path: str

    @classmethod
    def parse(cls, uri: str) -> "BucketLocation":
        """Parse an address such as ``s3://bucket/path``; raises ``ConfigurationError`` on others and on keys in it."""
        try:
            parts = urlsplit(uri)
        except ValueError:
            raise ConfigurationError("not a valid workspace address: give a folder, or s3://bucket/path") from None
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise ConfigurationError(
                "the address of the workspace may only have a bucket and a path: "
                "set keys with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            )
        if parts.scheme != SCHEME:
            raise ConfigurationError(f"the workspace {uri!r} cannot be used: give a folder, or s3://bucket/path")
        names = [name for name in parts.path.split("/") if name]
        if not re.fullmatch(r"[a-z0-9][a-z0-9.-]+", parts.netloc) or {".", ".."} & set(names):
            raise ConfigurationError(f"{uri!r} does not name a bucket: write it like s3://bucket/path")
        return cls(parts.netloc, "/".join(names))

    def __str__(self) -> str:
        return f"{SCHEME}://{self.bucket}/{self.path}".rstrip("/")

    @property
    def copy(self) -> Path:
        """Return the folder with this machine's copies, which depends on the endpoint."""
        readable = re.sub(r"[^a-z0-9.]+", "-", f"{self.bucket}-{self.path}".lower()).strip("-.")[:60]
        return user_folder("cache") / f"{readable}-{data_sha256([_endpoint(), str(self)])[:16]}"


def _endpoint() -> str | None:
    """Return the address of the service, or None for Amazon's."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None


class Storage:
    """The files of a workspace in a folder, where nothing is fetched or uploaded."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def address(self) -> str:
        """The folder, or the address of the bucket."""
        return str(self.root)

    def name_of(self, path: Path) -> str:
        """Return the name of a path below the workspace's folder, with ``/``."""
        return path.absolute().relative_to(self.root.absolute()).as_posix()

    def names(self, folder: str) -> set[str]:
        """Return the names of all files below a folder."""
        files = (path.relative_to(self.root).as_posix() for path in (self.root / folder).rglob("*") if path.is_file())
        return {name for name in files if SCRATCH_PREFIX not in name}

    def size(self, path: Path) -> int | None:
        """Return the size of a file or a folder in the bucket, or None if it is not there."""

    def fetch(self, path: Path) -> bool:
        """Replace a file or a folder by the one in the bucket; return False if the bucket does not have it."""
        return False

    def fetch_missing(self, folder: Path) -> None:
        """Fetch the missing files below a folder."""

    def upload(self, path: Path) -> None:
        """Upload a file that never changes, or a folder of such files, unless the bucket already has it."""

    def upload_data(self, path: Path, data: bytes) -> None:
        """Upload the content of a file that may change."""

    def delete(self, path: Path) -> None:
        """Delete a file or a folder from the bucket."""


LARGE = 64 * 2**20
"""Size from which a file is uploaded in parts, which cannot be conditional."""
CHANGED = "changed-ns"
"""Attribute of an object with the modification time of its file."""


class BucketStorage(Storage):
    """The files of a workspace in a bucket, with copies in a folder.

    Methods raise ``ServiceError`` when the bucket cannot be used; messages contain no keys.
    """

    def __init__(self, location: BucketLocation) -> None:
        super().__init__(location.copy)
        self._location = location

    @property
    def address(self) -> str:
        return str(self._location)

    def names(self, folder: str) -> set[str]:
        return super().names(folder) | self._objects(folder).keys()

    def size(self, path: Path) -> int | None:
        import obstore

        name = self.name_of(path)
        with suppress(FileNotFoundError), self._errors():
            return obstore.head(self._store, name)["size"]
        sizes = self._objects(name).values()
        return sum(sizes) if sizes else None

    def fetch(self, path: Path) -> bool:
        name = self.name_of(path)
        with scratch_path(path.parent) as scratch, writing(path):
            if not self._download(name, scratch):
                parts = [(key, scratch / Path(key).relative_to(name)) for key in self._objects(name)]
                if not parts or not all(self._download(*part) for part in parts):
                    return False
            put_in_place(scratch, path)
        return True

    def fetch_missing(self, folder: Path) -> None:
        for name in self._objects(self.name_of(folder)):
            if not (self.root / name).exists():
                self.fetch(self.root / name)

    def upload(self, path: Path) -> None:
        import obstore
        from obstore.exceptions import AlreadyExistsError

        for file in [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]:
            with file.open("rb") as data, self._errors(), suppress(AlreadyExistsError):
                status = os.fstat(data.fileno())
                obstore.put(
                    self._store,
                    self.name_of(file),
                    data,
                    mode="overwrite" if status.st_size >= LARGE else "create",
                    attributes={CHANGED: str(status.st_mtime_ns)},
                )

    def upload_data(self, path: Path, data: bytes) -> None:
        import obstore

        with self._errors():
            obstore.put(self._store, self.name_of(path), data)

    def delete(self, path: Path) -> None:
        import obstore

        name = self.name_of(path)
        with self._errors():
            obstore.delete(self._store, [name, *self._objects(name)])

    def _objects(self, folder: str) -> dict[str, int]:
        """Return the sizes of the objects below a folder by name, without names that are unsafe as paths."""
        import obstore

        with self._errors():
            objects = [entry for batch in obstore.list(self._store, folder) for entry in batch]
        return {entry["path"]: entry["size"] for entry in objects if stays_inside(entry["path"])}

    def _download(self, name: str, path: Path) -> bool:
        """Write an object to a file with its modification time; return False if there is no such object."""
        import obstore

        try:
            with self._errors():
                found = obstore.get(self._store, name)
        except FileNotFoundError:
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file, self._errors():
            for part in found:
                file.write(part)
        changed = found.attributes.get(CHANGED, "")
        if changed.isascii() and changed.isdigit():
            os.utime(path, ns=(int(changed), int(changed)))
        return True

    @cached_property
    def _store(self) -> "S3Store":
        from obstore.store import S3Store

        return S3Store(  # keys, region and endpoint come from the environment
            self._location.bucket,
            prefix=self._location.path or None,
            client_options={
                "allow_http": (_endpoint() or "").startswith("http:"),
                "connect_timeout": timedelta(seconds=5),
                "read_timeout": timedelta(seconds=60),
                "timeout": timedelta(minutes=10),
            },
            retry_config={"max_retries": STORAGE_RETRIES, "retry_timeout": timedelta(minutes=1)},
        )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Replace errors of the service, which may contain secrets; a missing object stays ``FileNotFoundError``."""
        from obstore.exceptions import BaseError

        try:
            yield
        except (BaseError, FileNotFoundError) as error:
            failure = self._failure(str(error))
            if isinstance(error, FileNotFoundError) and not isinstance(failure, RequestRefusedError):
                raise
        else:
            return
        raise failure

    def _failure(self, reason: str) -> ServiceError:
        """Return the error for a message of the service."""
        where = repr(str(self._location))
        code = re.search(r"<Code>(\w+)</Code>", reason)
        if code and code[1] == "NoSuchBucket":
            return RequestRefusedError(
                f"the bucket of {where} does not exist: create it, or check its name and AWS_ENDPOINT_URL"
            )
        if "http://169.254." in reason:
            return RequestRefusedError(
                f"no keys for {where} were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or use a role"
            )
        if re.search(r"\b40[13] (Forbidden|Unauthorized)|InvalidAccessKeyId|SignatureDoesNotMatch|Expired", reason):
            return RequestRefusedError(
                f"{where} refuses the keys: check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and their permissions"
            )
        if "invalid path" in reason:
            return RequestRefusedError(f"{where} has an object whose key is not a path: remove it from the bucket")
        if "HTTP error" in reason or "error sending request" in reason:
            return ServiceError(f"{where} cannot be reached: check the network and AWS_ENDPOINT_URL")
        problem = code[1] if code else "unknown error"
        return ServiceError(f"{where} cannot be used ({problem}): try again, and check AWS_REGION and AWS_ENDPOINT_URL")
