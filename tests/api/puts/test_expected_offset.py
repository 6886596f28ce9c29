"""`put(expected_queue_offset=…)`: a message is stored only where it was expected to be."""

from __future__ import annotations

import asyncio
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest

import rocketstore
import rocketstore.aio
from rocketstore.errors import MessageRejectedError, QueueOffsetMismatchError, RocketStoreError
from rocketstore.testing import crash_and_reopen, temporary_store
from tests.support.small_store import SEGMENT, open_still


def test_a_put_gets_the_offset_that_it_expects(store: rocketstore.Store) -> None:
    writer = store.writer("t")
    for number in range(40):  # over several segments
        assert writer.put(bytes(200), expected_queue_offset=number).queue_offset == number
    assert store.begin_offset == 0 and store.end_offset > 2 * SEGMENT


@pytest.mark.parametrize("expected", [0, 1, 3, 2**63 - 1])
def test_another_one_is_refused_and_stores_nothing(expected: int, store: rocketstore.Store) -> None:
    writer = store.writer("t", queue_id=5)
    writer.put_batch([b"a", b"b"])
    end = store.end_offset
    with pytest.raises(QueueOffsetMismatchError) as caught:
        writer.put(b"c", expected_queue_offset=expected)
    error = caught.value
    assert (error.topic, error.queue_id, error.expected, error.actual) == ("t", 5, expected, 2)
    assert f"expected_queue_offset = {expected}" in str(error) and "expect 2" in str(error)
    assert store.end_offset == end
    assert writer.put(b"c", expected_queue_offset=error.actual).queue_offset == 2
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.actual) == (str(error), 2)
    assert isinstance(error, RocketStoreError)


def test_every_kind_of_put_has_it(store: rocketstore.Store) -> None:
    writer = store.writer("t")
    assert writer.submit(b"a", expected_queue_offset=0).result().queue_offset == 0
    assert store.put_message("t", b"b", expected_queue_offset=1).queue_offset == 1
    for put in (writer.submit, writer.put, lambda b, **k: store.put_message("t", b, **k)):
        with pytest.raises(QueueOffsetMismatchError) as caught:
            put(b"c", expected_queue_offset=1)
        assert caught.value.actual == 2
    assert [m.body for m in store.consumer("t")] == [b"a", b"b"]


def test_tasks_have_it_too(tmp_path: Path) -> None:
    async def scene() -> list[bytes]:
        async with rocketstore.aio.open(tmp_path) as store:
            writer = store.writer("t")
            tries = [writer.put(b"%d" % n, expected_queue_offset=0) for n in range(8)]
            done = await asyncio.gather(*tries, return_exceptions=True)
            assert sum(isinstance(one, QueueOffsetMismatchError) for one in done) == 7
            assert (await writer.put(b"next", expected_queue_offset=1)).durability == "disk"
            return [message.body async for message in store.consumer("t")]

    found = asyncio.run(scene())
    assert len(found) == 2 and found[1] == b"next"


def test_who_lost_can_read_what_won(tmp_path: Path) -> None:
    """Else a loop that reads and puts again spins until the disk has the winner."""
    with open_still(tmp_path, "disk") as store:
        writer = store.writer("t")
        writer.put(b"won", durability="memory")
        with pytest.raises(QueueOffsetMismatchError):
            writer.put(b"lost", expected_queue_offset=0, timeout_s=0)
        assert store.visible_offset == 0
        with pytest.raises(QueueOffsetMismatchError):
            writer.put(b"lost", expected_queue_offset=0)
        assert [m.body for m in store.consumer("t").poll()] == [b"won"]


def test_a_task_that_lost_can_read_what_won(tmp_path: Path) -> None:
    async def scene(store: rocketstore.Store) -> None:
        async with rocketstore.aio.attach(store) as of_loop:
            writer = of_loop.writer("t")
            await writer.put(b"won", durability="memory")
            lost = writer.put(b"lost", expected_queue_offset=0)
            behind = await writer.put(b"behind", durability="memory")
            assert behind.queue_offset == 1
            with pytest.raises(QueueOffsetMismatchError):
                await lost
            async with of_loop.consumer("t") as consumer:
                assert [m.body for m in await consumer.poll()][:1] == [b"won"]

    with open_still(tmp_path, "disk") as store:
        asyncio.run(scene(store))


