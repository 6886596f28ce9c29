"""Java programs with a clock in them, each in a JVM of its own and compiled against a release in Maven:
RocketMQ's own store, and Chronicle Queue."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CHRONICLE", "ROCKETMQ", "Jvm", "Program", "prepare"]

HERE = Path(__file__).parent / "java"
#: A heap that never grows.
JAVA = ("java", "-Xms2g", "-Xmx2g")


@dataclass(frozen=True)
class Program:
    """One of them. `options`: what its library asks of a JVM with modules, and nothing that reports home."""

    name: str
    version: str
    source: Path
    main: str
    options: tuple[str, ...]


ROCKETMQ = Program(
    "RocketMQ",
    "5.3.3",
    HERE,
    "rocketstore.bench.Main",
    (
        "--add-opens=java.base/java.nio=ALL-UNNAMED",
        "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    ),
)
CHRONICLE = Program(
    "Chronicle Queue",
    "2026.4",
    HERE / "chronicle",
    "rocketstore.bench.Chronicle",
    (
        "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
        "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
        "--add-exports=jdk.unsupported/sun.misc=ALL-UNNAMED",
        "--add-opens=java.base/java.lang=ALL-UNNAMED",
        "--add-opens=java.base/java.lang.reflect=ALL-UNNAMED",
        "--add-opens=java.base/java.io=ALL-UNNAMED",
        "--add-opens=java.base/java.nio=ALL-UNNAMED",
        "--add-opens=java.base/java.util=ALL-UNNAMED",
        "-Dchronicle.analytics.disable=true",
        "-Dchronicle.announcer.disable=true",
    ),
)


class Jvm:
    """A program that takes a command a line and answers with nanoseconds."""

    def __init__(self, output: Path, program: Program = ROCKETMQ) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="bench-java-")
        self._errors = open(Path(self._home.name) / "stderr", "w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            [
                *JAVA,
                *program.options,
                f"-Duser.home={self._home.name}",
                *("-cp", f"{output / 'classes'}:{output / 'lib'}/*", program.main),
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


def prepare(
    parser: argparse.ArgumentParser, directory: Path, program: Program
) -> tuple[Path, Path]:
    """Where the program is, compiled against its library from Maven, and an empty directory for stores."""
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    if missing:
        parser.error(f"needs {', '.join(missing)} on PATH")
    directory.mkdir(parents=True, exist_ok=True)
    output = (directory / program.source.name).absolute()
    words = ["mvn", "--batch-mode", "--quiet", "compile", f"-Doutput={output}"]
    words += [f"-Dlibrary.version={program.version}"]
    subprocess.run(words, cwd=program.source, check=True)
    return output, Path(tempfile.mkdtemp(prefix="stores-", dir=directory)).absolute()
