"""Our checkpoint: the bytes of a slot, two slots, what a failure leaves."""

from __future__ import annotations

import dataclasses
import errno
import random
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketstore._native.format.codec import crc32c
from rocketstore._native.os import syscalls
from rocketstore.errors import DiskFullError
from rocketstore.log.commitlog.checkpoint import CheckpointFile, OwnCheckpoint, unpacked

pytestmark = pytest.mark.quick

FULL = OwnCheckpoint(
    generation=7,
    flushed=2548,
    dispatched=2448,
    indexed=1024,
    minimum=1000,
    last_record_start=2448,
    last_record_size=100,
    last_record_crc=0xDEADBEEF,
    tail_crc=0xFFFFFFFF,
    last_store_timestamp_ms=1_700_000_000_024,
    cut=2500,
    max_unflushed=64 << 20,
    segment_count=3,
    segments_digest=0x80000001,
    queue_count=5,
    queues_digest=0x12345678,
    index_files=2,
    clean=True,
    boot_id=bytes(range(16)),
    run_id=bytes(range(16, 32)),
)

OFFSET = st.integers(0, 2**63 - 1)
OFFSET_OR_NONE = st.integers(-2, 2**63 - 1)
WORD = st.integers(0, 2**32 - 1)
ID = st.binary(min_size=16, max_size=16)
CHECKPOINTS = st.builds(
    OwnCheckpoint,
    generation=st.integers(0, 2**62 - 1),
    flushed=OFFSET,
    dispatched=OFFSET,
    indexed=OFFSET,
    minimum=OFFSET,
    last_record_start=OFFSET_OR_NONE,
    last_record_size=WORD,
    last_record_crc=WORD,
    tail_crc=WORD,
    last_store_timestamp_ms=st.integers(-(2**63), 2**63 - 1),
    cut=OFFSET_OR_NONE,
    max_unflushed=OFFSET,
    segment_count=WORD,
    segments_digest=WORD,
    queue_count=WORD,
    queues_digest=WORD,
    index_files=WORD,
    clean=st.booleans(),
    boot_id=ID,
    run_id=ID,
)


def sealed(slot: bytearray) -> bytes:
    """The slot with the checksum that its bytes need."""
    slot[148:152] = struct.pack(">I", crc32c(bytes(slot[:148])))
    return bytes(slot)


