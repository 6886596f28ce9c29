"""What a put refuses, with which error, and that nothing was stored then."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

import rocketstore
from rocketstore import (
    BackpressureError,
    DiskFullError,
    DurabilityTimeoutError,
    InvalidTopicError,
    MessageRejectedError,
    MessageTooLargeError,
    PropertiesTooLargeError,
    Store,
    StoreClosedError,
    StoreFailedError,
    StoreReadOnlyError,
)
from rocketstore.log.commitlog.running_flags import FlagReason
from tests.support.small_store import (
    dispatched,
    log_bytes,
    open_small,
    open_still,
    parts,
    put_many,
    segments,
)
from tests.support.waiting import wait_until


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (MessageTooLargeError, "MESSAGE_ILLEGAL"),
        (InvalidTopicError, "MESSAGE_ILLEGAL"),
        (MessageRejectedError, "MESSAGE_ILLEGAL"),
        (PropertiesTooLargeError, "PROPERTIES_SIZE_EXCEEDED"),
        (StoreClosedError, "SERVICE_NOT_AVAILABLE"),
        (StoreReadOnlyError, "SERVICE_NOT_AVAILABLE"),
        (StoreFailedError, "SERVICE_NOT_AVAILABLE"),
        (DiskFullError, "CREATE_MAPPED_FILE_FAILED"),
        (BackpressureError, "OS_PAGE_CACHE_BUSY"),
        (DurabilityTimeoutError, "FLUSH_DISK_TIMEOUT"),
        (rocketstore.RocketStoreError, "UNKNOWN_ERROR"),
    ],
)
def test_every_error_names_rocketmqs_status(
    error: type[rocketstore.RocketStoreError], status: str
) -> None:
    """S000-37 S001-48 S003-31: the word that operators know; what fits none is UNKNOWN_ERROR."""
    assert error.status == status
    assert issubclass(error, rocketstore.RocketStoreError)


@pytest.mark.store(max_message_size_bytes=300)
def test_body_at_and_beyond_the_limit(store: Store, writer: rocketstore.Writer) -> None:
    """S000-36 S000-74 S001-74 S004-67: one byte more than the limit is MESSAGE_ILLEGAL."""
    writer.put(b"x" * 300)
    end = store.end_offset
    with pytest.raises(MessageTooLargeError, match=r"301 bytes.*300") as caught:
        writer.put(b"x" * 301)
    assert caught.value.status == "MESSAGE_ILLEGAL"
    assert store.end_offset == end


def test_a_record_that_fits_no_file_burns_none(
    tmp_path: Path, store: Store, writer: rocketstore.Writer
) -> None:
    """K-20: RocketMQ fills two files with blanks and says PUT_OK; here it is refused up front."""
    with pytest.raises(MessageRejectedError):
        writer.put(b"x" * store.config.max_message_size_bytes, properties={"a": "y" * 3000})
    assert store.end_offset == 0
    assert writer.put(b"x").physical_offset == 0
    assert len(segments(tmp_path)) <= 2


def test_topic_at_and_beyond_127_bytes(tmp_path: Path) -> None:
    """S003-19: counted in bytes; auto_wide_topic admits up to 255."""
    with open_small(tmp_path / "a") as store:
        store.writer("t" * 127).put(b"x")
        with pytest.raises(InvalidTopicError):
            store.writer("t" * 128)
        with pytest.raises(InvalidTopicError):
            store.put_message("t" * 128, b"x")
    with open_small(tmp_path / "b", auto_wide_topic=True) as store:
        result = store.writer("t" * 255).put(b"x")
        assert store.get(result.physical_offset).topic == "t" * 255
        with pytest.raises(InvalidTopicError):
            store.writer("t" * 256)


@pytest.mark.store(commit_log_file_size_bytes=1 << 17)
def test_properties_at_and_beyond_32767_bytes(store: Store, writer: rocketstore.Writer) -> None:
    """Counted encoded, with separators and the record CRC, before anything is appended."""
    fits = 32_767 - len("p\1\2") - 20
    writer.put(b"", properties={"p": "v" * fits})
    end = store.end_offset
    with pytest.raises(PropertiesTooLargeError):
        writer.put(b"", properties={"p": "v" * (fits + 1)})
    assert store.end_offset == end


def test_a_closed_store_refuses_everything(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    writer = store.writer("orders")
    store.close()
    for use in (lambda: writer.put(b"x"), lambda: store.put_message("t", b"x"), store.topics):
        with pytest.raises(StoreClosedError, match="open it again"):
            use()


def test_a_writer_of_a_closed_store_names_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody but its user has closed it: that is no news for the log."""
    store = open_small(tmp_path)
    writer = store.writer("t")
    store.close()
    with (
        caplog.at_level(logging.DEBUG),
        pytest.raises(StoreClosedError, match=re.escape(f"rocketstore.open({str(tmp_path)!r})")),
    ):
        writer.put(b"x")
    assert caplog.records == []


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    open_small(tmp_path).close()
    with open_small(tmp_path, "r") as store:
        for use in (
            lambda: store.writer("t"),
            lambda: store.put_message("t", b"x"),
            lambda: store.trim(before_offset=0),
            lambda: store.configure(flush_interval_ms=1),
            store.destroy,
        ):
            with pytest.raises(StoreReadOnlyError, match="mode='r'"):
                use()


