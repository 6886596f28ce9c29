"""Stores whose log is another one than the files beside it speak of, each by one cause.

`Made` has a store twice: `older` was stopped while everything waited, `newer` when all of it was done.
What was done lies in segments of its own, so a cause takes away just these.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from click.testing import CliRunner

from rocketstore import Store
from rocketstore.cli.app import cli
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.recovery.progress import order_cut
from rocketstore.testing import ManualClock
from tests.services.delay_tools import NOW_MS, bodies
from tests.support.small_store import open_small
from tests.support.waiting import wait_until

__all__ = ["CAUSES", "SECOND", "Made", "number_of", "opened", "roll"]

SEGMENT: Final = 1 << 14
SECOND: Final = timedelta(seconds=1)
#: After everything was done in the newer store.
LATER_MS: Final = NOW_MS + 2000


def opened(path: Path, clock: ManualClock | None = None, **options: Any) -> Store:
    named = {"commit_log_file_size_bytes": SEGMENT, "delay_levels": "1s 5s", "clock": clock}
    return open_small(path, durability="os", **{**named, **options})


def number_of(store: Store, *begins: bytes) -> int:
    return sum(body.startswith(begins) for body in bodies(store))


def roll(store: Store) -> int:
    """Puts a message that does not fit into the segment; where the next one begins."""
    left = SEGMENT - store.end_offset % SEGMENT
    border = store.writer("fill").put(bytes(left)).physical_offset
    assert border % SEGMENT == 0
    return border


class Made:
    """The two stores, and what is known of them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.older, self.newer, self.grown = root / "older", root / "newer", root / "grown"
        clock = ManualClock(NOW_MS)
        with opened(self.newer, clock) as store:
            self.halves = self._begin(store)
        shutil.copytree(self.newer, self.older)
        with opened(self.newer, clock) as store:
            #: Where the first segment begins that the older store has not.
            self.border = roll(store)
            self._finish(store, clock)
            self.end = store.end_offset
            store.retention.hold("last", self.end)
            store.retention.hold("first", 0)
        shutil.copytree(self.older, self.grown)
        with opened(self.grown, ManualClock(NOW_MS), deliver_delayed=False) as store:
            self.grow(store)

    def _begin(self, store: Store) -> list[int]:
        writer = store.writer("orders")
        for number in range(3):
            writer.put(b"level %d" % number, delay_level=1)
            writer.put(b"timer %d" % number, deliver_after=SECOND)
            writer.put(b"early %d" % number)
        writer.put(b"never", deliver_after=60 * SECOND, properties={"UNIQ_KEY": "never"})
        store.delayed.repeat("orders", b"beat", SECOND, unique_id="beat")
        prepared = [store.transactions.prepare("paid", b"half", group="g") for _ in range(3)]
        self._commit(store, b"one")
        return [each.id for each in prepared]

    def _commit(self, store: Store, body: bytes) -> None:
        with store.consumer("orders", group="g") as consumer, store.transaction() as transaction:
            list(consumer)
            transaction.put("moved", body)
            transaction.commit_offsets(consumer)

    def _finish(self, store: Store, clock: ManualClock) -> None:
        clock.advance(1)
        wait_until(lambda: number_of(store, b"level", b"timer", b"beat") == 7)
        store.transactions.commit(self.halves[0])
        store.transactions.rollback(self.halves[1])
        assert store.delayed.cancel("never")
        assert store.delayed.cancel("beat")
        store.writer("orders").put(b"id", unique_id="id")
        self._commit(store, b"two")
        self._commit(store, b"three")

    def check_holds(self, store: Store, cause: str) -> None:
        """None lies above the end of the log that was lost, where others put."""
        found = store.retention.holds
        assert found["first"] == 0
        assert found["last"] <= store.end_offset
        if "taken back" in str(store.recovery) and "gr" not in cause:
            assert found["last"] < self.end
            assert "holds of retention lowered" in str(store.recovery)

    def copy_to(self, path: Path) -> None:
        shutil.copytree(self.newer, path)

    def grow(self, store: Store) -> None:
        """Each queue gets more than the newer store had, and the log too."""
        writer = store.writer("orders")
        late = [store.transactions.prepare("paid", b"late", group="g") for _ in range(3)]
        for number, one in enumerate(late):
            one.rollback()
            writer.put(b"late level %d" % number, delay_level=1)
            writer.put(b"late timer %d" % number, deliver_after=SECOND)
            self._commit(store, b"late")
        while store.end_offset <= self.end + SEGMENT:
            writer.put(bytes(500))
        store.flush()


