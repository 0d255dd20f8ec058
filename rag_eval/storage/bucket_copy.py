"""A workspace in a bucket, with a folder of this machine as a copy of what was read and written here.

Tables, indexes, vectors and cuts are named by their content, so a copy is never stale, and machines that write at once
put the same bytes under the same names. What a killed run made is in the copy, and is sent by the next.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rag_eval.files import SCRATCH_PREFIX, scratch_path, writing
from rag_eval.storage.bucket import Bucket, StoredFile
from rag_eval.storage.folder import local_names


class BucketCopy:
    """Brings files from a bucket to a folder, and sends them; raises ``ServiceError`` when the bucket fails."""

    def __init__(self, bucket: Bucket, root: Path) -> None:
        self._bucket, self._root = bucket, root

    @property
    def address(self) -> str:
        """The bucket and the path in it."""
        return str(self._bucket.location)

    def bring(self, name: str) -> bool:
        """Fetch a file; False when the bucket has none."""
        return self._fetch(name, self._root / name, None)

    def bring_folder(self, name: str) -> bool:
        """Fetch a folder as a whole; False when the bucket has none."""
        files = self._bucket.files(name)
        place = self._root / name
        with scratch_path(place.parent) as scratch, scratch_path(place.parent) as old, writing(place):
            for one in files:
                if not self._fetch(one, scratch / Path(one).relative_to(name), None):
                    return False
            if files:
                if place.exists():
                    os.replace(place, old)
                os.replace(scratch, place)
        return bool(files)

    def bring_missing(self, name: str) -> None:
        """Fetch the files that the folder lacks."""
        self._bring_missing(self._bucket.files(name), None)

    def send(self, name: str) -> None:
        """Put a file; of a folder all files, and remove what the bucket has besides."""
        if (self._root / name).is_file():
            self._bucket.put(self._root / name, name)
            return
        here = self._names(name)
        for one in sorted(here):
            self._bucket.put(self._root / one, one)
        for one in self._bucket.files(name).keys() - here:
            self._bucket.remove(one)

    def ensure(self, name: str) -> None:
        """Send what the bucket lacks, or has in another size."""
        if (self._root / name).is_file():
            kept = self._bucket.file(name)
            if kept is None or kept.size != (self._root / name).stat().st_size:
                self.send(name)
            return
        sizes = {one: (self._root / one).stat().st_size for one in self._names(name)}
        if sizes != {one: file.size for one, file in self._bucket.files(name).items()}:
            self.send(name)

    def names(self, folder: str) -> set[str]:
        """The files below a folder, here and in the bucket."""
        return self._bucket.files(folder).keys() | self._names(folder)

    @contextmanager
    def growing(self, name: str, made_before_ns: int | None = None) -> Iterator[None]:
        """Fetch what the folder lacks; afterwards put what was added and remove what was removed, also by others."""
        kept = self._bucket.files(name)
        self._bring_missing(kept, made_before_ns)
        before = self._names(name)
        try:
            yield
        finally:
            now = self._names(name)
            for one in sorted(now - kept.keys()):
                with suppress(FileNotFoundError):  # merged by another run into a file that it sends itself
                    self._bucket.put(self._root / one, one)
            for one in (before - now) & kept.keys():
                self._bucket.remove(one)

    def _bring_missing(self, kept: dict[str, StoredFile], made_before_ns: int | None) -> None:
        for one, file in kept.items():
            if not (self._root / one).exists():
                made = file.put_ns if made_before_ns is None else min(file.put_ns, made_before_ns - 1)
                self._fetch(one, self._root / one, made)

    def _fetch(self, name: str, path: Path, made_ns: int | None) -> bool:
        """Fetch a file whole or not at all; False when the bucket has none."""
        with scratch_path(path.parent) as scratch, writing(path):
            if not self._bucket.fetch(name, scratch):
                return False
            if made_ns is not None:
                os.utime(scratch, ns=(made_ns, made_ns))
            os.replace(scratch, path)
        return True

    def _names(self, folder: str) -> set[str]:
        return {name for name in local_names(self._root, folder) if SCRATCH_PREFIX not in name}
