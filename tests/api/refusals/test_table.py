"""Each call of the table, with each value: its error, its text, and that nothing was stored or made."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import (
    ConfigError,
    NewMessage,
    RocketStoreError,
    Store,
    StoreConfig,
    encode_frames,
    scan,
    shard_queue_id,
    tools,
)
from tests.api.refusals.table import ROWS, WORDS, Row
from tests.support.small_store import dispatched, open_small

NAMES: dict[str, Any] = {
    "rocketstore": rocketstore,
    "NewMessage": NewMessage,
    "StoreConfig": StoreConfig,
    "encode_frames": encode_frames,
    "scan": scan,
    "shard_queue_id": shard_queue_id,
    "tools": tools,
}


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What the calls of the table say; the store has a message in topic "orders" and one in "t"."""
    with open_small(tmp_path_factory.mktemp("table")) as store:
        store.writer("orders").put(b"x", keys="k")
        store.writer("t").put(b"x", keys="k")
        yield {**NAMES, "store": dispatched(store)}


def cases(rows: tuple[Row, ...]) -> list[Any]:
    found = []
    for row in rows:
        for value in row.values:
            shown = re.sub(r" at 0x[0-9a-f]+", "", ascii(value))[:40]
            for call in row.calls:
                found.append(
                    pytest.param(row, value, call, id=f"{call} - {row.argument} = {shown}")
                )
    return found


def refused(
    row: Row, value: Any, call: str, names: dict[str, Any], said: str
) -> pytest.ExceptionInfo[Exception]:
    store: Store = names["store"]
    queues = Path(store.path) / "consumequeue"
    before = (store.end_offset, sorted(os.listdir(queues)))
    with pytest.raises(row.error, match=said) as caught:
        eval(call, {**names, "x": value})
    assert isinstance(caught.value, RocketStoreError) == issubclass(row.error, RocketStoreError)
    assert (store.end_offset, sorted(os.listdir(queues))) == before
    assert os.listdir() == []
    return caught


@pytest.mark.parametrize(("row", "value", "call"), cases(ROWS))
def test_an_argument_is_named_as_it_was_given(
    names: dict[str, Any],
    row: Row,
    value: Any,
    call: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its name, its value, what is allowed; a wrong option is a ConfigError, which has both, and a
    ValueError."""
    monkeypatch.chdir(tmp_path)
    caught = refused(row, value, call, names, f"^{row.argument} = {re.escape(repr(value))}: ?.")
    assert re.search(row.said, str(caught.value))
    if isinstance(caught.value, ConfigError):
        assert isinstance(caught.value, ValueError)
        assert (caught.value.field, caught.value.value) == (row.argument, value)


@pytest.mark.parametrize(("row", "value", "call"), cases(WORDS))
def test_a_refusal_in_other_words(
    names: dict[str, Any],
    row: Row,
    value: Any,
    call: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(row, value, call, names, row.said)