# ---- causes: what happens to a copy of the newer store, and with which options it opens then ----


def files_are_lost(made: Made, path: Path) -> None:
    for file in StoreLayout(path).commit_log.iterdir():
        if int(file.name) >= made.border:
            file.unlink()


def recover_forced(made: Made, path: Path) -> dict[str, Any]:
    files_are_lost(made, path)
    result = CliRunner().invoke(cli, ["recover", "--force", str(path)])
    assert "which was durable" in result.output
    return {}


def open_forced(made: Made, path: Path) -> dict[str, Any]:
    files_are_lost(made, path)
    return {"force": True}


def forced_and_grown(made: Made, path: Path) -> dict[str, Any]:
    files_are_lost(made, path)
    with opened(path, ManualClock(NOW_MS), force=True, deliver_delayed=False) as store:
        made.grow(store)
    return {}


def replaced(made: Made, path: Path, source: Path, *names: str) -> None:
    for name in names:
        shutil.rmtree(path / name)
        if (source / name).exists():
            shutil.copytree(source / name, path / name)


def older_log(made: Made, path: Path) -> dict[str, Any]:
    replaced(made, path, made.older, "commitlog")
    return {"force": True}


def older_log_grown(made: Made, path: Path) -> dict[str, Any]:
    replaced(made, path, made.grown, "commitlog", "consumequeue", "index")
    return {}


def older_store_grown(made: Made, path: Path) -> dict[str, Any]:
    """Only what the services stored is newer: nothing that recovery looks at tells it."""
    replaced(made, path, made.newer, "config")
    replaced(made, path, made.grown, "commitlog", "consumequeue", "index")
    for name in ("checkpoint", "queue_ends"):
        shutil.copy2(made.grown / "rocketstore" / name, path / "rocketstore" / name)
    shutil.copy2(made.grown / "checkpoint", path / "checkpoint")
    return {}


def tail_zeroed(made: Made, path: Path) -> dict[str, Any]:
    for file in StoreLayout(path).commit_log.iterdir():
        if int(file.name) >= made.border:
            file.write_bytes(bytes(SEGMENT))
    return {}


def as_a_broker(path: Path) -> None:
    """A broker makes queues and index again where it cuts."""
    for name in ("consumequeue", "index"):
        shutil.rmtree(path / name)
    with (path / "lock").open("r+b") as file:
        file.write(b"lock")


def broker_cut(made: Made, path: Path) -> dict[str, Any]:
    files_are_lost(made, path)
    as_a_broker(path)
    return {}


def broker_cut_and_grew(made: Made, path: Path) -> dict[str, Any]:
    replaced(made, path, made.grown, "commitlog")
    as_a_broker(path)
    return {}


def master_cut(made: Made, path: Path) -> dict[str, Any]:
    order_cut(StoreLayout(path), made.border)
    return {}


CAUSES: Final[dict[str, Callable[[Made, Path], dict[str, Any]]]] = {
    "files lost, recover --force": recover_forced,
    "files lost, open(force=True)": open_forced,
    "files lost, forced, grown before anything is delivered": forced_and_grown,
    "older log put back": older_log,
    "older log put back, grown": older_log_grown,
    "older store, grown, below newer states": older_store_grown,
    "tail zeroed by hand": tail_zeroed,
    "a broker cut": broker_cut,
    "a broker cut, and its log grew": broker_cut_and_grew,
    "a master ordered a cut": master_cut,
}
