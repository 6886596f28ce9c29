"""What the advice of `verify` leads to: nothing is advised in the end, and no message is gone that was not named."""

from __future__ import annotations

import dataclasses
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import rocketstore
from rocketstore.cli import exit_codes
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.replication.role.state import as_master, save_state
from tests.cli.conftest import SMALL, Invoke
from tests.cli.test_verdicts import FIRST, LAST, MIDDLE, SHAPE, flip, log_file, without
from tests.corruption.advice import follow_the_advice


def changed(path: Path, physical_offset: int, change: Callable[[bytearray, int], object]) -> None:
    """Changes the file of the log that has this offset."""
    file = log_file(path, physical_offset >> 20 << 20)
    data = bytearray(file.read_bytes())
    change(data, physical_offset % (1 << 20))
    file.write_bytes(data)


@pytest.fixture
def plain_path(tmp_path: Path) -> Path:
    """100 messages without record checksums in two queues, as a broker before 5.1 stores them."""
    path = tmp_path / "plain"
    with rocketstore.open(path, durability="os", record_crc=False, **SMALL) as store:
        writer = store.writer("orders", queues=2)
        for number in range(100):
            writer.put(b"%d" % number, keys=f"k{number}")
    return path


def fiftieth(path: Path) -> int:
    with rocketstore.open(path, "r") as store:
        return next(one.physical_offset for one in store.consumer("orders") if one.body == b"50")


def bodies(path: Path) -> dict[tuple[str, int], list[tuple[int, bytes]]]:
    with rocketstore.open(path, "r") as store:
        return {
            (topic, queue_id): [
                (one.queue_offset, bytes(one.body))
                for one in store.consumer(topic, queue_id=queue_id)
            ]
            for topic in store.topics(system=True)
            for queue_id in store.queues(topic)
        }


@pytest.mark.parametrize("queues", ["there", "gone"])
@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda data, at: data.__setitem__(data.index(b"orders", at) + 5, ord("t")), ("ordert", 0)),
        (lambda data, at: data.__setitem__(at + 15, 4), ("orders", 4)),
    ],
    ids=["topic", "queue id"],
)
def test_a_record_of_another_queue(
    invoke: Invoke,
    plain_path: Path,
    change: Callable[[bytearray, int], object],
    place: tuple[str, int],
    queues: str,
) -> None:
    """`repair` mends no whole record: the queues are made again as the log is."""
    changed(plain_path, fiftieth(plain_path), change)
    if queues == "gone":
        shutil.rmtree(plain_path / "consumequeue")
    found = follow_the_advice(plain_path, SHAPE)
    assert not found.fault
    assert found.commands == ["rebuild"]
    assert found.verdicts[-1]["ok"]
    served = bodies(plain_path)
    assert served[place] == [(25, b"50")]
    assert len(served["orders", 0]) == 49


