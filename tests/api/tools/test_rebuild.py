"""Queues and index made anew in parts: byte for byte what the store makes when it finds none."""

from __future__ import annotations

import os
import random
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import tools
from rocketstore.engine import rebuild
from tests.support import paths
from tests.support.forking import fork
from tests.support.made_store import MadeStore
from tests.support.reference_stores import Expectation, find_stores, open_reference
from tests.support.small_store import SMALL, open_small, segments

STORES = find_stores(paths.STORES)
DELAYS = "SCHEDULE_TOPIC_XXXX"


def queues_of(root: Path) -> dict[str, bytes]:
    directory = root / "consumequeue"
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def index_of(root: Path) -> list[bytes]:
    """Contents, oldest first: names are times of creation."""
    return [path.read_bytes() for path in sorted((root / "index").iterdir())]


def made_by_the_store(
    root: Path, copy: Path, **options: Any
) -> tuple[dict[str, bytes], list[bytes]]:
    """What an open makes where there are neither queues nor index."""
    shutil.copytree(root, copy)
    shutil.rmtree(copy / "consumequeue", ignore_errors=True)
    shutil.rmtree(copy / "index", ignore_errors=True)
    rocketstore.open(copy, "rw", **options).close()
    return queues_of(copy), index_of(copy)


def filled(root: Path, rng: random.Random, count: int = 400) -> None:
    """Several topics and queues, keys, delays, queues of other records, records without a queue."""
    lights = {"multi_dispatch_enabled": True, "light_queue_enabled": True}
    with open_small(root, durability="os", **lights) as store:
        for number in range(count):
            properties = {"n": str(number)}
            for name, values in (
                ("TAGS", [None, "red", "blue"]),
                ("KEYS", [None, f"k{number}", f"a b{number}"]),
                ("INNER_MULTI_DISPATCH", [None, None, "%LMQ%a", "%LMQ%b,%LMQ%a"]),
            ):
                value = rng.choice(values)
                if value is not None:
                    properties[name] = value
            store.put_message(
                rng.choice(["orders", "events", f"rare{number // 60}"]),
                rng.randbytes(rng.randrange(200)),
                queue_id=rng.randrange(3),
                properties=properties,
            )


@pytest.mark.parametrize("workers", [1, 2, 5, 64])
def test_the_same_bytes(tmp_path: Path, rng: random.Random, workers: int, root: Path) -> None:
    filled(root, rng)
    log = [path.read_bytes() for path in segments(root)]
    queues, index = made_by_the_store(root, tmp_path / "copy", **SMALL)
    assert queues == queues_of(root) and len(index) > 2
    shutil.rmtree(root / "index")
    for path in (root / "consumequeue" / "orders" / "1").iterdir():
        path.write_bytes(rng.randbytes(200))  # whatever stands there is not looked at
    report = tools.rebuild(root, workers=workers, **SMALL)
    assert queues_of(root) == queues and index_of(root) == index
    assert [path.read_bytes() for path in segments(root)] == log
    assert not report.odd and report.parts >= min(workers, 20)
    assert report.queues == len({os.path.dirname(name) for name in queues})
    assert report.index_files == len(index)
    assert not (root / "rocketstore" / "rebuild").exists()
    with open_small(root) as store:
        assert store.recovery.mode == "clean"
        assert report.units == sum(
            store.max_queue_offset(topic, queue_id)
            for topic in store.topics(system=True)
            for queue_id in store.queues(topic)
        )
        assert [m.queue_offset for m in store.query("orders", "a", limit=3)]
    assert tools.verify(root, index_slots=16, index_entries=64).ok


