"""A guest puts, reads and cares for a store as its host does; what it cannot is refused with a word."""

from __future__ import annotations

import datetime
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rocketstore
from rocketstore import NewMessage, Store
from rocketstore.errors import (
    ConfigError,
    DurabilityTimeoutError,
    GuestStoreError,
    MessageRejectedError,
    MessageTooLargeError,
    OutcomeUnknownError,
    QueueOffsetMismatchError,
    StoreClosedError,
    StoreLockedError,
)
from tests.sharing.guest_tools import guest_engine, guest_of, shared
from tests.support.waiting import wait_until

HOUR = datetime.timedelta(hours=1)


def bodies(store: Store, topic: str = "orders") -> list[bytes]:
    return [bytes(message.body) for message in store.consumer(topic)]


def columns(*texts: bytes) -> tuple[Any, bytes]:
    return np.cumsum([0, *map(len, texts)]), b"".join(texts)


def put_frames(store: Store) -> object:
    frames, _ = rocketstore.encode_frames(columns(b"a", b"b"), topics=["orders"])
    return store.put_frames(frames)


PUTS: dict[str, Callable[[Store], object]] = {
    "put": lambda s: [s.writer("orders").put(one) for one in (b"a", b"b")],
    "put_batch of a writer": lambda s: s.writer("orders").put_batch([b"a", b"b"]),
    "put_batch": lambda s: s.put_batch([NewMessage("orders", b"a"), NewMessage("orders", b"b")]),
    "put_columns": lambda s: s.put_columns(columns(b"a", b"b"), topics=["orders"]),
    "put_columns of a writer": lambda s: s.writer("orders").put_columns(columns(b"a", b"b")),
    "put_frames": put_frames,
    "put_message": lambda s: [s.put_message("orders", one, flag=7) for one in (b"a", b"b")],
    "submit": lambda s: [s.writer("orders").submit(one).result() for one in (b"a", b"b")],
    "os": lambda s: [s.writer("orders", durability="os").put(one) for one in (b"a", b"b")],
}


@pytest.mark.parametrize("durability", ["disk", "os"])
@pytest.mark.parametrize("kind", PUTS)
def test_what_a_guest_puts_is_there_at_once(tmp_path: Path, kind: str, durability: str) -> None:
    with shared(tmp_path / "s", durability=durability) as (host, guest, _link):
        PUTS[kind](guest)
        if durability == "os" or kind != "os":
            assert bodies(guest) == [b"a", b"b"]
        guest.flush()
        assert bodies(host) == [b"a", b"b"]
        assert guest.stats().put_messages == 2
        assert guest.stats().put_bytes == host.end_offset


def test_results_say_what_those_of_the_host_do(tmp_path: Path) -> None:
    with shared(tmp_path / "s") as (host, guest, _):
        for store, at in ((host, 0), (guest, 1), (host, 2)):
            put = store.writer("orders", queue_id=3).put(b"body", tags="t", keys="k")
            assert (put.queue_id, put.queue_offset, put.durability) == (3, at, "disk")
            message = host.get(put.physical_offset)
            assert (message.body, message.tags, message.keys) == (b"body", "t", ("k",))
            assert put.end_offset == put.physical_offset + message.size
            assert put.store_timestamp_ms == message.store_timestamp_ms


def test_a_condition_is_the_host_s(tmp_path: Path) -> None:
    with shared(tmp_path / "s") as (host, guest, _):
        host.writer("orders").put(b"a")
        writer = guest.writer("orders")
        assert writer.put(b"b", expected_queue_offset=1).queue_offset == 1
        with pytest.raises(QueueOffsetMismatchError) as caught:
            writer.put(b"c", expected_queue_offset=1)
        assert (caught.value.topic, caught.value.expected) == ("orders", 1)
        assert bodies(guest) == [b"a", b"b"]


