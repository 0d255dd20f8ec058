"""S3 on loopback, by moto."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

KEY, SECRET = "AKIA-OF-THE-TESTS", "the-secret-of-the-tests"


class S3Double:
    """A bucket, and machines that use it: each is an environment with a copy of its own."""

    bucket = "bench"

    def __init__(self, url: str, environment: pytest.MonkeyPatch, folder: Path) -> None:
        self.url, self._environment, self.folder = url, environment, folder
        self.client = boto3.client(
            "s3", endpoint_url=url, region_name="us-east-1", aws_access_key_id=KEY, aws_secret_access_key=SECRET
        )
        self.client.create_bucket(Bucket=self.bucket)

    def on_machine(self, name: str) -> None:
        """Go on as another machine would."""
        settings = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}
        settings |= {"AWS_ENDPOINT_URL": self.url, "XDG_CACHE_HOME": str(self.folder / name)}
        for variable, value in settings.items():
            self._environment.setenv(variable, value)

    def keys(self, prefix: str) -> list[str]:
        """The keys of the bucket that begin so."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
        keys = (found["Key"] for page in pages for found in page.get("Contents", []))
        return [key for key in keys if not key.endswith("/")]  # marks of folders

    def read(self, key: str) -> bytes:
        content: bytes = self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read()
        return content

    def write(self, key: str, content: bytes) -> None:
        self.client.put_object(Bucket=self.bucket, Key=key, Body=content)

    def remove(self, *keys: str) -> None:
        for key in keys:
            self.client.delete_object(Bucket=self.bucket, Key=key)


@contextmanager
def s3_double(folder: Path) -> Iterator[S3Double]:
    """S3 with one bucket, used from the machine ``one``."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as environment:
        double = S3Double(f"http://{host}:{port}", environment, folder)
        double.on_machine("one")
        yield double
    server.stop()
