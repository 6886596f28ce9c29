"""An object store that speaks S3, on this machine, for the time of a test."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

WHERE = re.compile(r"Running on http://127\.0\.0\.1:(\d+)")
MISSING = "needs moto's server: make objects"


def server_command() -> str | None:
    """The server's program. One that happens to be on the path may be of any age: old ones answer in a way
    that pyarrow takes for errors."""
    own = Path(sys.prefix) / "objects" / "bin" / "moto_server"
    return os.environ.get("ROCKETSTORE_MOTO_SERVER") or (str(own) if own.exists() else None)


@contextlib.contextmanager
def object_server(command: str) -> Iterator[int]:
    """Runs the server with nothing in it; its port."""
    server = subprocess.Popen(
        [command, "-H", "127.0.0.1", "-p", "0"],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert server.stderr is not None
    # It tells of each request: somebody has to listen.
    listener = threading.Thread(target=server.stderr.read)
    try:
        said = []
        for line in server.stderr:
            said.append(line)
            if found := WHERE.search(line):
                break
        else:
            raise AssertionError(f"the server ended: {''.join(said)}")
        listener.start()
        yield int(found[1])
    finally:
        server.kill()
        server.wait()
        if listener.ident is not None:
            listener.join()
        server.stderr.close()


def make_bucket(port: int, name: str) -> None:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/{name}", method="PUT")
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 200


def delete_object(port: int, path: str) -> None:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/{path}", method="DELETE")
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 204


def uri_in(port: int, path: str) -> str:
    """An archive in a bucket of the server, with the credentials that it does not look at."""
    return f"s3://key:secret@{path}?endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
