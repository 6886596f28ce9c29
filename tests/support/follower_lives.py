"""Readers of all faces, opened at random moments of the lives of a writer: each sees all that was put, or is told.

    python -m tests.support.follower_lives --lives 200 [--seed N]

A life puts messages and ends by a kill or a clean stop; between lives the store is rebuilt, recovered, repaired, made
anew, or an older copy of it is put back.
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from rocketstore import StoreRecoveringError, StoreReplacedError
from tests.support.follower_faces import FACES, TOPIC, Face, Shown

__all__ = ["Campaign"]

#: Seconds after which a message counts as hidden; a busy machine needs more than the one of the promise.
BOUND_S = 10.0
PROMISED_S = 1.0
READERS = 8
#: About how long a process needs until it has the store open, seconds.
START_S = 0.4
TOOL_S = 120

WRITER = f"""
import os, sys, rocketstore
from tests.support.follower_faces import key_of
store = rocketstore.open(sys.argv[1], "rw", commit_log_file_size_bytes=1 << 20)
writer = store.writer({TOPIC!r})
for name in sys.argv[2].split(","):
    writer.put(name.encode(), keys=key_of(name.encode()))
print("up", flush=True)
os.kill(os.getpid(), 9) if sys.stdin.readline().strip() == "kill" else store.close()
"""

BETWEEN = ("nothing", "nothing", "nothing", "rebuild", "recover", "repair", "replace", "older")


class Campaign:
    """Counts what it did in `tally`, and the longest time until a message was seen in `longest_s`."""

    def __init__(self, path: Path, seed: int, faces: tuple[type[Face], ...] = FACES) -> None:
        self.path, self.chance, self.faces = path, random.Random(seed), faces
        self.copy = path.with_name("copy")
        #: Bodies of the messages of the store, and of those of its copy.
        self.expected: list[bytes] = []
        self.copied: list[bytes] = []
        self.generation, self.lives = 0, 0
        self.readers: list[tuple[Face, int]] = []
        self.tally: Counter[str] = Counter()
        self.longest_s, self.late = 0.0, 0

    def life(self) -> None:
        self.lives += 1
        self._open_one()
        count = self.chance.randrange(1, 40)
        names = [f"{self.lives}-{number}" for number in range(count)]
        command = [sys.executable, "-c", WRITER, str(self.path), ",".join(names)]
        process = subprocess.Popen(command, stdin=-1, stdout=-1, text=True)
        assert process.stdout is not None
        time.sleep(self.chance.random() * START_S)
        self._open_one()
        assert process.stdout.readline() == "up\n"
        self.expected = self.expected + [name.encode() for name in names]
        self._all_see()
        self._open_one()
        how = self.chance.choice(("kill", "kill", "close"))
        process.communicate(how + "\n", timeout=60)
        self.tally[how] += 1
        self._open_one()
        if self.chance.random() < 0.5:
            self._all_see()
        self._between()

    def close(self) -> None:
        for face, _ in self.readers:
            face.close()
        self.readers.clear()

    # ---- between lives ----

    def _between(self) -> None:
        if self.chance.random() < 0.3:
            shutil.rmtree(self.copy, ignore_errors=True)
            shutil.copytree(self.path, self.copy)
            self.copied = self.expected
        what = self.chance.choice(BETWEEN)
        if what == "older" and not self.copy.exists():
            what = "nothing"
        self.tally[what] += 1
        if what in ("replace", "older"):
            shutil.rmtree(self.path)
            self.generation, self.expected = self.generation + 1, []
            if what == "older":
                shutil.copytree(self.copy, self.path)
                self.expected = self.copied
        elif what != "nothing":
            self._run(what)

    def _run(self, tool: str) -> None:
        """One of the store's tools, beside readers that open and look meanwhile."""
        command = [sys.executable, "-m", "rocketstore", tool, str(self.path)]
        process = subprocess.Popen(command, stdout=-1, stderr=subprocess.STDOUT, text=True)
        time.sleep(self.chance.random() * START_S)
        self._open_one()
        said, _ = process.communicate(timeout=TOOL_S)
        assert process.returncode == 0, (tool, said)
        if self.chance.random() < 0.5:
            self._all_see()

    # ---- readers ----

    def _open_one(self) -> None:
        if self.chance.random() < 0.5:
            return
        try:
            face = self.chance.choice(self.faces)(self.path)
        except (FileNotFoundError, StoreRecoveringError) as error:
            self.tally[type(error).__name__] += 1
            return
        except Exception as error:
            if "RS_NO_STORE" not in str(error) and "RS_STORE_RECOVERING" not in str(error):
                raise
            self.tally["of Spark"] += 1
            return
        self.readers.append((face, self.generation))
        if len(self.readers) > READERS:
            self.readers.pop(self.chance.randrange(READERS))[0].close()

    def _all_see(self) -> None:
        began = time.monotonic()
        for face, generation in list(self.readers):
            self._sees(face, generation, began)

    def _sees(self, face: Face, generation: int, began: float) -> None:
        name = type(face).__name__
        looks = 0
        try:
            while not self._looks(face, name):
                looks += 1
                late = time.monotonic() - began
                assert late < BOUND_S, f"{name} is late: {face.seen(self.expected)}, {face!r}"
        except StoreReplacedError as error:
            self._replaced(face, generation, error)
            return
        self.tally[name] += 1
        if looks:
            took_s = time.monotonic() - began
            self.longest_s, self.late = (
                max(self.longest_s, took_s),
                self.late + (took_s > PROMISED_S),
            )

    def _looks(self, face: Face, name: str) -> bool:
        try:
            return self._complete(face.seen(self.expected), name)
        except StoreRecoveringError:
            self.tally["told to wait"] += 1
            return False

    def _replaced(self, face: Face, generation: int, error: StoreReplacedError) -> None:
        name = type(face).__name__
        assert generation != self.generation, f"{name}: the store is the same: {error}"
        self.tally["StoreReplacedError"] += 1
        self.readers.remove((face, generation))
        face.close()

    def _complete(self, shown: Shown, name: str) -> bool:
        """Whether all is shown; what is shown is never another message, and never one more."""
        if isinstance(shown, int):
            assert shown <= len(self.expected), f"{name} shows {shown} of {len(self.expected)}"
            return shown == len(self.expected)
        assert shown == self.expected[: len(shown)], f"{name} shows {shown} of {self.expected}"
        return len(shown) == len(self.expected)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lives", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    asked = parser.parse_args()
    logging.disable(logging.ERROR)
    print(f"seed {asked.seed}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        campaign = Campaign(Path(directory) / "store", asked.seed)
        try:
            for number in range(asked.lives):
                campaign.life()
                if number % 20 == 19:
                    print(f"{number + 1} lives", flush=True)
        finally:
            campaign.close()
            print(dict(campaign.tally), f"longest wait {campaign.longest_s:.3f} s", flush=True)
            print(f"{campaign.late} of them above {PROMISED_S:g} s", flush=True)


if __name__ == "__main__":
    main()