def test_a_trimmed_log(tmp_path: Path, rng: random.Random, root: Path) -> None:
    """Pre-blanks in front of a queue's first message; a queue that lost all of them keeps its end, where a
    store that finds no queues begins it again."""
    filled(root, rng)
    with open_small(root) as store:
        begin = store.trim(before_offset=store.end_offset * 2 // 3)
        ended = {t: store.queues(t) for t in store.topics(system=True) if t in ("rare0", "rare1")}
        ends = {(t, q): store.max_queue_offset(t, q) for t in ended for q in ended[t]}
    assert begin and ends
    queues, index = made_by_the_store(root, tmp_path / "copy", **SMALL)
    before = queues_of(root)
    tools.rebuild(root, workers=4, **SMALL)
    found = queues_of(root)
    alive = {os.path.dirname(name) for name in queues}
    kept = {name for name in before if os.path.dirname(name) not in alive}
    assert {f"{topic}/{queue_id}" for topic, queue_id in ends} <= set(map(os.path.dirname, kept))
    assert found == {**queues, **{name: before[name] for name in kept}}
    assert index_of(root) == index
    with open_small(root) as store:
        for (topic, queue_id), end in ends.items():
            assert store.put_message(topic, b"next", queue_id=queue_id).queue_offset == end


@pytest.mark.parametrize("workers", [1, 3])
def test_logs_of_another_writer(
    tmp_path: Path, rng: random.Random, workers: int, root: Path
) -> None:
    """Delayed messages, transactions, gaps, offsets that come again or lie before those known, unsafe names:
    each may be in a part of its own, and what it means depends on others."""
    made = MadeStore(root)
    for number in range(200):
        more: dict[str, Any] = {}
        if rng.random() < 0.1:
            more["queue_offset"] = rng.choice([0, 3, 50, 200, 5000])
        if rng.random() < 0.2:
            more["sys_flag"] = rng.choice([4, 8, 12])
        properties = {"DELAY": str(rng.randrange(1, 19))} if rng.random() < 0.3 else {}
        if rng.random() < 0.1:
            properties |= {
                "INNER_MULTI_DISPATCH": "%LMQ%x,other",
                "INNER_MULTI_QUEUE_OFFSET": f"{number},{rng.choice([number, 7, 'z'])}",
            }
        made.put(
            rng.choice(["orders", DELAYS, "x/../y", "größe"]),
            rng.randrange(3),
            rng.randbytes(rng.randrange(150)),
            keys=[f"k{number % 7}"],
            tags=rng.choice(["", "red"]),
            properties=properties,
            **more,
        )
    for _ in range(2):  # one in fifty logs has nothing odd for a part alone
        made.put("orders", 0, b"again", queue_offset=0)
    queues, index = made_by_the_store(root, tmp_path / "copy", **SMALL)
    report = tools.rebuild(root, workers=workers, **SMALL)
    assert queues_of(root) == queues and index_of(root) == index
    assert report.parts == min(workers, len(list((root / "commitlog").iterdir())))
    assert bool(report.odd)


@pytest.mark.parametrize(
    ("first", "second", "odd"),
    [
        ([0, 1, 2], [3, 4], ""),
        ([5, 6], [7], ""),
        ([0, 1], [3], "goes on with 3 after 1"),
        ([0, 1, 2], [1, 2], "goes on with 1 after 2"),
        ([0, 1], [2, 2, 3], "has a unit 2 already"),
        ([0, 1], [2, 7, 8], ""),  # a gap within a part is filled there
        ([0, 1], [12, 1], "no unit 1"),
    ],
)  # fmt: skip
def test_seams(tmp_path: Path, first: list[int], second: list[int], odd: str, root: Path) -> None:
    """Queue offsets on both sides of a seam. What does not follow is made in one go, as the store does."""
    made = MadeStore(root)
    for queue_offset in first:
        made.put(queue_offset=queue_offset)
    while made.end < 4096:
        made.put("other", body=bytes(500))
    for queue_offset in second:
        made.put(queue_offset=queue_offset)
    queues, index = made_by_the_store(root, tmp_path / "copy", **SMALL)
    report = tools.rebuild(root, workers=2, **SMALL)
    assert queues_of(root) == queues and index_of(root) == index
    if odd == "no unit 1":
        assert report.odd
    else:
        assert odd in report.odd and bool(odd) == bool(report.odd)


@pytest.mark.parametrize("expected", STORES, ids=lambda e: e.name)
def test_stores_that_rocketmq_wrote(expected: Expectation, tmp_path: Path) -> None:
    root, copy = expected.unpack(tmp_path / "a"), expected.unpack(tmp_path / "b")
    shutil.rmtree(copy / "consumequeue", ignore_errors=True)
    shutil.rmtree(copy / "index", ignore_errors=True)
    with open_reference(expected, copy, "rw") as store:
        config, damage = store.config, store.recovery.damage
    options = {name: getattr(config, name) for name in config.given}
    if damage:
        with pytest.raises(rocketstore.CorruptRecordError, match="rocketstore repair"):
            tools.rebuild(root, workers=3, **options)
        return
    before = {name.rpartition("/")[0] for name in queues_of(root)}
    tools.rebuild(root, workers=3, **options)
    queues = queues_of(copy)
    found = queues_of(root)
    assert {name: data for name, data in found.items() if name in queues} == queues
    assert {name.rpartition("/")[0] for name in set(found) - set(queues)} <= before
    assert index_of(root) == index_of(copy)


class StoppedError(Exception):
    pass


#: Names that change, in order: parts of queues come together, then each directory goes and comes.
STEPS = (
    "rebuild/consumequeue/",
    "replaced/consumequeue",
    "store/consumequeue",
    "replaced/index",
    "store/index",
)


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("step", STEPS)
def test_a_stop_at_any_step(
    tmp_path: Path,
    rng: random.Random,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    killed: bool,
    root: Path,
) -> None:
    """By an error or by a kill. Before the names change the old files are there, unchanged; whatever happens,
    the next open has all messages, and a second rebuild is whole."""
    filled(root, rng, 150)
    before = queues_of(root), index_of(root)
    real = rebuild.syscalls.rename

    def rename(old: str, new: str) -> None:
        if step in new and (step[0] != "s" or new == f"{tmp_path}/{step}"):
            if killed:
                os.kill(os.getpid(), signal.SIGKILL)
            raise StoppedError
        real(old, new)

    monkeypatch.setattr(rebuild.syscalls, "rename", rename)
    if killed:
        child = fork()
        if child == 0:
            try:
                tools.rebuild(root, workers=2, **SMALL)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        assert (root / "rocketstore" / "rebuild").exists()
    else:
        with pytest.raises(StoppedError):
            tools.rebuild(root, workers=2, **SMALL)
    monkeypatch.undo()
    there = [(root / name).exists() for name in ("consumequeue", "index", "abort")]
    assert there == [
        step != "store/consumequeue",
        step != "store/index",
        killed or step != STEPS[0],
    ]
    if there[:2] == [True, True]:
        assert (queues_of(root), index_of(root)) == before
    with open_small(root) as store:
        assert store.query("orders", "a", limit=1) or store.query("events", "a", limit=1)
    assert (queues_of(root), index_of(root)) == before
    assert tools.rebuild(root, workers=2, **SMALL).units
    assert (queues_of(root), index_of(root)) == before
    assert not (root / "rocketstore" / "rebuild").exists()


def test_a_part_that_fails_leaves_everything(rng: random.Random, root: Path) -> None:
    filled(root, rng, 100)
    before = queues_of(root), index_of(root)

    def run_parts(parts: Any) -> Any:
        raise StoppedError

    with pytest.raises(StoppedError):
        tools.rebuild(root, run_parts=run_parts, **SMALL)
    assert (queues_of(root), index_of(root)) == before
    assert not (root / "rocketstore" / "rebuild").exists()
    assert not (root / "abort").exists()
    with open_small(root, "r+") as store:
        assert store.recovery.mode == "clean"
        assert store.query("orders", "a", limit=1)
    assert (queues_of(root), index_of(root)) == before


def test_damage_is_named(rng: random.Random, root: Path) -> None:
    filled(root, rng, 200)
    before = queues_of(root), index_of(root)
    victim = segments(root)[2]
    content = bytearray(victim.read_bytes())
    content[4] ^= 0xFF
    victim.write_bytes(content)
    with pytest.raises(rocketstore.CorruptRecordError, match="8192.*rocketstore repair") as info:
        tools.rebuild(root, workers=2, **SMALL)
    assert info.value.physical_offset == 8192
    assert not (root / "abort").exists()
    assert (queues_of(root), index_of(root)) == before
    assert tools.repair(root, **SMALL).ok
    assert tools.rebuild(root, workers=2, **SMALL).units
    assert tools.verify(root, index_slots=16, index_entries=64).ok


def test_what_is_refused(tmp_path: Path, rng: random.Random, root: Path) -> None:
    filled(root, rng, 60)
    with open_small(root), pytest.raises(rocketstore.StoreLockedError):
        tools.rebuild(root, **SMALL)
    for workers in (0, 257, 10**20):
        with pytest.raises(ValueError, match=f"^workers = {workers}: 1 … 256"):
            tools.rebuild(root, workers=workers, **SMALL)
    with pytest.raises(FileNotFoundError, match="no store here"):
        tools.rebuild(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    (root / "consumequeue").rename(tmp_path / "elsewhere")
    (root / "consumequeue").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(rocketstore.ConfigError, match="consumequeue is a link"):
        tools.rebuild(root, **SMALL)
    with open_small(root, "r+") as store:
        assert store.recovery.mode == "clean"
    (root / "batchconsumequeue" / "b" / "0").mkdir(parents=True)
    with pytest.raises(rocketstore.ConfigError, match="batch queues"):
        tools.rebuild(root, **SMALL)


def test_an_empty_log_and_no_index(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without `workers`, on a machine of more processors than they may be."""
    monkeypatch.setattr(os, "cpu_count", lambda: 384)
    rocketstore.open(tmp_path / "empty").close()
    report = tools.rebuild(tmp_path / "empty")
    assert (report.units, report.queues, report.parts, report.index_files) == (0, 0, 0, 0)
    assert "0 units in 0 queues" in str(report)
    root = tmp_path / "s"
    filled(root, rng, 80)
    before = queues_of(root), index_of(root)
    report = tools.rebuild(root, index_enabled=False, **SMALL)
    assert (queues_of(root), index_of(root)) == before and report.index_files == 0


def test_progress_and_a_store_that_was_killed(rng: random.Random, root: Path) -> None:
    """The log is recovered first; what is told ends at the size of the log."""
    filled(root, rng, 150)
    (root / "abort").touch()
    told: dict[str, list[tuple[int, int]]] = {}

    def progress(what: str, done: int, total: int) -> None:
        told.setdefault(what, []).append((done, total))

    report = tools.rebuild(root, workers=3, progress=progress, **SMALL)
    for what in ("queues", "index"):
        done = [one for one, _ in told[what]]
        assert done == sorted(done) and told[what][-1] == (report.end, report.end)
    assert not (root / "abort").exists()