def test_errors_of_the_host_are_those_of_a_local_put(tmp_path: Path) -> None:
    with shared(tmp_path / "s", max_message_size_bytes=4096) as (host, guest, _):
        with pytest.raises(MessageTooLargeError):
            guest.writer("orders").put(bytes(5000))
        with pytest.raises(MessageRejectedError):
            guest.put_message("rmq_sys_rocketstore_transactions", b"none")
        assert host.end_offset == 0


@pytest.mark.parametrize("first", ["host", "guest"])
def test_a_unique_id_is_put_once_wherever_it_was(tmp_path: Path, first: str) -> None:
    with shared(tmp_path / "s") as (host, guest, _):
        stores = (host, guest) if first == "host" else (guest, host)
        one, two = (store.writer("orders").put(b"a", unique_id="U") for store in stores)
        assert not one.duplicate
        assert two.duplicate
        assert (two.physical_offset, two.id) == (one.physical_offset, "U")
        assert bodies(guest) == [b"a"]


class LosesAnswers:
    """An `Elsewhere` whose first answers are lost, with their host."""

    def __init__(self, real: Any, lose: Callable[[], object], answers: int) -> None:
        self._real, self._lose, self.left = real, lose, answers

    def once(self, append: Callable[[], Any]) -> Any:
        found = self._real.once(append)
        if self.left:
            self.left -= 1
            self._lose()
            raise OutcomeUnknownError("the answer is lost")
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def test_a_unique_put_without_an_answer_asks_the_next_host(tmp_path: Path) -> None:
    with shared(tmp_path / "s") as (host, guest, link):
        log, writer = guest_engine(guest).commit_log, guest.writer("orders")

        def lose() -> None:
            link.lose()
            threading.Thread(target=link.meet, args=(host,)).start()

        log.elsewhere = lost = LosesAnswers(log.elsewhere, lose, 2)
        put = writer.put(b"a", unique_id="U")
        assert lost.left == 0
        assert (put.duplicate, put.queue_offset, put.id) == (True, 0, "U")
        assert bodies(guest) == [b"a"]
        with pytest.raises(MessageRejectedError):
            writer.put(b"b", unique_id="")


def test_a_store_without_an_index_has_no_unique_ids(tmp_path: Path) -> None:
    with (
        shared(tmp_path / "s", index_enabled=False) as (_, guest, _link),
        pytest.raises(ConfigError, match="index_enabled"),
    ):
        guest.writer("orders").put(b"a", unique_id="U")


def test_puts_wait_for_the_next_host(tmp_path: Path) -> None:
    with shared(tmp_path / "s") as (host, guest, link):
        writer, put = guest.writer("orders"), list[object]()
        writer.put(b"a")
        link.lose()
        thread = threading.Thread(target=lambda: put.append(writer.put(b"b")))
        thread.start()
        assert bodies(guest) == [b"a"], "reads go on"
        link.meet(host)
        thread.join(20)
        assert len(put) == 1
        assert bodies(guest) == [b"a", b"b"]


def test_a_put_without_a_host_ends_at_its_limit(tmp_path: Path) -> None:
    with shared(tmp_path / "s", sync_flush_timeout_ms=50) as (host, guest, link):
        writer = guest.writer("orders")
        link.lose()
        with pytest.raises(StoreLockedError, match="tests"):
            writer.put(b"a", timeout_s=0.01)
        link.meet(host)
        assert writer.put(b"b", timeout_s=10).queue_offset == 0