@pytest.mark.store(durability="os")
def test_of_many_threads_one_wins_each_offset(store: rocketstore.Store) -> None:
    """Decided under the append mutex: no offset is given twice, none is left out."""
    won: list[tuple[int, int]] = []

    def compete(writer: rocketstore.Writer, name: int) -> None:
        following = 0
        while following < 200:
            try:
                writer.put(b"%d" % name, expected_queue_offset=following)
            except QueueOffsetMismatchError as error:
                following = error.actual
            else:
                won.append((following, name))
                following += 1

    threads = [
        threading.Thread(target=compete, args=(store.writer("t"), name)) for name in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(offset for offset, _ in won) == list(range(200))
    bodies = [int(m.body) for m in store.consumer("t")]
    assert bodies == [name for _, name in sorted(won)]


def test_it_goes_on_after_a_crash_and_a_trim() -> None:
    with temporary_store() as store:
        writer = store.writer("t")
        for _ in range(20):
            writer.put(bytes(10_000))
        store.flush()
        sum(1 for _ in store.consumer("t"))
        store.trim(before_offset=store.end_offset)
        store = crash_and_reopen(store)
        assert store.min_queue_offset("t", 0) > 0
        assert store.writer("t").put(b"x", expected_queue_offset=20).queue_offset == 20


def test_a_shard_key_names_the_queue(store: rocketstore.Store) -> None:
    writer = store.writer("t", queues=4)
    first = writer.put(b"a", shard_key="ada", expected_queue_offset=0)
    assert writer.put(b"b", shard_key="ada", expected_queue_offset=1).queue_id == first.queue_id
    with pytest.raises(MessageRejectedError, match=r"of which of 4 queues\? Give a shard_key"):
        writer.put(b"c", expected_queue_offset=0)


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [(-1, ValueError), (2**63, ValueError), ("0", TypeError), (0.0, TypeError), (True, TypeError)],
)
def test_wrong_offsets_are_refused(
    wrong: Any, kind: type[Exception], store: rocketstore.Store
) -> None:
    for put in (store.writer("t").put, lambda b, **k: store.put_message("t", b, **k)):
        with pytest.raises(kind, match="expected_queue_offset"):
            put(b"a", expected_queue_offset=wrong)
    assert store.end_offset == 0


def test_the_other_arguments_hold_as_in_a_plain_put(store: rocketstore.Store) -> None:
    writer = store.writer("t", properties={"own": "1"}, tags="w")
    given: dict[str, Any] = {
        "tags": "x", "keys": ["k", "l"], "properties": {"p": "v"}, "flag": 7,
        "born_time": 99, "shard_key": "s",
    }  # fmt: skip
    plain = store.get(writer.put(b"a", **given).physical_offset)
    other = writer.put(b"a", expected_queue_offset=1, durability="disk", timeout_s=5, **given)
    message = store.get(other.physical_offset)
    assert message.properties == plain.properties
    assert (message.flag, message.born_timestamp_ms, message.body) == (7, 99, b"a")
    assert store.get(writer.put(b"b", expected_queue_offset=2).physical_offset).properties == {
        "own": "1",
        "TAGS": "w",
    }
    with pytest.raises(ValueError, match="durability"):
        writer.put(b"c", expected_queue_offset=3, durability="no")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unexpected keyword argument 'nope'"):
        writer.put(b"c", nope=1)  # type: ignore[call-arg]
    assert writer.put(body=b"c").queue_offset == 3
    name = "".join(["expected_", "queue_offset"])  # another text than the compiler's
    assert writer.put(b"d", **{name: 4}).queue_offset == 4  # type: ignore[arg-type]
