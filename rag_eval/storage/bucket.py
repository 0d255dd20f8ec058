"""Files in a bucket, by their names below one path.

A file is there whole or not at all. Keys, region and endpoint come from the environment (AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL) or wherever AWS's own tools find them; none reaches an error.
"""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rag_eval.errors import ServiceError
from rag_eval.storage.location import BucketLocation, endpoint

CONNECT_SECONDS, REQUEST_SECONDS, ATTEMPTS = 5, 60, 3
COPY_BYTES = 8 * 2**20
REFUSED = ("ACCESS_DENIED", "INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH", "EXPIRED_TOKEN", "INVALID_TOKEN")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in the bucket: its size in bytes, and when it was put there, in nanoseconds."""

    size: int
    put_ns: int


class Bucket:
    """What lies below one path of a bucket; raises ``ServiceError`` when the service cannot be used."""

    def __init__(self, location: BucketLocation) -> None:
        self.location = location

    def files(self, folder: str) -> dict[str, StoredFile]:
        """Every file below a folder, by its name below the workspace's path; a folder that is not there has none."""
        from pyarrow.fs import FileSelector

        with self._asking():
            found = self._system.get_file_info(
                FileSelector(self.location.key(folder), allow_not_found=True, recursive=True)
            )
        root = len(self.location.key("")) + 1
        return {one.path[root:]: StoredFile(one.size, one.mtime_ns) for one in found if one.is_file}

    def file(self, name: str) -> StoredFile | None:
        """One file, None when it is not there."""
        with self._asking():
            found = self._system.get_file_info(self.location.key(name))
        return StoredFile(found.size, found.mtime_ns) if found.is_file else None

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
        """Remove a file, if it is there."""
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
            retry_strategy=AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
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
            raise ServiceError(self._sentence(code[1], "HTTP response code: 403" in str(error))) from None

    def _sentence(self, code: str, forbidden: bool) -> str:
        where = str(self.location)
        if code == "NO_SUCH_BUCKET":
            return f"the bucket of {where!r} is not there: make it, or check its name and AWS_ENDPOINT_URL"
        if forbidden or code in REFUSED:
            return f"{where!r} is refused to the keys given: check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and rights"
        if code == "NETWORK_CONNECTION":
            return f"{where!r} cannot be reached: check the network and AWS_ENDPOINT_URL"
        return f"{where!r} cannot be used ({code}): try again, and check AWS_REGION and AWS_ENDPOINT_URL"
