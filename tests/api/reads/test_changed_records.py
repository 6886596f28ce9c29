"""A record that does not hold its own checksum is damage, unless something shows that another program wrote it."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from rocketstore import CorruptRecordError, tools
from rocketstore.cli import exit_codes
from rocketstore.log.commitlog.checkpoint import DISCARDED, UNFIT, CheckpointFile
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.layout.store_json import load_store_state
from tests.cli.conftest import Invoke, invoke
from tests.support.made_store import write_at
from tests.support.small_store import SMALL, open_small
from tests.vectors.encoders import Message, encode

__all__ = ["invoke"]

COUNT = 50
CHANGED = 10
OPTIONS: dict[str, Any] = {"commit_log_file_size_bytes": 16384}
SHAPE = {name: SMALL[name] for name in ("index_slots", "index_entries")}


@dataclass(frozen=True)
class Made:
    """A store that nobody but rocketstore wrote, closed; where its records begin, and its end. The `amount` of one
    was 100 when it was put."""

    root: Path
    starts: list[int]
    end: int

    @property
    def log(self) -> Path:
        return self.root / "commitlog" / f"{0:020d}"

    def put_in(self, offset: int, data: bytes) -> None:
        write_at(self.log, offset, data)


@pytest.fixture
def made(tmp_path: Path) -> Made:
    root = tmp_path / "store"
    with open_small(root, **OPTIONS) as store:
        writer = store.writer("t")
        places = [writer.put(b"m%d" % n, properties={"amount": "100"}) for n in range(COUNT)]
    found = Made(root, [one.physical_offset for one in places], places[-1].end_offset)
    at = found.log.read_bytes().index(b"100", found.starts[CHANGED])
    found.put_in(at, b"900")
    return found


def discarded(made: Made, cut: int) -> None:
    file = CheckpointFile(StoreLayout(made.root).own_checkpoint)
    own = file.load()
    assert own is not None
    file.store(replace(own, generation=own.generation + 1, cut=cut, clean=False))
    file.close()


def last_record_damaged(made: Made) -> None:
    made.put_in(made.end - 40, b"\xee")


def last_record_torn(made: Made) -> None:
    made.put_in(made.starts[-1] + 60, bytes(made.end - made.starts[-1] - 60))


#: What takes our checkpoint's trust away, and shows no other program.
OUR_OWN: dict[str, Callable[[Made], object]] = {
    "nothing": lambda made: None,
    "checkpoint gone": lambda made: (made.root / "rocketstore" / "checkpoint").unlink(),
    "checkpoint zeroed": lambda made: (made.root / "rocketstore" / "checkpoint").write_bytes(
        bytes(8192)
    ),
    "checkpoint discarded as unfit": lambda made: discarded(made, UNFIT),
    "store.json gone": lambda made: (made.root / "rocketstore" / "store.json").unlink(),
    "rocketstore gone": lambda made: shutil.rmtree(made.root / "rocketstore"),
    "lock gone": lambda made: (made.root / "lock").unlink(),
    "last record damaged": last_record_damaged,
    "last record torn": last_record_torn,
}


def rocketmq_put(made: Made) -> None:
    """A record without a checksum, first in its file; the old checkpoint does not fit."""
    first = made.log.read_bytes()[: made.starts[1]]
    body = bytes(made.starts[1] - 92)
    plain = encode(Message(topic="t", body=body, queue_offset=0, physical_offset=0))
    assert len(plain) == len(first)
    made.put_in(0, plain)


def newer_checkpoint(made: Made) -> None:
    """RocketMQ has stored messages since."""
    with (made.root / "checkpoint").open("r+b") as file:
        file.write(struct.pack(">q", 1 << 42))


#: What shows that another program may have put a record again with the checksum of the old one, where the bytes that
#: our checkpoint knows are others.
ANOTHER: dict[str, Callable[[Made], object]] = {
    "lock says so": lambda made: write_at(made.root / "lock", 0, b"lock"),
    "checkpoint discarded": lambda made: discarded(made, DISCARDED),
    "its checkpoint is newer": newer_checkpoint,
    "a record without a checksum": rocketmq_put,
    "nothing says it is ours": lambda made: (
        (made.root / "lock").unlink(),
        shutil.rmtree(made.root / "rocketstore"),
    ),
}


@pytest.mark.parametrize("what", OUR_OWN)
def test_a_changed_record_is_never_served(what: str, made: Made, invoke: Invoke) -> None:
    OUR_OWN[what](made)
    for mode in ("r", "r+", "r"):
        with open_small(made.root, mode, **OPTIONS) as store:
            with pytest.raises(CorruptRecordError) as caught:
                list(store.consumer("t"))
            assert caught.value.physical_offset == made.starts[CHANGED], mode
            if store.recovery.start == 0 < store.recovery.scanned_records:
                assert [one.start for one in store.recovery.damage] == [made.starts[CHANGED]]
            assert store.recovery.foreign is None
    state = load_store_state(StoreLayout(made.root))
    assert state is not None and not state.foreign
    assert invoke("tail", made.root, "t", "-n", COUNT).exit_code == exit_codes.DAMAGED


@pytest.mark.parametrize("what", ["nothing", "checkpoint gone", "last record damaged"])
@pytest.mark.parametrize("first", ["repair", "recover"])
def test_advice_ends_and_what_was_lost_is_what_is_lost(what: str, first: str, made: Made) -> None:
    OUR_OWN[what](made)
    lost = {CHANGED} | ({COUNT - 1} if what == "last record damaged" else set())
    before = tools.verify(made.root, **SHAPE)
    assert sum(one.count for one in before.lost_messages) == len(lost)
    if first == "recover":
        open_small(made.root, "r+", **OPTIONS).close()
    report = tools.repair(made.root, **SHAPE)
    assert report.ok and [one.start for one in report.ranges] == [made.starts[CHANGED]]
    assert tools.verify(made.root, **SHAPE).ok
    with open_small(made.root, "r", **OPTIONS) as store:
        found = [int(bytes(message.body)[1:]) for message in store.consumer("t")]
    assert found == [n for n in range(COUNT) if n not in lost]


@pytest.mark.parametrize("what", ANOTHER)
def test_where_another_program_shows_it_is_served(what: str, made: Made) -> None:
    """docs/durability.md: a RocketMQ at its defaults leaves the checksum of an earlier record."""
    last_record_torn(made)
    ANOTHER[what](made)
    for mode in ("r", "r+", "r"):
        with open_small(made.root, mode, **OPTIONS) as store:
            assert store.get(made.starts[CHANGED]).properties["amount"] == "900", mode
    state = load_store_state(StoreLayout(made.root))
    assert state is not None and state.is_foreign(made.starts[CHANGED])