# ---- slots ----


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Nothing is there yet."""
    return tmp_path / "checkpoint"


def test_a_slot_is_laid_out_as_the_format_says() -> None:
    slot = FULL.packed()
    wanted = struct.pack(
        ">4sIqqqqqqqqqIIIIIIII16s16sI",
        b"RSCP", 1, 7, 2548, 2448, 1024, 1000, 2448, 1_700_000_000_024, 2500, 64 << 20,
        3, 0x80000001, 100, 0xDEADBEEF, 0xFFFFFFFF, 5, 0x12345678, 1,
        bytes(range(16)), bytes(range(16, 32)), 2,
    )  # fmt: skip
    assert slot[:148] == wanted
    assert slot[148:152] == struct.pack(">I", crc32c(wanted))
    assert slot[152:] == bytes(4096 - 152)


@given(CHECKPOINTS)
@settings(max_examples=200, deadline=None)
def test_unpack_undoes_pack(checkpoint: OwnCheckpoint) -> None:
    assert unpacked(checkpoint.packed()) == checkpoint


def test_every_flipped_bit_of_a_slot_is_seen() -> None:
    slot = FULL.packed()
    for bit in range(152 * 8):
        torn = bytearray(slot)
        torn[bit // 8] ^= 1 << bit % 8
        assert unpacked(bytes(torn)) is None, bit


def test_a_slot_one_byte_short_is_none() -> None:
    slot = FULL.packed()
    assert unpacked(slot[:151]) is None
    assert unpacked(slot[:152]) is not None
    assert unpacked(b"") is None


def test_another_version_is_none_though_its_checksum_holds() -> None:
    slot = bytearray(FULL.packed())
    slot[4:8] = struct.pack(">I", 2)
    assert unpacked(sealed(slot)) is None


@pytest.mark.parametrize(
    ("at", "allowed"), [(8, 0), (16, -3), (24, 0), (40, 0), (48, -3), (64, -3)]
)
def test_a_slot_with_an_impossible_offset_is_none(at: int, allowed: int) -> None:
    slot = bytearray(FULL.packed())
    slot[at : at + 8] = struct.pack(">q", allowed)
    assert unpacked(sealed(slot)) is not None
    slot[at : at + 8] = struct.pack(">q", allowed - 1)
    assert unpacked(sealed(slot)) is None


def test_a_generation_that_none_could_follow_is_none() -> None:
    """An open for writing would fail at its first checkpoint, and so would each one after it."""
    slot = bytearray(FULL.packed())
    for generation, found in ((2**62 - 1, True), (2**62, False), (2**63 - 1, False)):
        slot[8:16] = struct.pack(">q", generation)
        assert (unpacked(sealed(slot)) is not None) is found


def test_what_a_slot_cannot_hold_is_refused() -> None:
    for change in ({"flushed": -4}, {"cut": -4}, {"boot_id": bytes(15)}, {"run_id": bytes(17)}):
        with pytest.raises(ValueError, match=r"negative|16 bytes"):
            dataclasses.replace(FULL, **change)
    for change in ({"flushed": 2**63}, {"queue_count": 2**32}, {"tail_crc": -1}):
        with pytest.raises(struct.error):
            dataclasses.replace(FULL, **change).packed()


@given(st.binary(max_size=300))
@settings(deadline=None)
def test_no_bytes_make_unpack_fail(data: bytes) -> None:
    assert unpacked(data) is None


def test_crc32c_is_castagnolis() -> None:
    """RFC 3720 B.4 and the usual check value."""
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(memoryview(b"6789"), crc32c(b"12345")) == 0xE3069283


# ---- our file ----


def step(checkpoint: OwnCheckpoint, **changes: Any) -> OwnCheckpoint:
    return dataclasses.replace(checkpoint, generation=checkpoint.generation + 1, **changes)


def test_without_a_file_there_is_no_checkpoint_and_none_is_made(tmp_path: Path) -> None:
    file = CheckpointFile(tmp_path / "checkpoint")
    assert file.load() is None
    file.close()
    assert list(tmp_path.iterdir()) == []


def test_the_newest_of_many_is_loaded(tmp_path: Path, path: Path) -> None:
    file, current = CheckpointFile(path), FULL
    for flushed in range(3000, 3009):
        current = step(current, flushed=flushed)
        file.store(current)
        assert CheckpointFile(path).load() == current
    file.close()
    file.close()
    assert path.stat().st_size == 2 * 4096
    assert path.stat().st_mode & 0o777 == tmp_path.stat().st_mode & 0o666


def test_slots_take_turns_also_after_a_new_start(tmp_path: Path) -> None:
    """D-40: one store changes one 4 KiB block, never the one that holds the newest slot."""
    path, current = tmp_path / "checkpoint", FULL
    before = bytes(8192)
    turns = []
    for _ in range(5):
        file = CheckpointFile(path)
        file.store(current)
        file.close()
        after = path.read_bytes()
        turns.append([after[at : at + 4096] != before[at : at + 4096] for at in (0, 4096)])
        before, current = after, step(current)
    assert turns == [[True, False], [False, True]] * 2 + [[True, False]]


def test_a_torn_newer_slot_leaves_the_older_one(rng: random.Random, path: Path) -> None:
    older, newer = FULL, step(FULL, flushed=9999)
    file = CheckpointFile(path)
    file.store(older)
    file.store(newer)
    file.close()
    data = path.read_bytes()
    for cut in (0, 1, 151, rng.randrange(152)):
        path.write_bytes(data[: 4096 + cut])
        assert CheckpointFile(path).load() == older
    path.write_bytes(data[: 4096 + 152])
    assert CheckpointFile(path).load() == newer


def test_the_slot_after_a_torn_one_is_the_torn_one(path: Path) -> None:
    file = CheckpointFile(path)
    file.store(FULL)
    file.store(step(FULL))
    file.close()
    data = bytearray(path.read_bytes())
    data[4096 + 20] ^= 1
    path.write_bytes(data)
    file = CheckpointFile(path)
    file.store(step(step(FULL)))
    file.close()
    assert path.read_bytes()[:4096] == bytes(data[:4096])
    assert CheckpointFile(path).load() == step(step(FULL))


@pytest.mark.parametrize("call", ["pwrite", "fdatasync"])
def test_the_slot_that_failed_is_not_written_next(
    monkeypatch: pytest.MonkeyPatch, call: str, path: Path
) -> None:
    """D-40, D-13: the error reaches the caller; a later store goes to the other block."""
    file = CheckpointFile(path)
    file.store(FULL)  # slot 0
    writes: list[int] = []
    real_write, real_sync = syscalls.pwrite, syscalls.fdatasync

    def record(fd: int, data: bytes, offset: int) -> None:
        writes.append(offset)
        if call == "pwrite" and len(writes) == 1:
            raise OSError(errno.EIO, "bad sector")
        real_write(fd, data, offset)

    def sync(fd: int) -> None:
        if call == "fdatasync" and len(writes) == 1:
            raise OSError(errno.EIO, "bad sector")
        real_sync(fd)

    monkeypatch.setattr(syscalls, "pwrite", record)
    monkeypatch.setattr(syscalls, "fdatasync", sync)
    with pytest.raises(OSError, match="bad sector"):
        file.store(step(FULL))
    assert file.load() is not None  # looking does not make the slot good again
    last = step(step(FULL))
    file.store(last)
    assert writes == [4096, 0]
    file.store(step(last))
    file.close()
    assert writes == [4096, 0, 4096]
    assert CheckpointFile(path).load() == step(last)


def test_a_slot_that_is_read_the_second_time_only(
    monkeypatch: pytest.MonkeyPatch, path: Path
) -> None:
    """What follows the older one is not newer than the file: an error of the disk, not of the caller."""
    file = CheckpointFile(path)
    file.store(FULL)
    file.store(step(FULL))  # slot 1
    file.close()
    real, failures = syscalls.pread, [OSError(errno.EIO, "bad sector")]

    def pread(fd: int, size: int, offset: int) -> bytes:
        if offset and failures:
            raise failures.pop()
        return real(fd, size, offset)

    monkeypatch.setattr(syscalls, "pread", pread)
    file = CheckpointFile(path)
    assert file.load() == FULL
    assert file.load() == step(FULL)
    with pytest.raises(OSError, match="second time only") as told:
        file.store(step(FULL))
    assert (told.value.errno, told.value.filename) == (errno.EIO, str(path))
    assert CheckpointFile(path).load() == step(FULL)


def test_a_store_is_synced_before_it_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-18: the file, and when it is new its directory, before the first slot."""
    calls: list[str] = []
    for name in ("fsync", "sync_directory", "pwrite", "fdatasync"):
        real = getattr(syscalls, name)

        def call(*arguments: Any, name: str = name, real: Any = real) -> Any:
            calls.append(name)
            return real(*arguments)

        monkeypatch.setattr(syscalls, name, call)
    file = CheckpointFile(tmp_path / "checkpoint")
    file.store(FULL)
    file.store(step(FULL))
    file.close()
    made = ["pwrite", "fsync", "sync_directory"]
    assert calls == [*made, "pwrite", "fdatasync", "pwrite", "fdatasync"]


