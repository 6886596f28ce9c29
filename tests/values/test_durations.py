"""Spans of time: seconds or a timedelta, wherever a public function takes one."""

from __future__ import annotations

import ast
import asyncio
import datetime
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
import rocketstore.aio
from rocketstore import NewMessage, Retention
from rocketstore.replication import Master, Replica
from rocketstore.testing import ManualClock
from rocketstore.values.arguments import YEAR_S, seconds
from rocketstore.values.timestamps import duration_of
from tests.structure.public_api import exported, find, members, signature
from tests.support.small_store import open_small

SPANS = (0.25, datetime.timedelta(milliseconds=250))
#: What takes a point in time, and a timedelta for one from now: a number is milliseconds since 1970.
MOMENTS = {"when: Timestamp | datetime.timedelta"}


def parameters() -> Iterator[tuple[str, str]]:
    """Places and annotated parameters, and fields of what an open takes, by their sources."""
    modules = [("rocketstore", name) for name in exported()]
    modules += [("rocketstore.testing", "ManualClock")]
    modules += [("rocketstore.replication", name) for name in ("Master", "Replica")]
    faces = {"consumer": "Consumer", "store": "Store", "store_transaction": "StoreTransaction"}
    modules += [(f"rocketstore.aio.{module}", name) for module, name in faces.items()]
    modules += [("rocketstore.aio.writer", "Writer"), ("rocketstore.aio.open_store", "open_store")]
    for place, name in modules:
        module, node = find(place, name)
        texts = {"": signature(node)} if isinstance(node, ast.FunctionDef) else {}
        texts = members(module, node) if isinstance(node, ast.ClassDef) else texts
        for member, text in texts.items():
            if member == "__init__":
                continue  # users make none of these
            if "(" in text.split(" = ")[0]:
                for found in re.findall(r"\b(\w+: [^=,()]+)", text.rpartition(" -> ")[0]):
                    yield f"{name}.{member}", found
            elif name in ("Retention", "Master", "Replica", "NewMessage"):
                yield f"{name}.{member}", f"{member}{text.split(' = ')[0]}"


def test_every_public_span_takes_both() -> None:
    found = [*parameters()]
    spans = [(place, text) for place, text in found if re.search(r"\bDuration\b", text)]
    names = {text.split(":")[0] for _, text in spans}
    assert {"timeout_s", "wait_s", "deliver_after", "every", "grace", "max_age"} < names
    assert len(spans) > 40
    one_kind = [
        (place, text)
        for place, text in found
        if (re.match(r"\w+_s: .*float", text) or "timedelta" in text) and text not in MOMENTS
    ]
    assert one_kind == []


@pytest.mark.parametrize("span", SPANS, ids=repr)
def test_a_span_means_the_same_in_each_call(tmp_path: Path, span: Any) -> None:
    clock = ManualClock()
    clock.advance(span)
    began = clock.now_ms()
    rule = Retention(max_age=span, check_every=span)
    with open_small(tmp_path / "s", clock=clock, wait_s=span, retention=rule) as store:
        assert store.retention.plan()
        writer = store.writer("t")
        writer.put(b"now")
        due = [
            writer.put(b"x", deliver_after=span),
            writer.submit(b"x", deliver_after=span).result(),
        ]
        due += [store.put_message("t", b"x", deliver_after=span)]
        with store.transaction() as tx:
            tx.put("t", b"x", deliver_after=span)
            tx.put_batch([NewMessage("t", b"x", deliver_after=span)])
        due += tx.results
        times = [result.due_time for result in due]
        assert times == [rocketstore_time(began + 250)] * 5
        store.delayed.repeat("t", b"x", span, unique_id="again")
        assert store.delayed.get("again").every == "ms 250"
        consumer = store.consumer("none")
        assert consumer.poll(timeout_s=span) == [] == [*consumer.follow(span)]
        store.flush(span)
        store.compact("t", into=tmp_path / "new", grace=span)
        store.transactions.check_back(lambda _: None, immunity_s=span, interval_s=span)

        async def tasks() -> None:
            loop = rocketstore.aio.attach(store)
            await loop.flush(span)
            assert await loop.consumer("none").poll(timeout_s=span) == []
            await loop.writer("t").put(b"x", deliver_after=span)

        asyncio.run(tasks())
    Master(listen="127.0.0.1:0", heartbeat_every=span, replica_timeout=span)
    Replica(master="127.0.0.1:1", reconnect_every=span, silence_limit=span)


def rocketstore_time(ms: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC)


def test_what_is_no_span() -> None:
    assert seconds("s", datetime.timedelta.max) == seconds("s", float("inf")) == YEAR_S
    assert duration_of("s", 1.5) == datetime.timedelta(milliseconds=1500)
    refused = (
        ("1", TypeError),
        (None, TypeError),
        (True, TypeError),
        (float("nan"), ValueError),
        (10**400, ValueError),
    )
    for value, error in refused:
        for function in (seconds, duration_of):
            with pytest.raises(error, match="s( = |: it is too large)"):
                function("s", value)
    with pytest.raises(ValueError, match="s = inf: at most"):
        duration_of("s", float("inf"))
