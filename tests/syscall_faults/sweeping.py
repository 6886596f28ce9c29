"""Which calls are made to fail, and the processes that try it: from recorded sites to a verdict."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.support import native_probe
from tests.syscall_faults.injecting import ERRNOS, FLUSHER, Case
from tests.syscall_faults.scenes import SCENES
from tests.syscall_faults.tracing import OUTSIDE

__all__ = ["EVERY", "Sweep", "Tally", "sweep"]

#: Every occurrence of every call, instead of the first, the second, the last and a sample.
EVERY: Final = os.environ.get("ROCKETSTORE_EVERY", "") not in ("", "0")
#: Only sites with this in their name.
SITES: Final = os.environ.get("ROCKETSTORE_FAULT_SITES", "")
JOBS: Final = int(os.environ.get("ROCKETSTORE_FAULT_JOBS", "2"))
SOURCE: Final = Path(native_probe.__file__).with_name("call_table.pyx")
#: What a caller must not notice at all.
INVISIBLE: Final = frozenset({"EINTR", "short"})
#: Entries that move bytes and may move fewer than asked.
MOVING: Final = ("pread", "pwrite", "pwritev2")
#: A scene is recorded so often: what one run calls, another may not, since threads take turns by chance.
RECORDINGS: Final = 3
#: A case whose call was not reached, since threads went another way, is tried again so often.
TRIES: Final = 3


@dataclass
class Tally:
    """What a sweep did."""

    tried: int = 0
    reached: int = 0
    sites: set[tuple[str, str]] = field(default_factory=set)
    answers: set[tuple[str, str, str]] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    logged: list[tuple[Case, list[str]]] = field(default_factory=list)

    def add(self, case: Case, result: dict[str, Any]) -> None:
        self.tried += 1
        if result["fired"]:
            self.reached += 1
            self.sites.add((case.entry, case.site))
            self.answers.add((case.entry, case.site, case.answer))
            self.logged.append((case, result["logged"]))
        for text in result["wrong"]:
            self.wrong.append(f"{case}: {text}")

    def __str__(self) -> str:
        return (
            f"{self.tried} runs, {self.reached} reached their call: {len(self.sites)} sites, "
            f"{len(self.answers)} answers at sites, {len(self.wrong)} wrong"
        )


class Sweep:
    """Servers of one machine, and what their scenes call when nothing fails."""

    def __init__(self, built: Path, base: Path) -> None:
        self._servers = []
        for number in range(JOBS):
            (base / str(number)).mkdir()
            command = [
                sys.executable,
                "-m",
                "tests.syscall_faults.server",
                built,
                base / str(number),
            ]
            self._servers.append(_Server(command, base / f"{number}.log"))
        #: How often each scene makes each call: (scene, entry, site) → count.
        self.calls: dict[tuple[str, str, str], int] = {}
        #: Sites that every run of a scene came by.
        self.steady: set[tuple[str, str]] = set()
        self._usual: dict[str, set[str]] = {scene: set() for scene in SCENES}
        asked = [scene for scene in SCENES for _ in range(RECORDINGS)]
        runs: Counter[tuple[str, str, str]] = Counter()
        for scene, (rows, errors) in zip(
            asked, self._map([{"record": scene} for scene in asked]), strict=True
        ):
            for entry, site, count in rows:
                call = (scene, entry, site)
                self.calls[call] = max(count, self.calls.get(call, 0))
                runs[call] += count > 0
            self._usual[scene] |= {_shape(error) for error in errors}
        for (_, entry, site), count in runs.items():
            if count == RECORDINGS and SITES in site:
                self.steady.add((entry, site))

    @property
    def entries(self) -> set[str]:
        """Entries of the table that the workload uses."""
        return {entry for (_, entry, _), count in self.calls.items() if count}

    @property
    def sites(self) -> set[tuple[str, str]]:
        return {
            (entry, site)
            for (_, entry, site), count in self.calls.items()
            if count and SITES in site
        }

    def cases(
        self, rng: random.Random, limit: int, answers: Iterable[str] = (), times: int = 1
    ) -> list[Case]:
        """Of each site one first, in a scene by chance; then one of each answer there; then others, up to
        `limit`.

        `answers`: instead of each errno of the entry.
        """
        every: list[Case] = []
        for (scene, entry, site), count in sorted(self.calls.items()):
            if SITES not in site:
                continue
            for answer in [*answers] or ERRNOS.get(entry, ()):
                if not _possible(entry, site, answer):
                    continue
                for nth in _occurrences(count, rng):
                    every.append(Case(scene, entry, site, nth, answer, times))
        rng.shuffle(every)
        if EVERY:
            return every
        sites: set[tuple[str, str]] = set()
        kinds: set[tuple[str, str, str]] = set()
        first, second, later = [], [], []
        for case in every:
            site, kind = (case.entry, case.site), (case.entry, case.site, case.answer)
            (first if site not in sites else second if kind not in kinds else later).append(case)
            sites.add(site)
            kinds.add(kind)
        return [*first, *second, *later][:limit]

    def trace(self, scene: str) -> dict[str, int]:
        """What strace sees of a scene: the most calls of each kind that one thread makes."""
        [result] = self._map([dataclasses.asdict(Case(scene, "", OUTSIDE, 0, ""))])
        assert result["wrong"] == []
        return dict(result["rows"])

    def run(self, cases: list[Case], goes_on: Callable[[int], bool] = lambda tried: True) -> Tally:
        """Tries the cases in their order, as long as `goes_on` says so of how many were tried."""
        tally = Tally()
        asked = [dataclasses.asdict(case) for case in cases]
        for case, result in zip(cases, self._map(asked, goes_on), strict=True):
            if result is None:
                continue
            if case.answer in INVISIBLE:
                noticed = {_shape(error) for error in result["errors"]} - self._usual[case.scene]
                result["wrong"] += [f"noticed: {error}" for error in sorted(noticed)]
            tally.add(case, result)
        return tally

    def _map(
        self, asked: list[dict[str, Any]], goes_on: Callable[[int], bool] = lambda tried: True
    ) -> list[Any]:
        """One answer for each question, from whichever server is free; None for what is not asked any more."""
        answers: list[Any] = [None] * len(asked)
        left = iter(enumerate(asked))
        lock = threading.Lock()

        def work(server: _Server) -> None:
            while True:
                with lock:
                    number, question = next(left, (-1, {}))
                if number < 0 or not goes_on(number):
                    return
                for _ in range(TRIES):
                    answers[number] = server.ask(question)
                    if "record" in question or answers[number]["fired"]:
                        break

        threads = [threading.Thread(target=work, args=(server,)) for server in self._servers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return answers

    def close(self) -> None:
        for server in self._servers:
            server.close()


class _Server:
    def __init__(self, command: list[Any], log: Path) -> None:
        environment = dict(os.environ, PYTHONPATH=str(native_probe.PACKAGE_PARENT))
        self._log = log
        with log.open("w") as stderr:
            self._process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=environment,
                text=True,
            )

    def ask(self, question: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError(f"the server ended: {self._log.read_text()[-3000:]}")
        return json.loads(line)

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        self._process.wait(60)


def _possible(entry: str, site: str, answer: str) -> bool:
    if answer == "KILL":
        return site != ""  # a quiet entry runs nothing of ours
    if answer == "late":
        return site.startswith(FLUSHER)
    return answer in ERRNOS.get(entry, ()) or (answer == "short" and entry in MOVING)


def _occurrences(count: int, rng: random.Random) -> Iterable[int]:
    if EVERY:
        return range(count)
    wanted = {0, 1, count - 1, rng.randrange(count)} if count else set()
    return sorted(number for number in wanted if number < count)


def _shape(error: str) -> str:
    return re.sub(r"\d+", "#", error)


@contextlib.contextmanager
def sweep(directory: Path) -> Iterator[Sweep]:
    """Files go to memory where there is a directory for it: tens of thousands of stores are made."""
    memory = Path("/dev/shm")
    base = memory if os.access(memory, os.W_OK) else directory
    with tempfile.TemporaryDirectory(dir=base, prefix="rocketstore-faults-") as place:
        running = Sweep(native_probe.build(SOURCE), Path(place))
        try:
            yield running
        finally:
            running.close()
