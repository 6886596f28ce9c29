"""A topic of few letters and many bytes: RocketMQ writes the length of one in a byte that it reads as a negative number
(format.md 2.7). The record is whole, and was acknowledged."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from rocketstore import tools
from rocketstore._native.format.codec import tags_code
from rocketstore.cli import exit_codes
from tests.cli.conftest import Invoke, invoke
from tests.support.log_records import judge_record
from tests.support.made_store import MadeStore
from tests.support.small_store import SMALL, open_small
from tests.vectors.encoders import Message, encode

__all__ = ["invoke"]

#: 60 letters, 180 bytes.
TOPIC = "訂" * 60
SHAPE = ("--index-slots", SMALL["index_slots"], "--index-entries", SMALL["index_entries"])


def with_long_topic(root: Path, *, queues: bool) -> list[int]:
    """A store that RocketMQ might have written: four records, one of them of `TOPIC`; their starts."""
    made = MadeStore(root, record_crc=False)
    made.put(body=b"a")
    data = encode(Message(topic=TOPIC, body=b"b", physical_offset=made.end))
    long_at = made.end
    made.write_log(long_at, data)
    made.end += len(data)
    made.put(body=b"c")
    made.put(body=b"d")
    made.dispatch()
    if queues:
        made.write_unit(TOPIC, 0, 0, struct.pack(">qiq", long_at, len(data), tags_code("")))
    starts = [one.physical_offset for one in made.records]
    return sorted([*starts, long_at])


@pytest.mark.parametrize("queues", [True, False])
@pytest.mark.parametrize("crashed", [True, False])
def test_it_is_read_as_what_it_is(queues: bool, crashed: bool, invoke: Invoke, root: Path) -> None:
    """In every mode; and no command takes a whole record for damage."""
    starts = with_long_topic(root, queues=queues)
    log = root / "commitlog" / f"{0:020d}"
    if crashed:
        (root / "abort").touch()
    before = log.read_bytes()
    for mode in ("r", "r+", "r"):
        with open_small(root, mode) as store:
            assert not store.recovery.damage
            assert [m.body for m in store.consumer(TOPIC)] == [b"b"]
            assert [m.body for m in store.consumer("orders")] == [b"a", b"c", b"d"]
            assert [store.get(start).topic for start in starts].count(TOPIC) == 1
    report = tools.repair(root, **SMALL)
    assert report.ok and not report.ranges
    assert log.read_bytes() == before
    verified = invoke("verify", root, *SHAPE)
    assert verified.exit_code == exit_codes.OK, verified.output


@pytest.mark.parametrize("length", [128, 180, 255])
def test_the_sum_of_its_parts_decides(length: int) -> None:
    record = encode(Message(topic="t" * length, body=b"body", properties="a\1b\2"))
    assert judge_record(record, 0)[0] == "ok"
    at = record.index(b"t" * length) - 1
    for other in (length - 1, (length + 1) % 256, 0, 0x7F):
        wrong = record[:at] + bytes([other]) + record[at + 1 :]
        assert judge_record(wrong, 0)[0] != "ok", other
