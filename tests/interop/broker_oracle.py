"""A broker of RocketMQ in a JVM of its own: what its slaves ask of it, it answers."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

import pytest

from rocketstore.values.bounded_json import LIMITS, parse_json
from tests.interop.oracle import BUILT, GENERATIONS, OPENED, OracleError, build_sources, since
from tests.support.ports import free_port

__all__ = ["FILES", "JavaBroker"]

SOURCES: Final = Path(__file__).parent / "brokers_java"
#: What Maven says where a jar of a release is not in its repositories.
ABSENT: Final = ("Could not find artifact", "Could not transfer artifact", "Could not resolve")
FILES: Final = ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json")


def _built(version: str) -> Path:
    output = BUILT / f"brokers-{version}"
    five = since(version, "5.0.0")
    properties = {
        "rocketmq.version": version,
        "generation": GENERATIONS[version],
        "broker": "rocketmq-broker" if five else "rocketmq-store",
        # Of the last releases the repositories lack some parts that take no part here.
        "others.version": "5.5.0" if version == "5.5.1" else version,
    }
    try:
        build_sources(SOURCES, output, properties)
    except OracleError as error:
        if any(words in str(error) for words in ABSENT):
            pytest.skip(f"Maven has no jar of a broker {version}")
        raise
    return output


class JavaBroker:
    """A broker with its store in `path`. `serialize`: ROCKETMQ for binary headers."""

    def __init__(self, version: str, path: Path, serialize: str = "JSON") -> None:
        output = _built(version)
        # RocketMQ listens at the port two below, too.
        port, ha = free_port(also=(-2,)), free_port()
        #: Where it takes requests, and where its HA service listens.
        self.address, self.master = f"127.0.0.1:{port}", f"127.0.0.1:{ha}"
        self._home = tempfile.TemporaryDirectory(prefix="broker-")
        self._stderr = os.open(Path(self._home.name) / "stderr", os.O_RDWR | os.O_CREAT)
        self._process = subprocess.Popen(
            [
                *("java", "-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                *OPENED,
                f"-Duser.home={self._home.name}",
                f"-Drocketmq.serialize.type={serialize}",
                *("-cp", f"{output / 'classes'}:{output / 'lib'}/*"),
                *("rocketstore.interop.Brokers", str(path), str(port), str(ha)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
        )
        self._answer("start")

    def ask(self, verb: str, **fields: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"verb": verb, **fields}).encode() + b"\n")
        self._process.stdin.flush()
        return self._answer(verb)

    def _answer(self, verb: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"failed": "it is gone"}
        if "failed" in answer:
            size = os.fstat(self._stderr).st_size
            told = os.pread(self._stderr, 4000, max(0, size - 4000)).decode(errors="replace")
            raise OracleError(f"broker, {verb}: {answer['failed']}\n{told}")
        return answer

    def documents(self) -> Mapping[str, Any]:
        """What its own classes would write, by file."""
        texts = self.ask("encode")
        return {name: parse_json(texts[name], LIMITS["side file"]) for name in FILES}

    def end(self) -> int:
        """Where its log ends."""
        return int(self.ask("end")["max_offset"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        os.close(self._stderr)
        self._home.cleanup()