def test_refusals_do_not_flood_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, store: Store, writer: rocketstore.Writer
) -> None:
    """S003-17: each caller gets the reason; the log tells the first and every 50,000th."""
    # Its file is there: that it took long would be told, too.
    wait_until(lambda: parts(store).preallocator.spare() is not None)
    parts(store).commit_log.fail(OSError(5, "pulled the plug"))
    caplog.clear()
    with caplog.at_level(logging.DEBUG):
        for _ in range(200):
            with pytest.raises(StoreFailedError, match="pulled the plug"):
                writer.put(b"x")
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith(f"{tmp_path}/commitlog: put refused (1 so far): no")


def test_not_writeable_refuses_and_names_why(store: Store, writer: rocketstore.Writer) -> None:
    """S003-18: the reason and its first cause are in the error; puts go on when it is gone."""
    store.flags.set(FlagReason.DISK_FULL, "no room at all")
    parts(store).commit_log.refuse_or_admit()
    with pytest.raises(StoreFailedError, match=r"DISK_FULL.*no room at all") as caught:
        writer.put(b"x")
    assert caught.value.status == "SERVICE_NOT_AVAILABLE"
    assert store.end_offset == 0
    store.flags.clear(FlagReason.DISK_FULL)
    parts(store).commit_log.refuse_or_admit()
    assert writer.put(b"x").physical_offset == 0


def test_too_much_unflushed_is_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S000-29 S003-21: not guessed from lock times (K-26): bytes that wait for the disk are bounded."""
    store = open_still(
        tmp_path,
        "os",
        commit_log_file_size_bytes=1 << 20,
        max_unflushed_bytes=1 << 16,
        max_wait_ms=500,
    )
    with store:
        flusher = parts(store).flusher
        monkeypatch.setattr(flusher, "flush", lambda: None)  # a disk that hangs
        writer = store.writer("orders")
        with pytest.raises(BackpressureError, match=r"flushed = 0 \(bound 65536") as caught:
            put_many(writer, 100, 1000)
        assert caught.value.status == "OS_PAGE_CACHE_BUSY"
        assert store.end_offset <= 1 << 16
        end = store.end_offset
        monkeypatch.undo()
        assert writer.put(b"x" * 1000).physical_offset == end  # the put waits for the flush


@pytest.mark.parametrize("durability", ["os", "memory"])
@pytest.mark.store(
    "durability",
    commit_log_file_size_bytes=1 << 20,
    max_undispatched_bytes=1 << 16,
    max_wait_ms=3_600_000,
)
def test_room_that_dispatch_makes_is_noticed(
    durability: str, store: Store, writer: rocketstore.Writer
) -> None:
    """D-14 D-15: batches of half the bound, put as fast as may be; `max_wait_ms` is far beyond the
    test's own limit, so a wake-up that is missed fails it."""
    for size in (40_000, 60_000, 20_000) * 40:
        writer.put_batch([bytes(size // 40)] * 20)


@pytest.mark.store(max_wait_ms=3_600_000)
def test_nothing_left_to_wait_for(store: Store) -> None:
    """All was flushed and dispatched between the refusal and the wait: there is no signal to come."""
    store.writer("orders").put(b"x", durability="disk")
    dispatched(store)
    parts(store).commit_log.wait_for_room()


def test_a_wait_for_room_that_takes_long_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """S000-39 S003-22 S003-32: with what the put waited for; it never holds the append lock then."""
    monkeypatch.setattr("rocketstore.log.commitlog.log_limits.SLOW_MS", 0)
    with open_small(tmp_path) as store, caplog.at_level(logging.WARNING):
        store.writer("orders").put(b"x")
    assert any("waited" in r.message and "segment" in r.message for r in caplog.records)


@pytest.mark.store(max_message_size_bytes=50)
def test_nothing_of_a_refused_put_is_in_the_log(tmp_path: Path, store: Store) -> None:
    with pytest.raises(MessageTooLargeError):
        store.writer("orders").put(b"SECRET" * 10)
    store.writer("orders").put(b"x")
    assert b"SECRET" not in log_bytes(tmp_path)
