"""A workspace in a bucket, with a folder of this machine as a copy of what was read and written here.

Tables, indexes, vectors and cuts are named by their content, so a copy is never stale, and machines that write at once
put the same bytes under the same names. What a killed run made is in the copy, and is sent by the next. What was paid
for is sent at once, by the machine whose turn it is.
"""

import os
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rag_eval.errors import ConfigurationError, RequestRefusedError, ServiceError
from rag_eval.retry import STORAGE_ATTEMPTS
from rag_eval.storage.files import SCRATCH_PREFIX, data_sha256, scratch_path, stays_inside, user_folder, writing
from rag_eval.storage.locks import wait_for_lock

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo

SCHEME = "s3"


@dataclass(frozen=True, slots=True)
class BucketLocation:
    """A bucket and a path in it; keys and the endpoint come from the environment."""

    bucket: str
    path: str

    @classmethod
    def parse(cls, uri: str) -> "BucketLocation":
        """Return the location of an address; raises ``ConfigurationError`` when it is none, or holds keys."""
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
        """Return the bucket and the whole key of a name below the path."""
        return "/".join(part for part in (self.bucket, self.path, name) if part)

    @property
    def copy(self) -> Path:
        """The folder of the copy on this machine; another endpoint's bucket of the same name has another."""
        readable = re.sub(r"[^a-z0-9.]+", "-", f"{self.bucket}-{self.path}".lower()).strip("-.")[:60]
        return user_folder("cache") / f"{readable}-{data_sha256([endpoint(), str(self)])[:16]}"


