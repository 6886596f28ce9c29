"""What is left of the latest messages of keys after a kill, a full disk, damage, or an emergency."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import DiskFullError, Retention
from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import CorruptRecordError
from rocketstore.services.retention import latest
from rocketstore.services.retention.latest import LatestMessages
from tests.services.latest_tools import RULE, first_segments_go, latest_of, messages, put
from tests.support.retention_tools import NEVER, Disk, fill
from tests.support.small_store import SEGMENT, dispatched, engine_of, open_small
from tests.support.waiting import wait_until


@pytest.mark.parametrize("copies", range(6))
def test_a_kill_at_any_copy_loses_none_and_makes_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copies: int
) -> None:
    """Also right before the trim, and the next open too may be killed there."""
    keys = [f"k{n}" for n in range(5)]
    with open_small(tmp_path / "0") as store:
        for key in keys:
            put(store, key, key.encode())
        fill(store)
    for death in range(3):
        source, image = tmp_path / f"{death}", tmp_path / f"{death + 1}"
        with open_small(source) as store, monkeypatch.context() as patch:
            real, left = LatestMessages._put, [copies]

            def dies(
                self: Any, engine: Any, offset: int, real: Any = real, left: Any = left,
                image: Path = image, source: Path = source,
            ) -> bool:  # fmt: skip
                if left[0] == 0:
                    shutil.copytree(source, image)
                    raise KeyboardInterrupt
                left[0] -= 1
                return bool(real(self, engine, offset))

            def dies_at_trim(
                *_: Any, image: Path = image, source: Path = source, **__: Any
            ) -> None:
                shutil.copytree(source, image)
                raise KeyboardInterrupt

            patch.setattr(LatestMessages, "_put", dies)
            patch.setattr(WritingEngine, "trim", dies_at_trim)
            with pytest.raises(KeyboardInterrupt):
                store.retention.run(RULE)
        with open_small(image) as store:
            assert latest_of(dispatched(store)) == {key: key.encode() for key in keys}
            assert len(messages(store)) <= 10
    with open_small(tmp_path / "3") as store:
        first_segments_go(store)
        assert store.begin_offset > 0
        assert latest_of(store) == {key: key.encode() for key in keys}
        assert len(messages(store)) == 5


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
    path = next((tmp_path / "commitlog").iterdir())
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
