"""`open(":memory:")`: a store of its own with every feature, gone at the close or with the process."""

from __future__ import annotations

import asyncio
import datetime
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
import rocketstore.aio
from rocketstore import NewMessage, Retention, Store
from rocketstore.engine import memory_directory
from rocketstore.errors import ConfigError, StoreClosedError, StoreLockedError
from rocketstore.testing import ManualClock, crash_and_reopen, small_config
from tests.support.paths import ROOT
from tests.support.waiting import wait_until

SHM = Path("/dev/shm")
SECOND = datetime.timedelta(seconds=1)
pytestmark = pytest.mark.skipif(not os.access(SHM, os.W_OK), reason="needs /dev/shm")


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory in memory, where this test alone has stores; empty at the end."""
    path = Path(tempfile.mkdtemp(prefix="rs-test-", dir=SHM))
    monkeypatch.setenv("TMPDIR", str(path))
    try:
        yield path
        assert os.listdir(path) == []
    finally:
        shutil.rmtree(path)


def bodies(store: Store, topic: str = "t", **named: Any) -> list[bytes]:
    return [m.body for m in store.consumer(topic, **named)]


def puts(store: Store, clock: ManualClock) -> None:
    writer = store.writer("t")
    assert writer.put(b"0", keys="k", durability="disk").durability == "disk"
    writer.put(b"1", unique_id="u", durability="memory")
    assert writer.put(b"1", unique_id="u").queue_offset == 1
    writer.put_batch([b"2", b"3"])
    store.flush()
    assert bodies(store) == [b"%d" % n for n in range(4)]
    assert [m.body for m in store.query("t", "k")] == [b"0"]


def groups(store: Store, clock: ManualClock) -> None:
    store.put_batch([NewMessage("t", b"%d" % n) for n in range(9)])
    store.flush()
    with store.consumer("t", group="g") as consumer:
        consumer.poll(4)
        consumer.commit()
    assert sum(store.committed("t", "g").values()) == 4
    assert bodies(store, group="g") == [b"4", b"5", b"6", b"7", b"8"]


def transactions(store: Store, clock: ManualClock) -> None:
    store.writer("in").put(b"order", durability="disk")
    with store.consumer("in", group="g") as consumer, store.transaction() as tx:
        for message in tx.consume(consumer):
            tx.put("t", message.body + b" done", deliver_after=SECOND)
    half = store.transactions.prepare("t", b"half", group="g")
    half.commit()
    assert sum(store.committed("in", "g").values()) == 1
    clock.advance(1)
    wait_until(lambda: sorted(bodies(store)) == [b"half", b"order done"])


def delays(store: Store, clock: ManualClock) -> None:
    writer = store.writer("t")
    later = writer.put(b"later", deliver_after=60 * SECOND)
    writer.put(b"soon", deliver_after=SECOND)
    writer.put(b"level", delay_level=1)
    assert store.delayed.cancel(later)
    clock.advance(5)
    wait_until(lambda: sorted(bodies(store)) == [b"level", b"soon"])


def retention(store: Store, clock: ManualClock) -> None:
    writer = store.writer("t")
    for n in range(60):
        writer.put(bytes(9_000), keys=f"k{n % 2}")
    store.flush()
    wait_until(lambda: store.dispatched_offset == store.end_offset)
    store.retention.run(Retention(max_bytes=1 << 17))
    assert store.begin_offset > 0
    store.trim(before_offset=store.end_offset)


def readers(store: Store, clock: ManualClock) -> None:
    """Of this process; what compaction and scans read is the same directory."""
    writer = store.writer("t")
    for n in range(4):
        writer.put(b"%d" % n, keys=f"k{n % 2}", durability="disk")
    wait_until(lambda: store.dispatched_offset == store.end_offset)
    with rocketstore.open(store.path, "r") as reader:
        assert bodies(reader) == [b"0", b"1", b"2", b"3"]
    assert rocketstore.opened(store.path).path == store.path
    assert sum(chunk.rows for chunk in rocketstore.scan(store.path, columns=["size"])) == 4
    into = Path(store.path).with_name("compact")
    store.compact("t", into=into)
    with rocketstore.open(into) as compacted:
        assert bodies(compacted) == [b"2", b"3"]
    shutil.rmtree(into)


def a_crash(store: Store, clock: ManualClock) -> None:
    store.writer("t").put(b"x", durability="disk")
    with crash_and_reopen(store) as again:
        assert (again.path, again.recovery.mode) == (store.path, "unclean")
        assert bodies(again) == [b"x"]


def destroys(store: Store, clock: ManualClock) -> None:
    store.writer("t").put(b"x")
    store.destroy()


@pytest.mark.parametrize("durability", ["disk", "os", "memory"])
@pytest.mark.parametrize(
    "use", [puts, groups, transactions, delays, retention, readers, a_crash, destroys]
)
def test_every_feature(use: Callable[..., None], durability: Any, place: Path) -> None:
    clock = ManualClock(1_800_000_000_000)
    config = small_config(durability=durability)
    with rocketstore.open(":memory:", config=config, clock=clock) as store:
        assert Path(store.path).is_relative_to(place)
        assert Path(store.path).parent.stat().st_mode & 0o777 == 0o700
        use(store, clock)


def test_asyncio_and_the_default_sizes(place: Path) -> None:
    async def scene() -> list[bytes]:
        async with rocketstore.aio.open(":memory:") as store:
            writer = store.writer("t")
            await asyncio.gather(*[writer.put(b"%d" % n) for n in range(100)])
            return [message.body async for message in store.consumer("t")]

    assert asyncio.run(scene()) == [b"%d" % n for n in range(100)]


def test_each_is_one_of_its_own_and_a_refused_open_leaves_nothing(place: Path) -> None:
    config = small_config()
    with rocketstore.open(":memory:", config=config) as one:
        with rocketstore.open(":memory:", config=config) as other:
            one.writer("t").put(b"x")
            assert other.topics() == []
        with pytest.raises(StoreLockedError, match="this process"):
            rocketstore.open(one.path)
        child = os.fork()
        if not child:
            one.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert bodies(one) == [b"x"]
        with pytest.raises(StoreClosedError):
            rocketstore.opened(":memory:")
    for wrong in ({"mode": "r"}, {"mode": "r+"}, {"index_slots": 0}, {"commit_log_dir": "x"}):
        with pytest.raises(ConfigError):
            rocketstore.open(":memory:", **wrong)  # type: ignore[arg-type]


def test_without_a_memory_file_system_the_error_names_the_remedy(
    monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    monkeypatch.setattr(memory_directory, "KINDS", ())
    with pytest.raises(ConfigError, match="TMPDIR"):
        rocketstore.open(":memory:")


def test_a_store_that_cannot_be_removed_stops_no_sweep_and_leads_to_nothing(
    place: Path, tmp_path: Path
) -> None:
    segment, stores = tmp_path / "0" / f"{0:020}", ("half", "linked", "whole", "half2", "linked2")
    segment.parent.mkdir()
    segment.write_bytes(b"kept")
    for name in stores:  # with some that stay on either side, in whatever order they are listed
        root = place / f"rocketstore-memory-{name}" / "store"
        root.mkdir(parents=True)
        root.parent.chmod(0o700)
        if not name.startswith("half"):
            rocketstore.open(root, config=small_config()).close()
        if name.startswith("linked"):
            shutil.rmtree(root / "commitlog")
            os.symlink(segment.parent, root / "commitlog")
    rocketstore.open(":memory:", config=small_config()).close()
    left = {path.name.removeprefix("rocketstore-memory-") for path in place.iterdir()}
    assert left == {*stores} - {"whole"}
    assert segment.read_bytes() == b"kept"
    for path in place.iterdir():
        shutil.rmtree(path)


ENDS = {
    "exit": "sys.exit(3)",
    "kill": "os.kill(os.getpid(), signal.SIGKILL)",
}


@pytest.mark.parametrize("end", ENDS)
def test_it_goes_with_its_process(end: str, place: Path, tmp_path: Path) -> None:
    """After a kill with the next process that asks for one; what is in use, or somebody else's, stays."""
    program = "import os, signal, sys, rocketstore; store = rocketstore.open(':memory:'); "
    program += f"store.writer('t').put(b'x'); {ENDS[end]}"
    (place / "rocketstore-memory-file").write_bytes(b"")
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_bytes(b"kept")
    os.symlink(tmp_path, place / "rocketstore-memory-link")
    foreign = sorted(os.listdir(place))
    with rocketstore.open(":memory:", config=small_config()) as store:

        def run(text: str) -> int:
            environment = {**os.environ, "PYTHONPATH": ":".join([str(ROOT), *sys.path])}
            done = subprocess.run([sys.executable, "-c", text], env=environment, check=False)
            return done.returncode

        assert run(program) == (-signal.SIGKILL if end == "kill" else 3)
        assert len(os.listdir(place)) - len(foreign) == (2 if end == "kill" else 1)
        assert run("import rocketstore; rocketstore.open(':memory:').close()") == 0
        assert len(os.listdir(place)) - len(foreign) == 1
        store.writer("t").put(b"x")
        assert bodies(store) == [b"x"]
    assert sorted(os.listdir(place)) == foreign
    assert (tmp_path / "kept" / "file").read_bytes() == b"kept"
    for name in foreign:
        os.unlink(place / name)