def test_what_died_with_a_host_is_not_said_to_be_durable(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with rocketstore.open(tmp_path / "a") as host, rocketstore.open(tmp_path / "b") as shorter:
        guest, link = guest_of(host, durability="memory")
        with guest:
            kept = guest.writer("orders").put(b"a", durability="disk")
            lost = guest.writer("orders").put(b"b")
            guest.wait_flushed(lost.end_offset)
            shorter.writer("orders").put(b"a")
            link.lose()
            with caplog.at_level(logging.ERROR):
                link.recovered_end = kept.end_offset
                link.life, link.session = "another", link.session + 1
                link.start()
            assert sum("may be lost" in record.message for record in caplog.records) == 1
            assert guest_engine(guest).commit_log.own_end == kept.end_offset, "no read waits for it"
            guest.wait_flushed(kept.end_offset)
            with pytest.raises(OutcomeUnknownError, match="the host died"):
                guest.wait_flushed(lost.end_offset)
            with pytest.raises(OutcomeUnknownError, match="the host died"):
                guest.flush()
            caplog.clear()
            again = guest.writer("orders").put(b"c", durability="disk")
            assert again.end_offset > lost.end_offset
            guest.wait_flushed(again.end_offset)
            assert not caplog.records


def test_a_flush_and_its_limits_are_the_host_s(tmp_path: Path) -> None:
    with shared(tmp_path / "s", durability="os", flush_interval_ms=100_000) as (host, guest, _):
        end = guest.writer("orders").put(b"a").end_offset
        assert host.flushed_offset < end
        guest.wait_flushed(end)
        assert host.flushed_offset >= end
        host.writer("orders").put(b"b")
        assert guest.flush() == host.end_offset
        with pytest.raises(ValueError, match="log ends"):
            guest.wait_flushed(host.end_offset + 1)
    with pytest.raises(StoreClosedError):
        guest.flush()


def test_a_wait_that_is_over_is_a_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with shared(tmp_path / "s") as (_, guest, _link):
        log = guest_engine(guest).commit_log
        monkeypatch.setattr(log, "wait_flushed", lambda end, limit_ms: False)
        with pytest.raises(DurabilityTimeoutError, match="asked for 5"):
            guest.wait_flushed(5, 0.001)


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.destroy(),
        lambda s: s.replication,
        lambda s: s.put_message("orders", b"", properties={"INNER_MULTI_DISPATCH": "a,b"}),
        lambda s: s.transactions.check_back(lambda message: None),
    ],
    ids=["destroy", "replication", "light queues", "check_back"],
)
def test_what_a_guest_cannot_is_refused(tmp_path: Path, call: Callable[[Store], object]) -> None:
    with shared(tmp_path / "s", multi_dispatch_enabled=True) as (host, guest, _):
        with pytest.raises(GuestStoreError, match="the process that has|another process"):
            call(guest)
        assert not host.closed
        assert host.end_offset == 0


