"""RocketMQ's own store in its own JVM, compiled against the release in Maven, with a clock beside it."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["VERSION", "Jvm", "build"]

VERSION = "5.3.3"
SOURCE = Path(__file__).parent / "java"
#: What RocketMQ asks of a JVM with modules, and a heap that never grows.
JAVA = (
    *("java", "-Xms2g", "-Xmx2g"),
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
)


class Jvm:
    """RocketMQ's store, told what to do line by line; it answers with nanoseconds."""

    def __init__(self, output: Path) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="bench-java-")
        self._errors = open(Path(self._home.name) / "stderr", "w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            [
                *JAVA,
                f"-Duser.home={self._home.name}",
                *("-cp", f"{output / 'classes'}:{output / 'lib'}/*", "rocketstore.bench.Main"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def ask(self, *words: object) -> list[int]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            raise RuntimeError(f"the JVM is gone after {words}:\n{self._errors.read()[-3000:]}")
        return [int(number) for number in line.split()]

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        self._errors.close()
        self._home.cleanup()

    @contextlib.contextmanager
    def opened(self, path: Path, durability: str) -> Iterator[None]:
        self.ask("open", path, durability)
        yield
        self.ask("close")


def build(output: Path) -> Path:
    """The JVM's side, compiled against RocketMQ from Maven."""
    words = ["mvn", "--batch-mode", "--quiet", "compile", f"-Doutput={output.absolute()}"]
    subprocess.run([*words, f"-Drocketmq.version={VERSION}"], cwd=SOURCE, check=True)
    return output.absolute()
