"""What a scrape gives: in the text that Prometheus reads, of open stores, readers and closed ones."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

pytest.importorskip("prometheus_client", reason="needs prometheus_client: the extra metrics")

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import rocketstore
from rocketstore import GuestFigures
from rocketstore.log.commitlog.running_flags import FlagReason
from rocketstore.metrics import StoreCollector
from rocketstore.replication import Master, Replica
from tests.support.small_store import engine_of, open_small
from tests.support.waiting import wait_until

Labels = frozenset[tuple[str, str]]


def scraped(
    stores: dict[str, rocketstore.Store], *, system: bool = False
) -> dict[tuple[str, Labels], float]:
    """Samples by name and labels, as they come through the text."""
    registry = CollectorRegistry(auto_describe=True)
    registry.register(StoreCollector(stores, system=system))
    found: dict[tuple[str, Labels], float] = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        assert family.documentation and family.type != "unknown", family
        for sample in family.samples:
            place = sample.name.removeprefix("rocketstore_"), frozenset(sample.labels.items())
            assert place not in found, f"twice: {place}"
            found[place] = sample.value
    return found


def value(found: dict[tuple[str, Labels], float], name: str, **labels: str) -> float:
    return found[name, frozenset(labels.items())]


def names(found: Iterable[tuple[str, Labels]], store: str) -> set[str]:
    return {name for name, labels in found if ("store", store) in labels}


def test_a_scrape_tells_what_was_put_read_and_committed(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s", durability="os") as store:
        for queue_id in (0, 1):
            store.writer("orders", queue_id=queue_id).put_batch([b"12345"] * 10)
        store.writer("moves").put(b"m")
        with store.consumer("orders", queue_id=0, group="billing") as billing:
            assert len(billing.poll(4)) == 4
            billing.commit()
        found = scraped({"main": store})
        stats = store.stats()
        assert value(found, "open", store="main") == 1
        assert value(found, "messages", store="main", topic="orders") == 20
        # Six of the queue that it reads, and ten of the one that it has never committed.
        lag = value(found, "group_lag_messages", store="main", topic="orders", group="billing")
        assert lag == 16
        assert value(found, "put_messages_total", store="main", topic="orders") == 20
        put_bytes = value(found, "put_bytes_total", store="main", topic="orders")
        assert put_bytes == stats.topics["orders"].bytes > 0
        assert value(found, "put_failures_total", store="main") == 0
        assert value(found, "reads_total", store="main", result="found") == stats.get_found > 0
        assert value(found, "read_messages_total", store="main") == stats.transferred_messages
        for position in ("begin", "dispatched", "flushed", "visible", "end"):
            told = value(found, "position_bytes", store="main", position=position)
            assert told <= getattr(store, f"{position}_offset")
        assert value(found, "position_bytes", store="main", position="end") == store.end_offset


def test_topics_and_groups_of_services_are_counted_where_they_are_asked_for(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s", durability="os") as store:
        with store.transaction() as transaction:
            transaction.put("orders", b"copy")
        store.transactions.prepare("orders", b"half", group="g").commit()
    with rocketstore.open(tmp_path / "s", durability="os") as store:
        store.writer("orders").put(b"later", delay_level=3)
        texts = {label for _, labels in scraped({"s": store}) for label in labels}
        assert {text for name, text in texts if name in ("topic", "group")} == {"orders"}
        found = scraped({"s": store}, system=True)
        assert value(found, "put_messages_total", store="s", topic="SCHEDULE_TOPIC_XXXX") == 1
        half = {"topic": "RMQ_SYS_TRANS_HALF_TOPIC", "store": "s"}
        assert value(found, "messages", **half) == 1
        assert value(found, "group_lag_messages", **half, group="CID_RMQ_SYS_TRANS") == 0


def test_times_are_seconds(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s", durability="disk") as store:
        writer = store.writer("orders")
        for _ in range(5):
            writer.put(b"x")
        found = scraped({"main": store})
        times = store.stats().put_latency
        assert value(found, "put_seconds_count", store="main") == times.count == 5
        assert times.mean_ns is not None and times.p99_ns is not None
        total = value(found, "put_seconds_sum", store="main")
        assert total == pytest.approx(5 * times.mean_ns / 1e9)
        p99 = value(found, "put_seconds", store="main", quantile="0.99")
        assert p99 == pytest.approx(times.p99_ns / 1e9)
        assert value(found, "flush_seconds_count", store="main") >= 1


def test_a_store_that_did_nothing_has_no_times(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s") as store:
        found = scraped({"main": store})
    assert value(found, "put_seconds_count", store="main") == 0
    assert ("put_seconds", frozenset({("store", "main"), ("quantile", "0.5")})) not in found


def test_a_reader_follows_the_offsets_of_the_writer(tmp_path: Path) -> None:
    with (
        rocketstore.open(tmp_path / "s", durability="os") as store,
        rocketstore.open(tmp_path / "s", "r") as reader,
    ):
        store.writer("orders").put_batch([b"x"] * 9)
        assert reader.committed("orders", "billing") == {}
        with store.consumer("orders", group="billing") as billing:
            billing.poll(7)
            billing.commit()
            assert store.committed("orders", "billing") == {0: 7}  # asked beside its consumer
            assert reader.committed("orders", "billing") == {0: 7}
            found = scraped({"main": store, "beside": reader})
    for name in ("main", "beside"):
        labels = {"store": name, "topic": "orders"}
        assert value(found, "messages", **labels) == 9
        assert value(found, "group_lag_messages", group="billing", **labels) == 2


def test_a_closed_store_says_that_and_nothing_else(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "a") as store:
        store.writer("orders").put(b"x")
        other = rocketstore.open(tmp_path / "b")
        other.close()
        found = scraped({"a": store, "b": other})
    assert value(found, "open", store="a") == 1
    assert value(found, "open", store="b") == 0
    assert names(found, "b") == {"open"}
    with pytest.raises(rocketstore.StoreClosedError):
        other.committed("orders", "billing")


def test_flags_are_told(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s") as store:
        assert not any(name == "blocked" for name, _ in scraped({"s": store}))
        store.flags.set(FlagReason.DISK_FULL, "no room")
        assert value(scraped({"s": store}), "blocked", store="s", reason="DISK_FULL") == 1
        store.flags.clear(FlagReason.DISK_FULL)


def test_a_store_that_takes_no_reads_hides_nothing_else(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "a") as store, rocketstore.open(tmp_path / "b") as other:
        for each in (store, other):
            each.writer("orders").put(b"x")
        store.flags.set(FlagReason.NOT_READABLE, "a broken disk")
        found = scraped({"a": store, "b": other})
    assert value(found, "blocked", store="a", reason="NOT_READABLE") == 1
    assert value(found, "open", store="a") == 1
    assert value(found, "put_messages_total", store="a", topic="orders") == 1
    assert value(found, "messages", store="b", topic="orders") == 1


def test_a_store_that_is_closed_in_a_scrape_says_that_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = rocketstore.open(tmp_path / "s")
    store.writer("orders").put(b"x")
    groups = rocketstore.Store.groups

    def closing(self: rocketstore.Store, topic: str | None = None, **asked: bool) -> list[str]:
        self.close()
        return groups(self, topic, **asked)

    monkeypatch.setattr(rocketstore.Store, "groups", closing)
    families = StoreCollector({"s": store}).collect()
    samples = [sample for family in families for sample in family.samples]
    assert [(sample.name, sample.value) for sample in samples] == [("rocketstore_open", 0)]


CANNOT_BE_ASKED = [
    PermissionError(13, "Permission denied", "consumequeue/t"),
    OSError(24, "Too many open files"),
    rocketstore.CorruptRecordError(7, "crc"),
    rocketstore.ReadFailedError("the disk does not give it back"),
    rocketstore.StoreFailedError("a sync failed"),
    UnicodeEncodeError("utf-8", "g\ud83d", 1, 2, "surrogates not allowed"),
    MemoryError(),
    KeyError("a fault of the program"),
]


@pytest.mark.parametrize(
    ("call", "error"),
    [("queues", error) for error in CANNOT_BE_ASKED]
    + [(call, CANNOT_BE_ASKED[0]) for call in ("topics", "groups", "stats", "begin_offset")],
    ids=lambda part: part if isinstance(part, str) else type(part).__name__,
)
def test_a_part_that_cannot_be_asked_takes_itself_only(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    call: str,
    error: Exception,
) -> None:
    whole = getattr(rocketstore.Store, call)

    def asked(self: rocketstore.Store, *arguments: str, **named: bool) -> object:
        if self is bad and arguments in ((), ("lost",)):
            raise error
        if isinstance(whole, property):
            return whole.__get__(self)
        return whole(self, *arguments, **named)

    with rocketstore.open(tmp_path / "a") as good, rocketstore.open(tmp_path / "b") as bad:
        for store in (good, bad):
            for topic in ("kept", "lost"):
                store.writer(topic).put_batch([b"x"] * 3)
        replaced = property(asked) if isinstance(whole, property) else asked
        monkeypatch.setattr(rocketstore.Store, call, replaced)
        found = scraped({"good": good, "bad": bad})
    for topic in ("kept", "lost"):
        assert value(found, "messages", store="good", topic=topic) == 3
    assert value(found, "open", store="good") == 1
    assert value(found, "open", store="bad") == 0
    of_topic = call in ("groups", "queues")  # without its offsets a topic has messages, and no lags
    labels = {"topic": "lost"} if of_topic else {}
    told = value(found, "unreadable", store="bad", error=type(error).__name__, **labels)
    assert told == 1
    assert (("messages", frozenset({("store", "bad"), ("topic", "lost")})) in found) == (
        call in ("stats", "begin_offset", "groups")
    )
    if call != "topics":
        assert value(found, "messages", store="bad", topic="kept") == 3
    names_part = "topic 'lost' of store 'bad'" if of_topic else "cannot ask store 'bad'"
    assert names_part in caplog.text and type(error).__name__ in caplog.text


def test_an_error_is_logged_once_until_it_is_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    errors: list[Exception] = [PermissionError(13, "no"), PermissionError(13, "no"), KeyError("x")]

    def topics(self: rocketstore.Store, *, system: bool) -> list[str]:
        raise errors.pop(0)

    with rocketstore.open(tmp_path / "s") as store:
        monkeypatch.setattr(rocketstore.Store, "topics", topics)
        collector = StoreCollector({"s": store})
        logged = []
        for _ in range(3):
            list(collector.collect())
            logged.append(len(caplog.records))
    assert logged == [1, 1, 2]


def test_a_group_with_half_a_surrogate_pair_is_told_by_its_escape(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s") as store:
        store.writer("orders").put_batch([b"x"] * 5)
    offsets = tmp_path / "s" / "config" / "consumerOffset.json"
    offsets.parent.mkdir(exist_ok=True)
    # Of two names that show alike the larger lag is told: one metric twice would end the scrape.
    rows = r'{"orders@g\ud83d":{"0":1},"orders@g\\ud83d":{"0":3}}'
    offsets.write_text('{"offsetTable":' + rows + "}")
    with rocketstore.open(tmp_path / "s", "r") as reader:
        found = scraped({"s\ud83d": reader})
    name = r"s\ud83d"
    assert value(found, "group_lag_messages", store=name, topic="orders", group=r"g\ud83d") == 4
    assert value(found, "open", store=name) == 1


def test_names_that_need_escapes(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s") as store:
        found = scraped({'a "b"\n\\c': store})
    assert value(found, "open", store='a "b"\n\\c') == 1


@pytest.mark.parametrize("stores", [{"a": "path"}, {1: "path"}, "path"])
def test_what_is_no_store_is_refused(stores: dict[str, rocketstore.Store]) -> None:
    with pytest.raises(
        TypeError, match="name of a store|expected an open Store|expected a mapping"
    ):
        StoreCollector(stores)


def test_who_lacks_prometheus_client_hears_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("rocketstore.metrics")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "prometheus_client.core", None)
    with pytest.raises(ModuleNotFoundError) as caught:
        importlib.import_module("rocketstore.metrics")
    assert str(caught.value) == "metrics need prometheus_client: pip install 'rocketstore[metrics]'"


def test_a_scrape_tells_how_far_copies_are(tmp_path: Path) -> None:
    with open_small(tmp_path / "master", replication=Master(listen="127.0.0.1:0")) as master:
        placed = master.writer("orders").put(b"x")
        address = str(master.replication.address)
        with open_small(tmp_path / "copy", replication=Replica(master=address)) as copy:
            wait_until(lambda: [one.lag_bytes for one in master.replication.peers] == [0])
            wait_until(lambda: copy.replication.caught_up)
            peer = master.replication.peers[0].address
            found = scraped({"master": master, "copy": copy})
            for store, other in (("master", peer), ("copy", address)):
                assert value(found, "replication_peers", store=store) == 1
                assert value(found, "replication_lag_bytes", store=store, peer=other) == 0
                assert value(found, "replication_lag_seconds", store=store, peer=other) == 0
                assert value(found, "replication_connections_total", store=store) >= 1
                assert value(found, "replication_bytes_total", store=store) >= placed.end_offset
        wait_until(lambda: not master.replication.peers)
        found = scraped({"master": master})
        assert value(found, "replication_peers", store="master") == 0
        assert "replication_lag_bytes" not in names(found, "master")
        master.writer("orders").put(b"y")
    with open_small(tmp_path / "master") as plain:
        assert not any("replication" in name for name in names(scraped({"s": plain}), "s"))


def test_a_scrape_tells_that_a_copy_stopped(tmp_path: Path) -> None:
    for name in ("master", "other"):
        with open_small(tmp_path / name, replication=Master(listen="127.0.0.1:0")) as master:
            master.writer("orders").put(b"x")
            settings = Replica(master=str(master.replication.address))
            with open_small(tmp_path / "copy", replication=settings) as copy:
                wait_until(lambda: copy.replication.caught_up or copy.replication.error)
                found = scraped({"copy": copy})
                stopped = [key for key in found if key[0] == "replication_stopped"]
                assert [dict(key[1])["error"] for key in stopped] == (
                    ["ReplicationError"] if name == "other" else []
                )
                assert value(found, "open", store="copy") == 1


def test_a_scrape_tells_of_each_process_that_shares_the_store(tmp_path: Path) -> None:
    """One that opened it twice is one; a name may be anything."""
    with open_small(tmp_path / "s") as store:
        assert not any("guest" in name for name in names(scraped({"s": store}), "s"))
        engine_of(store).guests.figures = lambda: (
            GuestFigures(7, "web", 3, 300, 1, 0.5),
            GuestFigures(7, "web", 2, 200, 0, 0.25),
            GuestFigures(8, "\udcff", 1, 100, 0, 2.0),
        )
        found = scraped({"s": store})
    web = {"store": "s", "pid": "7", "process": "web"}
    odd = {"store": "s", "pid": "8", "process": "\\udcff"}
    assert value(found, "guest_put_messages_total", **web) == 5
    assert value(found, "guest_put_bytes_total", **web) == 500
    assert value(found, "guest_in_flight", **web) == 1
    assert value(found, "guest_silent_seconds", **web) == 0.25
    assert value(found, "guest_put_messages_total", **odd) == 1
    assert value(found, "open", store="s") == 1
