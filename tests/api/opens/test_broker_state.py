"""What RocketMQ keeps beside its log: timers and RocksDB after a cut, padding behind the last record."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from rocketstore import tools
from tests.support.made_store import MadeStore, write_at
from tests.support.small_store import SMALL, everything, open_small

SHAPE = {name: SMALL[name] for name in ("index_slots", "index_entries")}


@pytest.fixture
def made(tmp_path: Path) -> MadeStore:
    """A store of RocketMQ 5.5 with 40 messages, a RocksDB that is in use, and timer files."""
    made = MadeStore(tmp_path / "made")
    made.fill(40)
    (made.root / "rocksdbstore").mkdir()
    (made.root / "rocksdbstore" / "000004.log").write_bytes(b"\x01" * 10)
    (made.root / "config").mkdir()
    (made.root / "config" / "timercheck").write_bytes(bytes(4096))
    (made.root / "timerlog").mkdir()
    for name in ("timerwheel", "timerwheel.104"):
        (made.root / name).write_bytes(bytes(64))
    return made


def time(made: MadeStore, numbers: list[int]) -> None:
    """A timer log with a unit for each of these records."""
    units = b""
    for number in numbers:
        record = made.records[number]
        units += struct.pack(
            ">iqiqiqiiq", 52, -1, 1, 0, 1000, record.physical_offset, record.size, 0, 0
        )
    (made.root / "timerlog" / f"{0:020d}").write_bytes(units.ljust(5200, b"\0"))


def tear(made: MadeStore, number: int) -> None:
    """A crash after which the log ends before this record, as far as disks tell."""
    (made.root / "abort").touch()
    record = made.records[number]
    for other in made.records[number:]:
        made.write_log(other.physical_offset, bytes(other.size))
    made.write_log(record.physical_offset, b"\x07" * 50)


TIMERS = ["config/timercheck", "timerlog", "timerwheel", "timerwheel.104"]


def there(root: Path) -> list[str]:
    return [name for name in (*TIMERS, "rocksdbstore") if (root / name).exists()]


@pytest.mark.parametrize("known", [[0, 5], [0, 39], [0, 38, 2]])
def test_timers_of_lost_records_go_with_them(known: list[int], made: MadeStore) -> None:
    time(made, known)
    tear(made, 38)
    with open_small(made.root) as store:
        assert len(everything(store)) == 38
        notes = " ".join(store.recovery.notes)
    stale = max(known) >= 38
    assert there(made.root) == ([] if stale else TIMERS)
    assert ("timers speak of records that are gone" in notes) == stale
    assert "rocksdbstore was moved into quarantine" in notes
    kept = {path.name for path in (made.root / "rocketstore" / "quarantine").iterdir()}
    assert "rocksdbstore-0" in kept
    assert ({"timercheck-0", "timerlog-0", "timerwheel-0", "timerwheel.104-0"} <= kept) == stale


@pytest.mark.parametrize("crash", [False, True])
def test_a_log_that_is_not_cut_keeps_all_of_them(crash: bool, made: MadeStore) -> None:
    time(made, [0, 39])
    if crash:
        (made.root / "abort").touch()
    with open_small(made.root) as store:
        assert len(everything(store)) == 40
    assert there(made.root) == [*TIMERS, "rocksdbstore"]
    assert not tools.verify(made.root, **SHAPE).faults


def test_a_rocksdb_without_content_stays(made: MadeStore) -> None:
    (made.root / "rocksdbstore" / "000004.log").write_bytes(b"")
    tear(made, 38)
    with open_small(made.root):
        pass
    assert "rocksdbstore" in there(made.root)


# ---- writeWithoutMmap ----


def pad(made: MadeStore, stale: bytes) -> None:
    """Stale bytes from the end of the log to the end of its page."""
    path = max((made.root / "commitlog").iterdir())
    place = made.end % made.segment_size
    write_at(path, place, stale[: made.segment_size - place])


@pytest.mark.parametrize("kind", ["noise", "zeros first", "an old record"])
def test_padding_behind_the_last_record_is_no_damage(kind: str, made: MadeStore) -> None:
    old = made.records[0]
    first = (made.root / "commitlog" / f"{0:020d}").read_bytes()[: old.size]
    stale = {
        "noise": b"\xa5" * 300,
        "zeros first": bytes(40) + b"\x05" * 60,
        "an old record": first,
    }
    pad(made, stale[kind])
    report = tools.verify(made.root, **SHAPE)
    assert not report.faults
    assert any("padding" in notice.reason for notice in report.notices)
    with open_small(made.root, "r") as store:
        assert store.recovery.cut is None
        assert len(everything(store)) == 40
    with open_small(made.root) as store:
        assert store.recovery.cut is None
        assert not store.recovery.quarantine
        store.put_message("orders", b"next")
    assert there(made.root)[-1] == "rocksdbstore"
    with open_small(made.root) as store:
        assert store.recovery.mode == "clean"
        assert len(everything(store)) == 41
    assert not tools.verify(made.root, **SHAPE).faults


@pytest.mark.parametrize("why", ["damaged", "crash", "older release", "second page"])
def test_what_is_no_padding_is_named(why: str, tmp_path: Path) -> None:
    made = MadeStore(tmp_path / "made", segment_size=16384)
    made.fill(40)
    (made.root / "rocksdbstore").mkdir()
    if why == "damaged":
        last = made.records[-1]
        write_at(max((made.root / "commitlog").iterdir()), last.physical_offset + 4, b"\xff" * 4)
    else:
        path = max((made.root / "commitlog").iterdir())
        write_at(path, made.end, b"\x05" * (60 if why != "second page" else 5000))
    if why == "crash":
        (made.root / "abort").touch()
    if why == "older release":
        (made.root / "rocksdbstore").rmdir()
    assert tools.verify(made.root, **SHAPE).faults
    with open_small(made.root, "r", commit_log_file_size_bytes=16384) as store:
        assert store.recovery.cut is not None
