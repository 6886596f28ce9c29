"""Files of queues get another length or another name, and no message of the log is hidden.

Each store is small: a plain topic of three files, a queue of one file, whole or in part, a light queue, a retry
topic, a trimmed log; of rocketstore and of RocketMQ. Readers serve what the log holds, and so does an open for writing,
behind which `verify` finds nothing.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import RocketStoreError, Store
from rocketstore.log.dispatch import missing_units
from rocketstore.tools import verify
from tests.corruption.hidden_messages import STORES, compared
from tests.support.small_store import SMALL, dispatched, open_small

SIZE = SMALL["consume_queue_file_size_bytes"]
UNITS = SIZE // 20
OURS = {"index_slots": SMALL["index_slots"], "index_entries": SMALL["index_entries"]}
OF_ROCKETMQ = {"index_slots": 64, "index_entries": 300}

Place = tuple[str, int]
Bodies = dict[Place, dict[int, bytes]]


# ---- the stores ----


@dataclass(frozen=True)
class Kind:
    """A store as it was before anything happened to it."""

    name: str
    root: Path
    shape: dict[str, int]
    bodies: Bodies

    def copy(self, root: Path) -> Path:
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(self.root, root)
        return root


def _fill(root: Path, counts: dict[str, int], trimmed: int = 0) -> Path:
    with open_small(root, durability="os") as store:
        for number in range(max(counts.values())):
            for topic, count in counts.items():
                if number < count:
                    store.writer(topic, queue_id=0).put(b"%99d" % number, keys=[f"k{number}"])
        if trimmed:
            store.flush()
            store.trim(before_offset=store.end_offset * trimmed // 4)
    return root


def _unpacked(name: str, place: Path) -> Path:
    with tarfile.open(STORES / f"{name}.tar.xz") as packed:
        packed.extractall(place, filter="data")
    return next(path.parent for path in sorted(place.rglob("commitlog")))


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Kind]:
    place = tmp_path_factory.mktemp("kinds")
    made = {
        "plain": (_fill(place / "plain", {"t": 2 * UNITS + 5, "u": 3}), OURS),
        "one file": (_fill(place / "one", {"t": 4}), OURS),
        "one whole file": (_fill(place / "whole", {"t": UNITS}), OURS),
        "retry": (_fill(place / "retry", {"%RETRY%g": UNITS + 2, "t": 1}), OURS),
        "trimmed": (_fill(place / "trimmed", {"t": 6 * UNITS + 3, "u": 5 * UNITS}, 2), OURS),
        "trimmed to one": (_fill(place / "few", {"t": 6 * UNITS + 3}, 4), OURS),
        "light": (_unpacked("light-queues-533", place / "light"), OF_ROCKETMQ),
        "broker": (_unpacked("clean-533", place / "broker"), OF_ROCKETMQ),
    }
    found = {}
    for name, (root, shape) in made.items():
        with rocketstore.open(root, "r", **shape) as store:
            bodies, errors = served(store)
        assert all(bodies.values()), name
        assert not errors, name
        assert verify(root, **shape).ok, name
        found[name] = Kind(name, root, shape, bodies)
    return found


def served(store: Store) -> tuple[Bodies, dict[Place, set[int]]]:
    """The bodies that consumers get, by queue offset, and the queue offsets at which they raise."""
    found: Bodies = {}
    errors: dict[Place, set[int]] = {}
    for topic in store.topics(system=True):
        for queue_id in store.queues(topic):
            place = topic, queue_id
            found[place] = {}
            try:
                low, high = store.min_queue_offset(*place), store.max_queue_offset(*place)
            except RocketStoreError:
                errors[place] = set(range(1000))
                continue
            while low < high:
                try:
                    with store.consumer(topic, queue_id=queue_id, offset=low) as consumer:
                        for message in consumer:
                            found[place][_offset_of(message, topic)] = message.body
                    break
                except RocketStoreError:
                    low = max(low, consumer.positions[queue_id])
                    errors.setdefault(place, set()).add(low)
                    low += 1
    return found, errors


def _offset_of(message: rocketstore.Message, topic: str) -> int:
    """Its queue offset in the queue from which it was read; that of a light queue is in a property."""
    if message.topic == topic:
        return message.queue_offset
    names, offsets = (
        message.properties[name].split(",")
        for name in ("INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET")
    )
    return int(offsets[names.index(topic)])


# ---- what happens to a file ----


def lengthened(count: int, fill: bytes) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        with path.open("ab") as file:
            file.write(fill * count)

    return change


def shortened(count: int) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        with path.open("r+b") as file:
            file.truncate(max(0, path.stat().st_size - count))

    return change


def twice(path: Path) -> None:
    """Its own content follows."""
    path.write_bytes(path.read_bytes() * 2)


def moved(step: int) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        _to(path, step, Path.rename)

    return change


def doubled(step: int) -> Callable[[Path], None]:
    """The same file under a second name."""

    def change(path: Path) -> None:
        _to(path, step, shutil.copyfile)

    return change


def _to(path: Path, step: int, how: Callable[[Path, Path], Any]) -> None:
    """`step`: files, or units and bytes where it is no whole number of them."""
    start = int(path.name) + step
    if start >= 0:
        how(path, path.with_name(f"{start:020d}"))


Changes = dict[str, Callable[[Path], None]]


def longer(size: int) -> Changes:
    lengths = (1, 20, 400, size - 1, size)
    return {
        **{f"{n} longer, zeros": lengthened(n, b"\0") for n in lengths},
        **{f"{n} longer, text": lengthened(n, b"x") for n in lengths},
        "twice as long": twice,
    }


def changes(size: int) -> Changes:
    steps = (1, 20, size - 20, size, 3 * size, -1, -20, -size)
    return {
        **longer(size),
        **{f"{n} shorter": shortened(n) for n in (1, 20, size // 2, size)},
        **{f"moved by {n}": moved(n) for n in steps},
        **{f"doubled by {n}": doubled(n) for n in steps},
        "gone": Path.unlink,
    }


def _files(root: Path) -> list[Path]:
    return [path for path in sorted((root / "consumequeue").rglob("*")) if path.is_file()]


def _case(kind: Kind, root: Path, chance: random.Random, of: Callable[[int], Changes]) -> str:
    """Changes one file of a copy; says what it did."""
    path = chance.choice(_files(root))
    name, change = chance.choice(sorted(of(path.stat().st_size).items()))
    change(path)
    return f"{kind.name}; {path.relative_to(root)} {name}"


# ---- the judgement ----

#: Stores of each random test: a few seconds.
ROUNDS = 25


def whole(kind: Kind, store: Store) -> list[str]:
    """What is not served as before: messages, or where a queue ends."""
    found, errors = served(store)
    said = [f"{place}: errors at {sorted(at)}" for place, at in errors.items()]
    for place, bodies in kind.bodies.items():
        if found.get(place, {}) != bodies:
            said.append(f"{place}: {sorted(found.get(place, ()))} for {sorted(bodies)}")
        elif bodies and store.max_queue_offset(*place) != max(bodies) + 1:
            said.append(f"{place} ends at {store.max_queue_offset(*place)}")
    return said


READERS: dict[str, dict[str, Any]] = {
    "r": {},
    "untrusted": {"untrusted": True},
    "checked": {"check_queues": True},
}


def judged(kind: Kind, root: Path) -> Iterator[str]:
    """What is wrong with the answers that a damaged copy gives."""
    for name, options in READERS.items():
        with rocketstore.open(root, "r", **kind.shape, **options) as store:
            yield from (f"{name}: {one}" for one in whole(kind, store))
    with rocketstore.open(root, "r+", deliver_delayed=False, **kind.shape) as store:
        yield from (f"r+: {one}" for one in whole(kind, store))
        yield from (f"r+: {one}" for one in store.recovery.unplaced_messages)
    report = verify(root, **kind.shape)
    yield from (f"verify: {one}" for one in compared(report.faults))
    for name, options in READERS.items():
        with rocketstore.open(root, "r", **kind.shape, **options) as store:
            yield from (f"{name}, then: {one}" for one in whole(kind, store))


@pytest.mark.parametrize("crashed", [False, True], ids=["clean", "crashed"])
def test_what_the_log_holds_is_served(
    kinds: dict[str, Kind], tmp_path: Path, rng: random.Random, crashed: bool
) -> None:
    for _ in range(ROUNDS):
        kind = kinds[rng.choice(sorted(kinds))]
        root = kind.copy(tmp_path / "store")
        if crashed:
            (root / "abort").touch()
        what = _case(kind, root, rng, changes)
        faults = list(judged(kind, root))
        assert not faults, "\n".join([what, *faults])


def test_a_follower_reads_longer_files(
    kinds: dict[str, Kind], tmp_path: Path, rng: random.Random
) -> None:
    """They grow under a writer that has dispatched everything, and rests."""
    for _ in range(ROUNDS):
        kind = kinds[rng.choice(sorted(kinds))]
        root = kind.copy(tmp_path / "store")
        with contextlib.ExitStack() as stack:
            writer = stack.enter_context(
                rocketstore.open(root, "r+", deliver_delayed=False, **kind.shape)
            )
            dispatched(writer)
            what = _case(kind, root, rng, longer)
            store = stack.enter_context(rocketstore.open(root, "r", **kind.shape))
            faults = whole(kind, store)
            assert not faults, "\n".join([what, *faults])


@pytest.mark.parametrize("step", [1, 20, SIZE, 3 * SIZE])
@pytest.mark.parametrize("name", ["one file", "one whole file", "light"])
def test_the_queue_of_a_file_with_another_name_is_named(
    kinds: dict[str, Kind], tmp_path: Path, name: str, step: int
) -> None:
    """The messages of the log are held against the queue, and the report has those that it lacked."""
    kind = kinds[name]
    root = kind.copy(tmp_path / "store")
    rocketstore.open(
        root, "r+", deliver_delayed=False, **kind.shape
    ).close()  # a clean stop of ours
    place = ("%LMQ%x", 0) if name == "light" else ("t", 0)
    [path] = (root / "consumequeue" / place[0] / "0").iterdir()
    moved(step)(path)
    for mode in ("r", "r+"):
        with rocketstore.open(root, mode, deliver_delayed=False, **kind.shape) as store:
            [refilled] = store.recovery.refilled_queues
            assert (refilled.topic, refilled.queue_id) == place
            assert refilled.count == len(kind.bodies[place])
            assert not whole(kind, store)
    assert path.exists()
    assert verify(root, **kind.shape).ok


@pytest.mark.parametrize("change", [moved(1), moved(SIZE), Path.unlink], ids=["1", "file", "gone"])
def test_a_large_log_is_held_against_a_queue_that_lacks_a_file(
    kinds: dict[str, Kind],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path], None],
) -> None:
    """Of a log above 256 MiB an open looks at the begin of each file, and the messages of a queue
    file lay between."""
    monkeypatch.setattr(missing_units, "LOOK_BYTES", 2)
    for number in range(3):
        root = kinds["plain"].copy(tmp_path / "store")
        change(root / "consumequeue" / "t" / "0" / f"{number * SIZE:020d}")
        for mode in ("r", "r+"):
            with rocketstore.open(root, mode, **OURS) as store:
                assert not whole(kinds["plain"], store)


def test_a_reader_says_what_it_did_with_a_longer_file(
    kinds: dict[str, Kind], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = kinds["plain"].copy(tmp_path / "store")
    path = root / "consumequeue" / "t" / "0" / ("0" * 20)
    lengthened(1, b"x")(path)
    before = path.read_bytes()
    with rocketstore.open(root, "r", **OURS) as store:
        assert not whole(kinds["plain"], store)
    assert path.read_bytes() == before
    assert "read as if it were whole" in caplog.text
    assert "repaired" not in caplog.text
    rocketstore.open(root, "r+", **OURS).close()
    assert path.read_bytes() == before[:-1]
    assert f"{path}: {len(before)} bytes instead of {SIZE} (not the last): repaired" in caplog.text


def test_a_length_that_is_remembered_outlives_the_only_file(
    kinds: dict[str, Kind], tmp_path: Path
) -> None:
    """A store of one queue file took the new length for that of all, and made the next one so."""
    root = kinds["one whole file"].copy(tmp_path / "store")
    path = root / "consumequeue" / "t" / "0" / ("0" * 20)
    lengthened(20, b"x")(path)
    with rocketstore.open(root, "r+", **OURS) as store:
        assert store.config.consume_queue_file_size_bytes == SIZE
        assert store.writer("t", queue_id=0).put(b"next").queue_offset == UNITS
    assert [one.stat().st_size for one in sorted(path.parent.iterdir())] == [SIZE, SIZE]
