"""Queue offsets that were handed out stay so, though the log has no message of theirs and the queues are made anew."""

from __future__ import annotations

import errno
import importlib
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from rocketstore import Message, ReadFailedError, tools
from rocketstore._native.format import queue_file
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.queues import consume_queue_store
from rocketstore.log.queues import units as queue_units
from rocketstore.log.queues.consume_queue import ConsumeQueue
from rocketstore.log.queues.directories import QueueDirectories
from rocketstore.log.queues.saved_ends import drop_queue_ends
from tests.api.tools.test_rebuild import queues_of
from tests.api.tools.test_repair import SHAPE, expected, fill, is_sound, served, write
from tests.api.tools.test_repair_ends import LIGHT, PRE_BLANK, UNIT, damage, lasts, units_of
from tests.support.small_store import SMALL, open_small

#: Of the lost messages in the middle of their queues, those with another one behind them in the log's first file.
IN_FRONT = 1


def mended(root: Path) -> tuple[list[Message], dict[tuple[str, int], Message]]:
    """A store that lost the last messages of its queues, and others; what it had, and the last ones that it lost."""
    messages = fill(root)
    hit = lasts(messages)
    del hit[messages[-1].topic, messages[-1].queue_id]
    for message in (*hit.values(), *messages[10:13], *messages[60:62]):
        damage(root, message)
    assert tools.repair(root, **SHAPE).ok
    return messages, hit


@pytest.mark.parametrize("workers", [1, 4])
def test_queues_of_a_mended_store_are_made_as_they_were(workers: int, root: Path) -> None:
    _, hit = mended(root)
    before = queues_of(root)
    tools.rebuild(root, workers=workers, **SMALL)
    assert queues_of(root) == before
    is_sound(root)
    with open_small(root) as store:
        for (topic, queue_id), message in hit.items():
            put = store.writer(topic, queue_id=queue_id).put(b"new")
            assert put.queue_offset == message.queue_offset + 1


