"""INNER_MULTI_DISPATCH: one record, several queues."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketstore import ConfigError, MessageRejectedError, PutResult, Store
from tests.made_store import MadeStore
from tests.small_store import dispatched, everything, open_small

LIGHT = {"multi_dispatch_enabled": True, "light_queue_enabled": True}


def put(store: Store, names: str, body: bytes = b"x", queue_id: int = 0) -> PutResult:
    return store.put_message(
        "orders", body, properties={"INNER_MULTI_DISPATCH": names}, queue_id=queue_id
    )


def test_one_record_in_every_listed_queue(tmp_path: Path) -> None:
    with open_small(tmp_path, **LIGHT) as store:
        for n in range(25):
            put(store, "%LMQ%a,%LMQ%b" if n % 2 else "%LMQ%a", b"%d" % n, queue_id=3)
        dispatched(store)
        assert [m.body for m in everything(store, "%LMQ%a")] == [b"%d" % n for n in range(25)]
        assert [m.body for m in everything(store, "%LMQ%b")] == [b"%d" % n for n in range(1, 25, 2)]
        assert [m.body for m in everything(store)] == [b"%d" % n for n in range(25)]
        assert store.queues("%LMQ%a") == [0]
        assert store.queues("orders") == [3]
        assert store.stats().put_messages == 25


def test_the_record_names_its_offsets(tmp_path: Path) -> None:
    with open_small(tmp_path, **LIGHT) as store:
        put(store, "%LMQ%a")
        result = put(store, "%LMQ%b,%LMQ%a")
        properties = store.get(result.physical_offset).properties
        assert properties["INNER_MULTI_QUEUE_OFFSET"] == "0,1"


def test_offsets_go_on_after_an_open(tmp_path: Path) -> None:
    for n in range(3):
        with open_small(tmp_path, **LIGHT) as store:
            put(store, "%LMQ%a", b"%d" % n)
    with open_small(tmp_path, "r") as store:
        assert [m.body for m in everything(store, "%LMQ%a")] == [b"0", b"1", b"2"]


def test_without_light_queues(tmp_path: Path) -> None:
    """The option off: an ordinary property; multi dispatch only: ordinary names only."""
    with open_small(tmp_path / "a") as store:
        put(store, "%LMQ%a")
        assert dispatched(store).topics() == ["orders"]
    with open_small(tmp_path / "b", multi_dispatch_enabled=True) as store:
        with pytest.raises(MessageRejectedError, match="light_queue_enabled"):
            put(store, "%LMQ%a")
        put(store, "other", queue_id=2)
        assert dispatched(store).queues("other") == [2]
    with pytest.raises(ConfigError, match="multi_dispatch_enabled"):
        open_small(tmp_path / "c", light_queue_enabled=True)


@pytest.mark.parametrize("names", ["../x", "a/b", ",", "%LMQ%a,", "%LMQ%" + "x" * 300])
def test_names_that_cannot_be_queues(tmp_path: Path, names: str) -> None:
    with open_small(tmp_path, **LIGHT) as store:
        with pytest.raises(MessageRejectedError):
            put(store, names)
        assert store.end_offset == 0


def test_too_many_names(tmp_path: Path) -> None:
    with open_small(tmp_path, commit_log_file_size_bytes=1 << 16, **LIGHT) as store:
        with pytest.raises(MessageRejectedError, match="257 queues"):
            put(store, ",".join(f"%LMQ%{n}" for n in range(257)))
        assert store.end_offset == 0


@pytest.mark.parametrize("first", [9, 10, 11, 20])
def test_made_again_where_the_log_was_trimmed(tmp_path: Path, first: int) -> None:
    """Queue files have ten units: the first message that is left stands at the begin of one, or not."""
    made = MadeStore(tmp_path)
    for n in range(first, first + 15):
        names = {"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": str(n)}
        made.put(body=b"%d" % n, properties=names)
    with open_small(tmp_path, **LIGHT) as store:
        found = [(m.body, m.queue_id) for m in everything(store, "%LMQ%a")]
        assert found == [(b"%d" % n, 0) for n in range(first, first + 15)]
        assert store.min_queue_offset("%LMQ%a", 0) == first