def endpoint() -> str | None:
    """Return where the service is, when it is not Amazon's."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None


CONNECT_SECONDS, REQUEST_SECONDS = 5, 60
COPY_BYTES = 8 * 2**20
REFUSED = ("ACCESS_DENIED", "INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH", "EXPIRED_TOKEN", "INVALID_TOKEN")


class Bucket:
    """What lies below one path of a bucket; raises ``ServiceError`` when it cannot be used."""

    def __init__(self, location: BucketLocation) -> None:
        self.location = location

    def files(self, folder: str) -> "dict[str, FileInfo]":
        """Every file below a folder, by its name below the workspace's path; a folder that is not there has none.

        Keys that name no place below the path, such as those with ``..``, are passed over: none is written elsewhere.
        """
        from pyarrow.fs import FileSelector

        with self._asking():
            found = self._system.get_file_info(
                FileSelector(self.location.key(folder), allow_not_found=True, recursive=True)
            )
        root = len(self.location.key("")) + 1
        return {one.path[root:]: one for one in found if one.is_file and stays_inside(one.path[root:])}

    def size(self, name: str) -> int | None:
        """How many bytes a file has; None when it is not there."""
        with self._asking():
            found = self._system.get_file_info(self.location.key(name))
        return found.size if found.is_file else None

    def fetch(self, name: str, path: Path) -> bool:
        """Write a file's bytes to ``path``; False when it is not there."""
        with self._asking():
            try:
                source = self._system.open_input_stream(self.location.key(name))
            except FileNotFoundError:
                return False
            with source, path.open("wb") as target:
                shutil.copyfileobj(source, target, COPY_BYTES)
        return True

    def put(self, path: Path, name: str) -> None:
        """Keep the file under this name, in place of the one there."""
        with (
            self._asking(),
            path.open("rb") as source,
            self._system.open_output_stream(self.location.key(name)) as target,
        ):
            shutil.copyfileobj(source, target, COPY_BYTES)

    def remove(self, name: str) -> None:
        with self._asking():
            try:
                self._system.delete_file(self.location.key(name))
            except FileNotFoundError:
                return

    @cached_property
    def _system(self) -> Any:
        """The client, once it is known that the bucket is there: a list of files in no bucket would be empty."""
        from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

        system = S3FileSystem(
            endpoint_override=endpoint(),
            region=os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"),
            connect_timeout=CONNECT_SECONDS,
            request_timeout=REQUEST_SECONDS,
            retry_strategy=AwsStandardS3RetryStrategy(max_attempts=STORAGE_ATTEMPTS),
            allow_delayed_open=True,  # a small file is put by one request in place of three
        )
        if not system.get_file_info(self.location.bucket).type.value:
            raise OSError("AWS Error NO_SUCH_BUCKET")
        return system

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Raise ``ServiceError`` in place of what the service said, which may hold more than people should see."""
        try:
            yield
        except OSError as error:
            code = re.search(r"AWS Error ([A-Z_0-9]+)", str(error))
            if code is None:
                raise  # of this machine's own files
            raise self._error(code[1], "HTTP response code: 403" in str(error)) from None

    def _error(self, code: str, forbidden: bool) -> ServiceError:
        where = str(self.location)
        if code == "NO_SUCH_BUCKET":
            advice = "make it, or check its name and AWS_ENDPOINT_URL"
            return RequestRefusedError(f"the bucket of {where!r} is not there: {advice}")
        if forbidden or code in REFUSED:
            advice = "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and rights"
            return RequestRefusedError(f"{where!r} is refused to the keys given: {advice}")
        if code == "NETWORK_CONNECTION":
            return ServiceError(f"{where!r} cannot be reached: check the network and AWS_ENDPOINT_URL")
        return ServiceError(f"{where!r} cannot be used ({code}): try again, and check AWS_REGION and AWS_ENDPOINT_URL")


class Storage:
    """A workspace's files: in its folder and, where it has a bucket, kept there, of which the folder is then a copy.

    Names are relative to the workspace, with ``/``. Whoever works reads and writes the folder, brings what may not be
    there, and sends what it made; without a bucket there is nothing to bring or to send. Raises ``ServiceError`` when
    the bucket fails.
    """

    def __init__(self, root: Path, bucket: Bucket | None = None) -> None:
        self._root, self._bucket = root, bucket

    @property
    def address(self) -> str:
        """Where the files are kept, for people."""
        return str(self._bucket.location if self._bucket else self._root)

    def name_of(self, path: Path) -> str:
        """Return the name of a file or a folder below the workspace's."""
        return path.absolute().relative_to(self._root.absolute()).as_posix()

    def locked(self, path: Path, stopped: threading.Event | None = None) -> AbstractContextManager[None]:
        """Hold the lock on a path, among the threads and processes of this machine; ``stopped`` ends the wait.

        Machines that share a bucket do not wait for each other: at worst both do the same work.
        """
        return wait_for_lock(path, stopped)

    def size(self, name: str) -> int | None:
        """Return how many bytes a kept file, or a kept folder, has that may have to be brought; None without one."""
        if self._bucket is None:
            return None
        size = self._bucket.size(name)
        if size is not None:
            return size
        sizes = [file.size for file in self._bucket.files(name).values()]
        return sum(sizes) if sizes else None

    def bring(self, name: str) -> bool:
        """Put the kept file into the folder, in place of the one there; False when there is none to bring."""
        return self._fetch(name, self._root / name, None)

    def bring_folder(self, name: str) -> bool:
        """Put a kept folder into the folder, in place of the one there; False when there is none to bring."""
        files = self._bucket.files(name) if self._bucket else {}
        place = self._root / name
        if not files:
            return False
        with scratch_path(place.parent) as scratch, scratch_path(place.parent) as old, writing(place):
            for one in files:
                if not self._fetch(one, scratch / Path(one).relative_to(name), None):
                    return False
            if place.exists():
                os.replace(place, old)
            os.replace(scratch, place)
        return True

    def bring_missing(self, name: str, made_before_ns: int | None = None) -> None:
        """Put those kept files of a folder into it that it lacks; they count as made before then."""
        for one, file in self._bucket.files(name).items() if self._bucket else ():
            if not (self._root / one).exists():
                made = file.mtime_ns if made_before_ns is None else min(file.mtime_ns, made_before_ns - 1)
                self._fetch(one, self._root / one, made)

    def send(self, name: str) -> None:
        """Keep a file as it is in the folder now; of a folder all files, and no others."""
        if self._bucket is None:
            return
        if (self._root / name).is_file():
            self._bucket.put(self._root / name, name)
            return
        here = self._names(name)
        for one in sorted(here):
            self._bucket.put(self._root / one, one)
        for one in self._bucket.files(name).keys() - here:
            self._bucket.remove(one)

    def ensure(self, name: str) -> None:
        """Send a file or a folder that is not kept, or in another size."""
        if self._bucket is None:
            return
        if (self._root / name).is_file():
            if self._bucket.size(name) != (self._root / name).stat().st_size:
                self.send(name)
            return
        sizes = {one: (self._root / one).stat().st_size for one in self._names(name)}
        if sizes != {one: file.size for one, file in self._bucket.files(name).items()}:
            self.send(name)

    def drop(self, name: str) -> None:
        """Keep a file no longer, which is not in the folder any more."""
        if self._bucket is not None:
            self._bucket.remove(name)

    def names(self, folder: str) -> set[str]:
        """Return the files below a folder, in the workspace's folder or kept; others may add and remove some."""
        return self._names(folder) | (self._bucket.files(folder).keys() if self._bucket else set())

    @contextmanager
    def growing(self, name: str, made_before_ns: int | None = None) -> Iterator[None]:
        """Work on a folder of files that are added and removed, never changed.

        What others added is brought first; afterwards what was added is sent, and what was removed goes, also by
        others. With ``made_before_ns``, files that are brought count as made before then.
        """
        if self._bucket is None:
            yield
            return
        self.bring_missing(name, made_before_ns)
        before = self._names(name)
        try:
            yield
        finally:
            now, kept = self._names(name), self._bucket.files(name)
            for one in sorted(now - kept.keys()):
                with suppress(FileNotFoundError):  # merged by another run into a file that it sends itself
                    self._bucket.put(self._root / one, one)
            for one in (before - now) & kept.keys():
                self._bucket.remove(one)

    def _fetch(self, name: str, path: Path, made_ns: int | None) -> bool:
        """Fetch a file whole or not at all; False when there is none."""
        if self._bucket is None:
            return False
        with scratch_path(path.parent) as scratch, writing(path):
            if not self._bucket.fetch(name, scratch):
                return False
            if made_ns is not None:
                os.utime(scratch, ns=(made_ns, made_ns))
            os.replace(scratch, path)
        return True

    def _names(self, folder: str) -> set[str]:
        """The files below a folder of the workspace's, but for half-written ones."""
        files = (path.relative_to(self._root).as_posix() for path in (self._root / folder).rglob("*") if path.is_file())
        return {name for name in files if SCRATCH_PREFIX not in name}