def test_units_that_never_reached_the_disk(root: Path) -> None:
    """What stands behind them counts nevertheless."""
    _, hit = mended(root)
    before = queues_of(root)
    zeroed = 0
    for (topic, queue_id), message in hit.items():
        number = message.queue_offset % (SMALL["consume_queue_file_size_bytes"] // UNIT.size)
        if number:  # else it is alone in its file
            file = max((root / "consumequeue" / topic / str(queue_id)).iterdir())
            with file.open("r+b") as units:
                units.seek((number - 1) * UNIT.size)
                zeroed += units.write(bytes(UNIT.size))
    assert zeroed
    tools.rebuild(root, **SMALL)
    assert queues_of(root) == before
    is_sound(root)


def test_only_what_is_written_of_a_queue_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of each file was, 6 MB of RocketMQ's: a store with many queues was made ten times as slowly."""
    root, read = tmp_path / "s", list[int]()
    with open_small(root) as store:
        for number in range(5):
            store.put_message(f"t{number}", b"x")
    units = queue_file.units_array

    def counted(file: MappedFile, first: int, count: int) -> Any:
        read.append(count)
        return units(file, first, count)

    monkeypatch.setattr(queue_file, "units_array", counted)
    tools.rebuild(root, **SMALL)
    assert read == [1, 1] * 5  # of the old queues and of the new ones


def test_a_queue_that_lost_all_of_its_messages(root: Path) -> None:
    with open_small(root) as store:
        lost = [store.writer("rare").put(b"%d" % number * 40) for number in range(3)]
        store.writer("orders").put(b"behind")
    for put in lost:
        write(root, put.physical_offset + 100, b"\xff\xfe\xff")
    assert tools.repair(root, **SHAPE).ok
    before = queues_of(root)
    tools.rebuild(root, **SMALL)
    assert queues_of(root) == before
    with open_small(root) as store:
        assert store.writer("rare").put(b"new").queue_offset == len(lost)


def test_light_queues_that_share_a_record(root: Path) -> None:
    names = [f"%LMQ%{n}" for n in range(5)]
    with open_small(root, **LIGHT) as store:
        for _ in range(2):
            properties = {"INNER_MULTI_DISPATCH": ",".join(names)}
            store.put_message("t", b"x", properties=properties)
        store.put_message("u", b"behind")
        [_, lost] = store.consumer("t").poll(2)
        start, size = lost.physical_offset, lost.size
    write(root, start, bytes(size))
    assert tools.repair(root, **SHAPE).ok
    before = queues_of(root)
    tools.rebuild(root, **SMALL)
    assert queues_of(root) == before
    is_sound(root)


def test_ends_that_an_older_repair_left(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    """Pre-blanks, behind which nothing else is: `repair` leads RocketMQ on afterwards."""
    module = importlib.import_module("rocketstore.tools.repair")
    with monkeypatch.context() as patch:
        patch.setattr(module, "with_pointed_fillers", lambda store, ranges: ranges)
        patch.setattr(module, "with_ends", lambda store, ends: [])
        _, hit = mended(root)
    (root / "rocketstore" / "queue_ends").unlink(missing_ok=True)
    before = queues_of(root)
    tools.rebuild(root, **SMALL)
    assert queues_of(root) == before
    assert tools.repair(root, **SHAPE).units == len(hit) + IN_FRONT
    is_sound(root)


def test_queues_in_each_others_place(root: Path) -> None:
    """What the other one said of lost messages is taken where it fits, and harms nothing."""
    messages, hit = mended(root)
    lost = {m.physical_offset for m in (*hit.values(), *messages[10:13], *messages[60:62])}
    queues = [root / "consumequeue" / topic / "0" for topic in ("events", "orders")]
    queues[0].rename(root / "aside")
    queues[1].rename(queues[0])
    (root / "aside").rename(queues[1])
    (root / "rocketstore" / "queue_ends").unlink(missing_ok=True)
    tools.rebuild(root, **SMALL)
    is_sound(root)
    assert served(root) == expected(messages, lost)


def test_files_of_queues_that_are_lost(root: Path) -> None:
    """The last clean stop noted where queues ended."""
    _, hit = mended(root)
    with open_small(root) as store:
        ends = {key: store.max_queue_offset(*key) for key in hit}
    shutil.rmtree(root / "consumequeue")
    tools.rebuild(root, **SMALL)
    with open_small(root, "r") as store:
        assert {key: store.max_queue_offset(*key) for key in hit} == ends
    assert tools.repair(root, **SHAPE).units == len(hit) + IN_FRONT
    is_sound(root)


@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize("lose", ["all", "one"])
def test_an_open_that_makes_lost_queues_anew(
    caplog: pytest.LogCaptureFixture, lose: str, crashed: bool, root: Path
) -> None:
    _, hit = mended(root)
    with open_small(root) as store:
        ends = {key: store.max_queue_offset(*key) for key in hit}
    key = next(iter(hit))
    lost = root / "consumequeue"
    shutil.rmtree(lost if lose == "all" else lost / key[0] / str(key[1]))
    if crashed:
        (root / "abort").touch()
    with open_small(root, "r") as store:
        assert {key: store.max_queue_offset(*key) for key in hit} == ends
    for more in range(2):
        with open_small(root) as store:
            for (topic, queue_id), end in ends.items():
                put = store.writer(topic, queue_id=queue_id).put(b"new")
                assert put.queue_offset == end + more
    assert "no record for 0" not in caplog.text
    assert f"{key[0]}/{key[1]}: ends at {ends[key]} as before" in caplog.text
    is_sound(root)


def test_an_end_too_far_away_is_not_believed(caplog: pytest.LogCaptureFixture, root: Path) -> None:
    fill(root, 5)
    directory = root / "consumequeue" / "orders" / "0"
    end = units_of(root, "orders")
    [path] = directory.iterdir()
    size = path.stat().st_size
    (directory / f"{size * (1 << 22):020d}").write_bytes(UNIT.pack(*PRE_BLANK).ljust(size, b"\0"))
    tools.rebuild(root, **SMALL)
    assert "is not believed" in caplog.text
    assert units_of(root, "orders") == end
    is_sound(root)


def test_a_lost_message_too_far_away_is_not_believed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, root: Path
) -> None:
    """A file of the old queue has the name of another."""
    mended(root)
    monkeypatch.setattr(queue_units, "GAP_UNITS_MAX", 50)
    last = max((root / "consumequeue" / "orders" / "0").iterdir())
    last.rename(last.with_name(f"{int(last.name) + 2000:020d}"))
    (root / "rocketstore" / "queue_ends").unlink()
    tools.rebuild(root, **SMALL)
    assert "orders/0: where it ended is not believed" in caplog.text
    is_sound(root)


def test_an_end_outlives_a_loss_of_power_behind_the_open_that_kept_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the moment in which the noted ends are forgotten: of the queues nothing is there but what was synced."""
    root, image = tmp_path / "s", tmp_path / "image"
    _, hit = mended(root)
    shutil.rmtree(root / "consumequeue")
    synced: dict[Path, tuple[int, int]] = {}
    named: set[Path] = set()
    sync, sync_names = ConsumeQueue.sync, QueueDirectories.sync

    def note(self: ConsumeQueue, first: int, end: int) -> None:
        sync(self, first, end)
        synced[self.directory] = first, end

    def note_names(self: QueueDirectories, directories: Iterable[Path]) -> None:
        directories = list(directories)
        sync_names(self, directories)
        named.update(directories)

    def lose_power(layout: StoreLayout) -> None:
        drop_queue_ends(layout)
        shutil.copytree(root, image)
        for directory in (root / "consumequeue").glob("*/*"):
            there = image / directory.relative_to(root)
            if directory not in named:
                shutil.rmtree(there)
                continue
            first, end = synced[directory]
            for file in there.iterdir():
                data, start = bytearray(file.read_bytes()), int(file.name)
                for at in range(0, len(data), UNIT.size):
                    if not first <= (start + at) // UNIT.size < end:
                        data[at : at + UNIT.size] = bytes(UNIT.size)
                file.write_bytes(data)

    with monkeypatch.context() as patch:
        patch.setattr(ConsumeQueue, "sync", note)
        patch.setattr(QueueDirectories, "sync", note_names)
        patch.setattr(consume_queue_store, "drop_queue_ends", lose_power)
        open_small(root).close()
    for place in (image, root):
        with open_small(place) as store:
            for (topic, queue_id), message in hit.items():
                put = store.writer(topic, queue_id=queue_id).put(b"new")
                assert put.queue_offset == message.queue_offset + 1
    is_sound(image)


def test_an_end_that_cannot_be_kept_is_not_forgotten(
    monkeypatch: pytest.MonkeyPatch, root: Path
) -> None:
    """On a full disk, say: no put goes there, and a later open tries again."""
    _, hit = mended(root)
    shutil.rmtree(root / "consumequeue")
    (topic, queue_id), message = next(iter(hit.items()))
    fill_gap = ConsumeQueue.fill_gap

    def full(self: ConsumeQueue, end: int) -> int:
        if (self.name, end) == (f"{topic}/{queue_id}", message.queue_offset + 1):
            raise OSError(errno.ENOSPC, "full")
        return fill_gap(self, end)

    with monkeypatch.context() as patch:
        patch.setattr(ConsumeQueue, "fill_gap", full)
        with open_small(root) as store, pytest.raises(ReadFailedError):
            store.writer(topic, queue_id=queue_id).put(b"new")
    with open_small(root) as store:
        put = store.writer(topic, queue_id=queue_id).put(b"new")
        assert put.queue_offset == message.queue_offset + 1
