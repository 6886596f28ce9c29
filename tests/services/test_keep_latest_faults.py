"""What is left of the latest messages of keys after a full disk, damage, or an emergency; power_loss has what a loss
of power leaves."""

from __future__ import annotations

import errno
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import DiskFullError, Retention
from rocketstore.errors import CorruptRecordError
from rocketstore.services.retention import keeper, latest
from rocketstore.services.retention.latest import LatestMessages
from tests.services.latest_tools import RULE, latest_of, messages, put
from tests.support.retention_tools import NEVER, Disk, fill
from tests.support.small_store import SEGMENT, dispatched, engine_of, open_small
from tests.support.waiting import wait_until


@pytest.mark.parametrize("error", [DiskFullError(errno.ENOSPC, "full"), OSError(errno.EIO, "EIO")])
def test_a_disk_that_takes_no_copy_keeps_the_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    rule = Retention(max_bytes=SEGMENT, check_every=NEVER, keep_latest_of=["config"])
    with open_small(tmp_path, retention=rule) as store:
        put(store, "a", b"1")
        with monkeypatch.context() as patch:
            patch.setattr(latest, "put_message", fails_with(error))
            fill(store)
            wait_until(lambda: repr(store.retention.last_error) == repr(error))
            with pytest.raises(type(error)):
                store.retention.run(RULE)
            assert store.begin_offset == 0
        store.retention.run()
        assert store.begin_offset > 0
        assert latest_of(dispatched(store)) == {"a": b"1"}


def test_a_store_that_closes_looks_no_further_and_gives_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_small(tmp_path) as store:
        put(store, "a", b"1")
        fill(store)
        Disk(monkeypatch, store, 1)
        closing = partial(LatestMessages, over=lambda: True)
        monkeypatch.setattr(keeper, "LatestMessages", lambda *given: closing(*given[:2]))
        rule = Retention(emergency_watermark=0.5, keep_latest_of=["config"])
        with pytest.raises(rocketstore.StoreClosedError):
            store.retention.run(rule)
        assert store.begin_offset == 0


def fails_with(error: BaseException) -> Any:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    return fail


@pytest.mark.parametrize("full", [False, True])
def test_an_emergency_puts_again_what_it_can_and_says_what_it_gave_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    with open_small(tmp_path) as store:
        put(store, "a", b"1")
        fill(store)
        Disk(monkeypatch, store, len(engine_of(store).reader.source.segments()))
        if full:
            error = DiskFullError(errno.ENOSPC, "full")
            monkeypatch.setattr(latest, "put_message", fails_with(error))
        rule = Retention(emergency_watermark=0.6, keep_latest_of=["config"])
        assert store.retention.run(rule).emergency
        assert store.begin_offset > 0
        store.flush()
        assert latest_of(dispatched(store)) == ({} if full else {"a": b"1"})
        lost = store.retention.events[-1].given_up
        assert ("the latest messages of its keys cannot be put again" in str(lost)) == full


def test_damage_keeps_the_segment(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        put(store, "a", b"1" * 100)
        put(store, "a", b"2" * 100)
        at = messages(store)[1].physical_offset
        fill(store)
    path = tmp_path / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[at + 100] ^= 1
    path.write_bytes(data)
    with open_small(tmp_path) as store:
        with pytest.raises(CorruptRecordError):
            store.retention.run(RULE)
        assert store.begin_offset == 0


def test_a_copy_of_a_master_waits_for_the_copies_of_its_master(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It puts nothing itself."""
    with open_small(tmp_path) as store:
        put(store, "a", b"1")
        fill(store)
        engine_of(store).commit_log.log.copy_only()
        end = store.end_offset
        with pytest.raises(rocketstore.RocketStoreError):
            store.retention.run(RULE)
        assert (store.begin_offset, store.end_offset) == (0, end)