@pytest.mark.parametrize("bit", [0, 1, 2, 7, 40])
def test_a_record_with_another_queue_offset(plain_path: Path, bit: int) -> None:
    """It has no place in line; `verify` names that record, and none that goes on after it."""
    where = fiftieth(plain_path)

    def change(data: bytearray, at: int) -> None:
        data[at + 27 - bit // 8] ^= 1 << bit % 8

    changed(plain_path, where, change)
    found = follow_the_advice(plain_path, SHAPE)
    assert not found.fault
    assert found.commands == ["rebuild"]
    left = [one for one in found.verdicts[-1]["faults"] if one["kind"] == "log"]
    assert [(one["code"], one["position"]) for one in left] == [("twice", where)]
    served = bodies(plain_path)["orders", 0]
    far = [(153, b"50")] if bit == 7 else []  # what a log of this size may have lost
    assert served == [*((n, b"%d" % (2 * n)) for n in range(50) if n != 25), *far]


def test_a_record_that_names_a_later_prepared_message(plain_path: Path) -> None:
    """It is served, and no command changes it. It was a fault beside others only, for which `repair` was advised
    without an end."""
    where = fiftieth(plain_path)
    changed(plain_path, where, lambda data, at: data.__setitem__(at + 78, 1))
    changed(plain_path, where - 500, flip_body)
    found = follow_the_advice(plain_path, SHAPE)
    assert not found.fault
    assert found.commands == ["repair"]
    assert found.verdicts[-1]["ok"]
    assert (25, b"50") in bodies(plain_path)["orders", 0]


def flip_body(data: bytearray, at: int) -> None:
    """Of the first record at or behind a place."""
    data[data.index(b"\xda\xa3\x20\xa7", at) + 84] ^= 1


@pytest.mark.parametrize("target", [3 << 20, 9 << 20, 1 << 40, (1 << 20) + 1, 5])
@pytest.mark.parametrize("source", [0, 1 << 20, 2 << 20])
@pytest.mark.parametrize("crashed", [False, True], ids=["clean", "crashed"])
def test_a_file_of_the_log_under_another_name(
    long_path: Path, source: int, target: int, crashed: bool
) -> None:
    """Nothing of it is given up: it gets its name back."""
    before = bodies(long_path)
    log_file(long_path, source).rename(log_file(long_path, target))
    if crashed:
        (long_path / "abort").touch()
    found = follow_the_advice(long_path, SHAPE)
    assert not found.fault
    assert found.steps == [[f"by hand: {target:020d} is named {source:020d}"]]
    assert bodies(long_path) == before


def test_a_queue_that_ends_low_behind_units_of_a_lost_end(long_path: Path) -> None:
    """Units that do not rise: those that point behind the log are found in front of its last one."""
    queue = long_path / "consumequeue" / "orders" / "0" / f"{0:020d}"
    units = bytearray(queue.read_bytes())
    end = -(-len(units.rstrip(b"\0")) // 20) * 20
    units[end - 20 : end] = units[:20]
    queue.write_bytes(units)
    log_file(long_path, 2 << 20).unlink()
    found = follow_the_advice(long_path, SHAPE)
    assert not found.fault
    assert found.verdicts[-1]["ok"]
    left = [number for number, _ in bodies(long_path)["orders", 0]]
    assert left == [*range(len(left))]


def test_a_last_unit_that_points_behind_the_log(long_path: Path) -> None:
    """The log has its message: nothing else says that the log lacks an end."""
    before = bodies(long_path)
    shutil.rmtree(long_path / "rocketstore")
    (long_path / "lock").write_text("lock")
    flip(long_path / "consumequeue" / "orders" / "1" / f"{0:020d}", 9 * 20 + 1)
    found = follow_the_advice(long_path, SHAPE)
    assert not found.fault
    assert found.commands == ["rebuild"]
    assert bodies(long_path) == before


def test_files_of_the_log_with_the_names_of_each_other(long_path: Path) -> None:
    before = bodies(long_path)
    between = long_path / "between"
    log_file(long_path, 1 << 20).rename(between)
    log_file(long_path, 2 << 20).rename(log_file(long_path, 1 << 20))
    between.rename(log_file(long_path, 2 << 20))
    found = follow_the_advice(long_path, SHAPE)
    assert (found.fault, len(found.steps)) == ("", 1)
    assert bodies(long_path) == before


def test_a_file_of_the_log_that_is_there_twice(long_path: Path) -> None:
    before = bodies(long_path)
    shutil.copy(log_file(long_path, 1 << 20), log_file(long_path, 3 << 20))
    found = follow_the_advice(long_path, SHAPE)
    assert not found.fault
    assert found.steps == [[f"by hand: {3 << 20:020d} is moved out of the store"]]
    assert bodies(long_path) == before


def test_one_record_with_another_offset_names_no_file(plain_path: Path) -> None:
    """A changed offset of the first record is damage; its file keeps its name."""
    changed(plain_path, 0, lambda data, at: data.__setitem__(at + 33, 16))
    found = follow_the_advice(plain_path, SHAPE)
    assert not found.fault
    assert found.commands == ["repair"]
    assert [one["count"] for one in found.verdicts[0]["lost_messages"]] == [1]
    assert len(bodies(plain_path)["orders", 0]) == 49


def test_one_bit_of_the_index_loses_no_message(long_path: Path) -> None:
    before = bodies(long_path)
    (index,) = (long_path / "index").iterdir()
    data = bytearray(index.read_bytes())
    data[40 + 100 * 4 + 20 * 10 + 5] ^= 4
    index.write_bytes(data)
    found = follow_the_advice(long_path, SHAPE)
    assert found.verdicts[0]["kinds"].keys() == {"derived"}
    assert found.verdicts[0]["lost_messages"] == []
    assert "point behind the end of the log" in str(found.verdicts[0]["faults"])
    assert (found.fault, found.commands) == ("", ["rebuild"])
    assert bodies(long_path) == before


@pytest.mark.parametrize("more", [1, 20, 1 << 20])
def test_a_checkpoint_of_rocketmq_that_is_too_long(long_path: Path, more: int) -> None:
    """No program reads what is behind its values, and no command cuts it: nothing is advised."""
    with (long_path / "checkpoint").open("ab") as file:
        file.write(bytes(more))
    found = follow_the_advice(long_path, SHAPE)
    assert (found.fault, found.steps) == ("", [])


def test_a_checkpoint_of_rocketmq_that_is_too_short(long_path: Path) -> None:
    os.truncate(long_path / "checkpoint", 4095)
    found = follow_the_advice(long_path, SHAPE)
    assert (found.fault, found.commands) == ("", ["rebuild"])


def a_copy(path: Path) -> Path:
    """Makes the store a copy, as one that a master has left behind."""
    layout = StoreLayout(path)
    with rocketstore.open(path, "r") as store:
        end = store.end_offset
    save_state(
        layout,
        dataclasses.replace(as_master(None, begin=0, end=end), role="replica"),
    )
    return path


def test_damage_in_the_log_of_a_copy(invoke: Invoke, long_path: Path) -> None:
    """Its commands are refused there: its master has the message, or it becomes a master first."""
    flip(log_file(a_copy(long_path)), 150)
    assert invoke("repair", long_path, *SHAPE).exit_code == exit_codes.FAILED
    result = invoke("verify", long_path, *SHAPE)
    assert "only its master changes this copy: follow it" in result.stderr
    assert "or make a new one in another directory" in result.stderr
    found = follow_the_advice(long_path, SHAPE)
    assert (found.fault, found.commands) == ("", ["promote", "repair"])
    assert found.verdicts[-1]["role"] == "master"


def test_queues_of_a_copy(long_path: Path) -> None:
    shutil.rmtree(a_copy(long_path) / "consumequeue")
    found = follow_the_advice(long_path, SHAPE)
    assert (found.fault, found.commands) == ("", ["rebuild"])
    assert found.verdicts[-1]["role"] == "replica"


@pytest.mark.parametrize("files", [(MIDDLE,), (LAST,), (FIRST,)])
def test_a_copy_that_lacks_a_file(invoke: Invoke, long_path: Path, files: tuple[str, ...]) -> None:
    """No promotion begins with less than the copy said it has."""
    without(*files)(a_copy(long_path))
    result = invoke("verify", long_path, *SHAPE)
    assert "only its master changes this copy" in result.stderr
    found = follow_the_advice(long_path, SHAPE)
    assert (found.fault, found.steps) == ("", [])


def test_a_role_that_cannot_be_read(invoke: Invoke, long_path: Path) -> None:
    flip(log_file(a_copy(long_path)), 150)
    (long_path / "rocketstore" / "replication.json").write_text("{")
    result = invoke("verify", long_path, *SHAPE)
    assert "does not say the role of this store" in result.stderr
    found = follow_the_advice(long_path, SHAPE)
    assert (found.fault, found.steps, found.verdicts[0]["role"]) == ("", [], "unknown")


def test_an_empty_file_far_behind_the_log(long_path: Path) -> None:
    """A file that was made ahead, and renamed: no file is missing in front of it."""
    before = bodies(long_path)
    log_file(long_path, 1 << 40).write_bytes(bytes(1 << 20))
    found = follow_the_advice(long_path, SHAPE)
    assert not found.fault
    assert found.steps == [[f"by hand: {1 << 40:020d} is moved out of the store"]]
    assert bodies(long_path) == before


def test_a_unit_of_a_message_that_was_trimmed(tmp_path: Path) -> None:
    """One bit of it may lead behind the end of the log, which has lost nothing."""
    path = tmp_path / "trimmed"
    with rocketstore.open(path, durability="os", **SMALL) as store:
        writer = store.writer("orders", queue_id=0)
        while store.end_offset < 5 << 19:
            writer.put(bytes(1 << 17))
        store.flush()
        store.trim(before_offset=1 << 20)
    before = bodies(path)
    flip(path / "consumequeue" / "orders" / "0" / f"{0:020d}", 22)
    found = follow_the_advice(path, SHAPE)
    assert found.verdicts[0]["lost_messages"] == []
    assert (found.fault, found.commands) == ("", ["rebuild"])
    assert bodies(path) == before


def test_other_bytes_at_the_end_of_a_queue_lose_no_end_of_the_log(plain_path: Path) -> None:
    """Some of them look like a unit of a message that the log lacks; others can be none."""
    before = bodies(plain_path)
    queue = plain_path / "consumequeue" / "orders" / "0" / f"{0:020d}"
    data = bytearray(queue.read_bytes())
    units = [(1 << 40, 1 << 30, 0), (1 << 47, 100, 0)]
    data[50 * 20 : 52 * 20] = b"".join(struct.pack(">qiq", *unit) for unit in units)
    queue.write_bytes(data)
    found = follow_the_advice(plain_path, SHAPE)
    assert (found.fault, found.verdicts[0]["lost_messages"]) == ("", [])
    assert bodies(plain_path) == before


def test_a_queue_file_with_the_bytes_of_a_log(plain_path: Path) -> None:
    """What it says of the end of the log is no reason to refuse an open, which `rebuild` begins with."""
    before = bodies(plain_path)
    queue = plain_path / "consumequeue" / "orders" / "0" / f"{0:020d}"
    size = queue.stat().st_size
    queue.write_bytes(log_file(plain_path).read_bytes()[:2000].ljust(size, b"\0"))
    (plain_path / "rocketstore" / "checkpoint").unlink()
    (plain_path / "abort").touch()
    found = follow_the_advice(plain_path, SHAPE)
    assert not found.fault
    assert found.commands == ["rebuild"]
    assert bodies(plain_path) == before
