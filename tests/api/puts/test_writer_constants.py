"""Tags and keys: those of a writer, those of a put, and tags that nobody could ask for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import rocketstore
import rocketstore.aio
from rocketstore import MessageRejectedError, Store
from tests.support.log_records import records
from tests.support.small_store import dispatched, open_small

PLAIN = {"durability": "os", "record_crc": False}


@pytest.mark.parametrize("keys", ["k", ("k", "l"), ["k"]])
@pytest.mark.parametrize("properties", [None, {"region": "eu"}])
def test_a_writers_tags_and_keys_are_those_of_every_put(
    tmp_path: Path, keys: Any, properties: Any
) -> None:
    """The same bytes as of puts that say them, whatever else a put says, and in batches and columns."""
    both: dict[str, Any] = {"tags": "paid", "keys": keys, "properties": properties}
    with open_small(tmp_path / "a", **PLAIN) as store:
        constant = store.writer("orders", **both)
        constant.put(b"1", born_time=1)
        constant.put(b"2", born_time=1, shard_key="s")
        constant.put(b"3", born_time=1, properties={"n": "1"})
        constant.put_batch([b"4", b"5"], born_time=1)
        constant.put_columns(([0, 1, 2], b"67"), born_time=1)
        with_constants = records(store)
    with open_small(tmp_path / "b", **PLAIN) as store:
        plain = store.writer("orders")
        plain.put(b"1", born_time=1, **both)
        plain.put(b"2", born_time=1, shard_key="s", **both)
        more = {**both, "properties": {**(properties or {}), "n": "1"}}
        plain.put(b"3", born_time=1, **more)
        plain.put_batch([b"4", b"5"], born_time=1, **both)
        plain.put_columns(([0, 1, 2], b"67"), born_time=1, **both)
        assert with_constants == records(store)


def test_a_put_goes_before_its_writer(store: Store) -> None:
    """Each of the two alone: tags of its own leave the writer's keys, and the other way round."""
    writer = store.writer("orders", tags="paid", keys=["k"], properties={"region": "eu"})
    writer.put(b"1", tags="open")
    writer.put(b"2", keys="l")
    writer.put(b"3", keys=())
    writer.submit(b"4").result(5)
    dispatched(store)
    found = [(m.tags, m.keys, m.properties["region"]) for m in store.consumer("orders")]
    assert found == [
        ("open", ("k",), "eu"),
        ("paid", ("l",), "eu"),
        ("paid", (), "eu"),
        ("paid", ("k",), "eu"),
    ]
    assert [m.body for m in store.consumer("orders", tags="open")] == [b"1"]
    assert [m.body for m in store.query("orders", "l")] == [b"2"]


def test_keys_of_a_writer_may_come_from_an_iterator(store: Store) -> None:
    writer = store.writer("orders", keys=(key for key in "kl"))  # type: ignore[arg-type]
    for tags in (None, "a", "b"):
        result = writer.put(b"x", tags=tags)
        assert store.get(result.physical_offset).keys == ("k", "l")


def test_what_is_wrong_with_them_is_said_when_the_writer_is_made(store: Store) -> None:
    wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"tags": ""}, MessageRejectedError, "^tags = '': "),
        ({"tags": 5}, TypeError, "^tags = 5: "),
        ({"tags": "a || b"}, MessageRejectedError, "tags"),
        ({"keys": 5}, TypeError, "keys"),
        ({"keys": "a b"}, MessageRejectedError, "blank"),
        ({"keys": ["a", None]}, TypeError, "^keys = None: "),
    ]
    for given, error, said in wrong:
        with pytest.raises(error, match=said):
            store.writer("orders", **given)


def test_a_loops_writer_has_them_too(tmp_path: Path) -> None:
    async def main() -> None:
        async with rocketstore.aio.open(tmp_path / "s") as store:
            writer = store.writer("orders", tags="paid", keys="k")
            for put in (writer.put(b"1"), writer.put_batch([b"2"])):
                message = await store.get((await put).physical_offset)
                assert (message.tags, message.keys) == ("paid", ("k",))

    asyncio.run(main())


@pytest.mark.parametrize(
    "tags", ["a||b", "a || b", "||", "a||", "a|||b", " a", "a ", "a\n", "\ta", "|a || b|"]
)
def test_tags_that_nobody_could_ask_for(tags: str, store: Store) -> None:
    """An expression of a consumer is taken apart at "||", blanks around a tag do not count there. Only
    put_message stores such tags, as a broker may have them."""
    orders = store.writer("orders")
    for put in (
        lambda: orders.put(b"x", tags=tags),
        lambda: orders.put_batch([b"x"], tags=tags),
        lambda: orders.put_columns(([0, 1], b"x"), tags=tags),
        lambda: store.writer("orders", tags=tags),
    ):
        with pytest.raises(MessageRejectedError, match="tags = .*one tag"):
            put()
    assert store.end_offset == 0
    result = store.put_message("orders", b"x", properties={"TAGS": tags})
    assert store.get(result.physical_offset).tags == tags


@pytest.mark.parametrize("tags", ["a", "|", "a|b", "|a|", "a b", "ü", "*"])
def test_other_tags_are_taken(tags: str, store: Store) -> None:
    store.writer("orders").put(b"x", tags=tags)
    dispatched(store)
    assert [m.tags for m in store.consumer("orders", tags=tags)] == [tags]
