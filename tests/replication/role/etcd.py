"""A real etcd, of one member, and the machines of `examples/etcd_failover.py` in processes of their own."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocketstore.log.layout.paths import StoreLayout
from rocketstore.replication.role.state import load_state
from tests.support.paths import ROOT
from tests.support.ports import free_address
from tests.support.waiting import wait_until

__all__ = [
    "BUILT",
    "MARGIN_S",
    "SECONDS",
    "EtcdServer",
    "Machine",
    "Put",
    "etcd_program",
    "example",
    "free_address",
]

#: What `make etcd` makes.
BUILT = ROOT / "build" / "etcd" / "etcd"
#: A lease lasts SECONDS. Its master takes no puts in the last MARGIN_S of it. So the master stays the
#: same when a process or etcd stands still for less than either MARGIN_S or the time before it.
SECONDS = 6
MARGIN_S = 2.5


def example() -> Any:
    """The module `examples/etcd_failover.py`, for a machine that may stand still for 2 s."""
    path = ROOT / "examples" / "etcd_failover.py"
    spec = importlib.util.spec_from_file_location("etcd_failover", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["etcd_failover"] = module  # its dataclass looks there
    spec.loader.exec_module(module)
    module.MARGIN_S = MARGIN_S
    return module


def etcd_program() -> str | None:
    """An etcd that is here."""
    return str(BUILT) if BUILT.exists() else shutil.which("etcd")


class EtcdServer:
    """One member. Its files stay where it is killed and started again."""

    def __init__(self, directory: Path) -> None:
        self.address, self._peers = free_address(), free_address()
        self.url = f"http://{self.address}"
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        program = etcd_program()
        assert program is not None
        words = {
            "name": "one",
            "data-dir": self._directory / "data",
            "listen-client-urls": self.url,
            "advertise-client-urls": self.url,
            "listen-peer-urls": f"http://{self._peers}",
            "initial-advertise-peer-urls": f"http://{self._peers}",
            "initial-cluster": f"one=http://{self._peers}",
            # Of a lease the shortest is one and a half of the second.
            "heartbeat-interval": 50,
            "election-timeout": 500,
        }
        self._directory.mkdir(exist_ok=True)
        with open(self._directory / "log", "ab") as log:
            self._process = subprocess.Popen(
                [program, *(f"--{name}={value}" for name, value in words.items())],
                stdout=log, stderr=log,
            )  # fmt: skip
        wait_until(self._answers)

    def _answers(self) -> bool:
        module = example()
        with contextlib.suppress(module.EtcdError):
            module.Etcd(self.url).below("/")
            return True
        return False

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()
            self._process = None


@dataclass(frozen=True)
class Put:
    """One put of a machine: `begun` and `ended` by `time.monotonic()`, which all processes share."""

    name: str
    number: str
    begun: float
    ended: float
    #: "acked", "taken" (it is in this log, and that is all that is known), "fenced".
    result: str


class Machine:
    """A process of `tests.replication.role.etcd_machine`. Lives of one machine append to one file."""

    def __init__(self, root: Path, name: str, etcd: str, listen: str) -> None:
        self.name, self.path = name, root / name
        self._told = root / f"{name}.puts"
        self._words = [name, str(self.path), etcd, listen, str(self._told)]
        self._errors = root / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with open(self._errors, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.replication.role.etcd_machine", *self._words],
                stdout=log, stderr=log, cwd=ROOT,
            )  # fmt: skip

    @property
    def over(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    @property
    def term(self) -> int:
        """The last term that its store knows; 0: none."""
        state = load_state(StoreLayout(self.path))
        return 0 if state is None else state.term

    def puts(self) -> Iterator[Put]:
        """All that it has told; a line that a kill has cut is left out."""
        if not self._told.exists():
            return
        for line in self._told.read_text().splitlines(keepends=True):
            words = line.split()
            if line.endswith("\n") and len(words) == 4:
                yield Put(self.name, words[0], float(words[1]), float(words[2]), words[3])

    def acked_since(self, moment: float) -> bool:
        return any(one.result == "acked" and one.begun > moment for one in self.puts())

    def log(self) -> str:
        """What its lives have said."""
        return self._errors.read_text()[-3000:] if self._errors.exists() else ""
