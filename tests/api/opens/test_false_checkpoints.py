"""A checkpoint of ours with a right checksum that somebody else wrote."""

from __future__ import annotations

import dataclasses
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.log.commitlog.checkpoint import CheckpointFile
from tests.support.checkpoints import own_checkpoint
from tests.support.copies import copy_if_there

SIZES: dict[str, Any] = {
    "commit_log_file_size_bytes": 16384,
    "index_slots": 31,
    "index_entries": 200,
    "max_message_size_bytes": 4096,
}
BEFORE = [b"before %d" % number for number in range(100)]
AFTER = [b"after %d" % number for number in range(30)]
FIELDS = [
    "flushed",
    "dispatched",
    "indexed",
    "minimum",
    "last_record_start",
    "last_store_timestamp_ms",
    "cut",
    "max_unflushed",
    "segment_count",
    "segments_digest",
    "last_record_size",
    "queue_count",
    "queues_digest",
    "index_files",
]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with BEFORE, as a writer leaves it that is killed."""
    root = tmp_path_factory.mktemp("killed")
    with rocketstore.open(root / "alive", durability="os", **SIZES) as store:
        writer = store.writer("orders")
        for body in BEFORE[:40]:
            writer.put(body)
        store.flush()
        for body in BEFORE[40:]:
            writer.put(body)
        shutil.copytree(root / "alive", root / "store", copy_function=copy_if_there)
    return root / "store"


def forge(root: Path, **fields: int) -> None:
    own = own_checkpoint(root)
    assert own is not None
    file = CheckpointFile(root / "rocketstore" / "checkpoint")
    file.store(dataclasses.replace(own, generation=own.generation + 1, **fields))
    file.close()


def put_and_open_again(root: Path) -> list[bytes]:
    """What is served after an open that puts AFTER, and another open."""
    with rocketstore.open(root, durability="disk", **SIZES) as store:
        writer = store.writer("orders")
        for body in AFTER:
            writer.put(body)
    with rocketstore.open(root, **SIZES) as store:
        assert store.recovery.cut is None
        return [message.body for message in store.consumer("orders")]


@pytest.mark.parametrize(("cut", "minimum"), [(0, 400), (0, 0), (-1, 400), (400, 0), (0, 1 << 40)])
def test_no_false_cut_costs_messages(cut: int, minimum: int, killed: Path, root: Path) -> None:
    """D-22: neither those that are there nor those that are put next."""
    shutil.copytree(killed, root)
    forge(root, cut=cut, minimum=minimum)
    assert put_and_open_again(root) == BEFORE + AFTER


def test_whatever_a_checkpoint_says_later_messages_stay(
    killed: Path, rng: random.Random, root: Path
) -> None:
    """D-02 D-22: a number that is true of nothing costs no message that is put after the open."""
    numbers = [0, 1, 399, 400, 16384, (1 << 31) - 1, (1 << 32) - 1, 1 << 40, (1 << 63) - 1]
    for _ in range(10):
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(killed, root)
        own = own_checkpoint(root)
        assert own is not None
        numbers[0] = own.flushed
        fields = {}
        for name in rng.sample(FIELDS, rng.choice((1, 1, 2, 3))):
            small = getattr(own, name) < 1 << 32 and name.endswith(
                ("count", "digest", "size", "files")
            )
            fields[name] = rng.choice(numbers) % (1 << 32 if small else 1 << 63)
        forge(root, **fields)
        try:
            served = put_and_open_again(root)
        except rocketstore.MissingSegmentsError:  # it says that there was more: nothing is put
            continue
        assert served[-len(AFTER) :] == AFTER, fields