def test_a_generation_that_load_would_not_find_is_refused(tmp_path: Path) -> None:
    file = CheckpointFile(tmp_path / "checkpoint")
    file.store(FULL)
    with pytest.raises(ValueError, match="generation 7 is not above 7"):
        file.store(FULL)
    file.close()


def test_an_unreadable_slot_leaves_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = CheckpointFile(tmp_path / "checkpoint")
    file.store(FULL)
    file.store(step(FULL))
    file.close()
    real = syscalls.pread

    def read(fd: int, count: int, offset: int) -> bytes:
        if offset == 4096:
            raise OSError(errno.EIO, "bad sector")
        return real(fd, count, offset)

    monkeypatch.setattr(syscalls, "pread", read)
    assert CheckpointFile(tmp_path / "checkpoint").load() == FULL


def test_no_room_for_a_new_checkpoint_is_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = syscalls.pwrite

    def full(fd: int, data: bytes, offset: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    file = CheckpointFile(tmp_path / "checkpoint")
    monkeypatch.setattr(syscalls, "pwrite", full)
    with pytest.raises(DiskFullError) as caught:
        file.store(FULL)
    assert caught.value.errno == errno.ENOSPC
    monkeypatch.setattr(syscalls, "pwrite", real)
    file.store(FULL)
    file.close()
    assert CheckpointFile(tmp_path / "checkpoint").load() == FULL
