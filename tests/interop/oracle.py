"""RocketMQ's own store in a JVM beside the tests: built once, kept running, told what to do line by line."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from tests.support.paths import ROOT

__all__ = [
    "GENERATIONS",
    "REFUSAL",
    "Oracle",
    "OracleError",
    "build",
    "build_sources",
    "empty_files",
    "missing_tools",
    "since",
]

#: Three generations of the store, and the folder of sources that fits each.
GENERATIONS: Final = {"4.9.8": "v4", "5.3.3": "v5", "5.5.1": "v5"}
JAVA: Final = Path(__file__).parent / "java"
BUILT: Final = ROOT / "build" / "interop"
#: What 4.9.8 says to a file without bytes.
REFUSAL: Final = "load() said no"
#: What RocketMQ 4 asks of a JVM with modules.
OPENED: Final = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
)


class OracleError(Exception):
    """RocketMQ threw, or its process is gone."""


def empty_files(path: Path) -> list[Path]:
    """Files that were made and had no length yet when their maker died: 5.x removes them."""
    files = [file for part in ("commitlog", "consumequeue") for file in (path / part).rglob("*")]
    return [file for file in files if file.is_file() and file.stat().st_size == 0]


def since(version: str, release: str) -> bool:
    """Whether a release is that one or a later one."""
    own, other = ([int(part) for part in text.split(".")] for text in (version, release))
    return own >= other


def missing_tools() -> str:
    """What is not there of what the oracle needs: the reason of a skip; empty when all is there."""
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    return f"needs {', '.join(missing)} on PATH" if missing else ""


def build(version: str) -> Path:
    """Compiles the Java side against one version of the store, unless that was done before."""
    output = BUILT / version
    build_sources(JAVA, output, {"rocketmq.version": version, "generation": GENERATIONS[version]})
    return output


def build_sources(sources: Path, output: Path, properties: Mapping[str, str]) -> None:
    """Compiles a Maven project into `output`, unless that was done before."""
    digest = hashlib.sha256(properties["rocketmq.version"].encode())
    for source in sorted(sources.rglob("*")):
        if source.is_file():
            digest.update(source.read_bytes())
    stamp = output / "built"
    BUILT.mkdir(parents=True, exist_ok=True)
    with open(BUILT / f"{output.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # workers of a parallel run build once
        if stamp.exists() and stamp.read_text() == digest.hexdigest():
            return
        shutil.rmtree(output, ignore_errors=True)
        words = [
            *("mvn", "--batch-mode", "--quiet", "compile"),
            *(f"-D{name}={value}" for name, value in properties.items()),
            f"-Doutput={output}",
        ]
        run = subprocess.run(words, cwd=sources, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            raise OracleError(f"Maven could not build {output.name}:\n{run.stdout[-4000:]}")
        stamp.write_text(digest.hexdigest())


class Oracle:
    """One JVM. Stores are named by their paths; several may be open at a time."""

    def __init__(self, version: str) -> None:
        self.version = version
        output = build(version)
        self._home = tempfile.TemporaryDirectory(prefix="oracle-")
        self._stderr = os.open(Path(self._home.name) / "stderr", os.O_RDWR | os.O_CREAT)
        classes = f"{output / 'classes'}:{output / 'lib'}/*"
        self._process = subprocess.Popen(
            [
                *("java", "-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                *OPENED,
                f"-Duser.home={self._home.name}",  # where RocketMQ would write logs
                *("-cp", classes, "rocketstore.interop.Main"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
        )

    def ask(self, verb: str, path: Path | None = None, **fields: Any) -> dict[str, Any]:
        """One request and its answer; OracleError when RocketMQ threw."""
        request = {"verb": verb, **fields}
        if path is not None:
            request["path"] = str(path)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            raise OracleError(f"{self.version} is gone after {verb}:\n{self.stderr()}")
        answer: dict[str, Any] = json.loads(line)
        if "failed" in answer:
            raise OracleError(f"{self.version}, {verb}: {answer['failed']}\n{self.stderr()}")
        return answer

    def stderr(self) -> str:
        """The end of what it printed beside its answers."""
        size = os.fstat(self._stderr).st_size
        return os.pread(self._stderr, 4000, max(0, size - 4000)).decode(errors="replace")

    def halt(self) -> None:
        """Ends the process as a crash does: no shutdown hook, no flush."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """Ends the process, open stores like a crash."""
        self.halt()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        os.close(self._stderr)
        self._home.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def open(self, path: Path, config: Mapping[str, Any]) -> Iterator[OracleStore]:
        """A store that is shut down cleanly at the end, unless an error ended the block."""
        store = self.start(path, config)
        yield store
        store.shutdown()

    def start(self, path: Path, config: Mapping[str, Any]) -> OracleStore:
        return OracleStore(self, path, self.ask("open", path, config=dict(config)))

    def start_again(self, path: Path, config: Mapping[str, Any]) -> OracleStore:
        """Where a RocketMQ was killed: before 5.0 its operator first removes files without bytes."""
        if not since(self.version, "5"):
            for file in empty_files(path):
                file.unlink()
        return self.start(path, config)

    def warnings(self) -> list[str]:
        """What it logged as a warning or an error since the last call."""
        lines: list[str] = self.ask("warnings")["lines"]
        return lines


class OracleStore:
    """An open store of the oracle."""

    def __init__(self, oracle: Oracle, path: Path, opened: dict[str, Any]) -> None:
        self._oracle = oracle
        self.path = path
        self.opened = opened

    def put(self, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        results: list[dict[str, Any]] = self._ask("put", messages=list(messages))["results"]
        return results

    def put_batch(self, message: Mapping[str, Any]) -> dict[str, Any]:
        result: dict[str, Any] = self._ask("put_batch", message=dict(message))["result"]
        return result

    def settle(self) -> None:
        """Until queues and index have everything."""
        self._ask("settle")

    def dump(self) -> dict[str, Any]:
        return self._ask("dump")

    def get(self, topic: str, queue_id: int, queue_offset: int) -> dict[str, Any]:
        return self._ask("get", topic=topic, queue_id=queue_id, queue_offset=queue_offset)

    def query(
        self, topic: str, key: str, begin_ms: int, end_ms: int, most: int = 10_000
    ) -> list[dict[str, Any]]:
        fields = {"topic": topic, "key": key, "begin_ms": begin_ms, "end_ms": end_ms, "most": most}
        messages: list[dict[str, Any]] = self._ask("query", **fields)["messages"]
        return messages

    def offset_by_time(self, topic: str, queue_id: int, time_ms: int, *, upper: bool) -> int:
        fields = {"topic": topic, "queue_id": queue_id, "time_ms": time_ms, "upper": upper}
        return int(self._ask("offset_by_time", **fields)["queue_offset"])

    def follow(self, address: str) -> None:
        """Makes a store with `brokerRole` SLAVE a slave of the master there."""
        self._ask("follow", address=address)

    def end(self) -> int:
        """Where its log ends."""
        return int(self._ask("end")["max_offset"])

    def shutdown(self) -> None:
        self._ask("shutdown")

    def _ask(self, verb: str, **fields: Any) -> dict[str, Any]:
        return self._oracle.ask(verb, self.path, **fields)