def test_a_guest_waits_for_no_other_machine(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s") as host:
        with pytest.raises(GuestStoreError, match="durability = 'replicas"):
            guest_of(host, durability="replicas(2)")
        guest, _ = guest_of(host)
        with guest, pytest.raises(ConfigError, match="replicas"):
            guest.writer("orders", durability="replicas(2)")


def test_options_are_the_host_s_but_for_the_promise(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s", max_wait_ms=123, durability="os") as host:
        guest, _ = guest_of(host, durability="disk", max_wait_ms=7)
        with guest:
            assert (guest.config.max_wait_ms, guest.config.durability) == (123, "disk")
            assert not guest.config.visible_is_flushed
            assert guest.writer("orders").put(b"a").durability == "disk"
        guest, _ = guest_of(host)
        with guest:
            assert guest.writer("orders").put(b"a").durability == "os"


def test_options_follow_the_next_host(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s") as host:
        guest, link = guest_of(host, durability="os")
        with guest:
            host.configure(max_message_size_bytes=5000)
            assert guest.config.max_message_size_bytes != 5000
            link.lose()
            link.meet(host)
            assert guest.config.max_message_size_bytes == 5000
            assert guest.config.durability == "os"
            with pytest.raises(MessageTooLargeError):
                guest.writer("orders").put(bytes(5001))


def test_configure_changes_both(tmp_path: Path) -> None:
    with shared(tmp_path / "s") as (host, guest, _):
        assert guest.configure(max_message_size_bytes=5000).max_message_size_bytes == 5000
        assert host.config.max_message_size_bytes == 5000
        with pytest.raises(MessageTooLargeError):
            guest.writer("orders").put(bytes(5001))
        with pytest.raises(ConfigError, match="cannot change"):
            guest.configure(index_enabled=False)  # type: ignore[call-arg]
        with pytest.raises(ConfigError):
            guest.configure(flush_interval_ms="no")  # type: ignore[arg-type]
        assert guest.config.index_enabled


def test_a_trim_is_the_host_s(tmp_path: Path) -> None:
    small = {"commit_log_file_size_bytes": 4096, "max_message_size_bytes": 1024}
    with shared(tmp_path / "s", **small) as (host, guest, _):
        for _ in range(12):
            guest.writer("orders").put(bytes(900))
        assert guest.trim(before_offset=8192) == 8192
        assert (host.begin_offset, guest.begin_offset) == (8192, 8192)
        assert guest.trim(before_time=0) == 8192
        with pytest.raises(ValueError, match="log ends at"):
            guest.trim(before_offset=host.end_offset + 4096)


def test_a_delayed_message_of_a_guest_is_delivered(tmp_path: Path) -> None:
    with shared(tmp_path / "s") as (_, guest, _link):
        writer = guest.writer("orders")
        put = writer.put(b"soon", deliver_after=0.05)
        assert put.due_time is not None
        writer.put(b"later", deliver_after=HOUR)
        guest.put_message("orders", b"message", deliver_after=0.05)
        found = guest.consumer("orders").follow(20)
        assert {bytes(next(found).body), bytes(next(found).body)} == {b"soon", b"message"}
        assert [bytes(one.message.body) for one in guest.delayed] == [b"later"]


def test_a_delay_level_of_a_guest_is_delivered(tmp_path: Path) -> None:
    with shared(tmp_path / "s", delay_levels="1s") as (_, guest, _link):
        guest.writer("orders").put(b"level", delay_level=1)
        assert bytes(next(guest.consumer("orders").follow(20)).body) == b"level"


def test_a_ticket_of_a_guest_is_done(tmp_path: Path) -> None:
    with shared(tmp_path / "s") as (_, guest, _link):
        called: list[object] = []
        ticket = guest.writer("orders").submit(b"a")
        ticket.add_done_callback(called.append)
        assert called == [ticket]
        assert (ticket.done(), ticket.exception(), ticket.future().done()) == (True, None, True)
        assert ticket.result().durability == "disk"


def test_readers_of_a_guest_follow_the_host(tmp_path: Path) -> None:
    with shared(tmp_path / "s") as (host, guest, _):
        follow = guest.consumer("orders").follow(20)
        put = threading.Timer(0.02, lambda: host.writer("orders").put(b"a", keys="k"))
        put.start()
        assert bytes(next(follow).body) == b"a"
        put.join()
        assert [one.body for one in guest.query("orders", "k")] == [b"a"]
        assert (guest.topics(), guest.queues("orders")) == (["orders"], [0])
        assert guest.end_offset == host.end_offset


def test_a_closed_guest_does_nothing_and_its_host_goes_on(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s") as host:
        guest, _ = guest_of(host)
        writer = guest.writer("orders")
        writer.put(b"a")
        guest.close()
        guest.close()
        for call in (lambda: writer.put(b"b"), guest.flush, lambda: guest.consumer("orders")):
            with pytest.raises(StoreClosedError):
                call()
        assert bodies(host) == [b"a"]
        host.writer("orders").put(b"c")


def test_a_close_ends_puts_that_wait_for_a_host(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s") as host:
        guest, link = guest_of(host)
        writer, met = guest.writer("orders"), list[Exception]()
        link.lose()

        def put() -> None:
            try:
                writer.put(b"a")
            except Exception as error:
                met.append(error)

        thread = threading.Thread(target=put)
        thread.start()
        engine = guest_engine(guest)
        wait_until(lambda: engine.commit_log.elsewhere.requests_under_way > 0)
        guest.close()
        thread.join(20)
        assert [type(error) for error in met] == [StoreClosedError]
