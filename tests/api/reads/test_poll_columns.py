"""`Consumer.poll_columns`: what `poll` gives, as columns."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rocketstore
from rocketstore import CorruptRecordError, Store
from rocketstore.consuming import column_poll
from tests.support.column_tools import TOPICS, fill_at_random, row_of, rows_of


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with rocketstore.open(tmp_path / "s", commit_log_file_size_bytes=1 << 20) as opened:
        yield opened


def put(store: Store, count: int) -> None:
    writer = store.writer("t", queue_id=0)
    for number in range(count):
        writer.put(b"%03d" % number)


def offsets(columns: rocketstore.Columns) -> list[int]:
    found: list[int] = columns["queue_offset"].tolist()
    return found


def test_columns_say_what_the_messages_say(tmp_path: Path, rng: random.Random) -> None:
    """Every column, over topics, queues, segments, batches and hosts; a queue at a time."""
    fill_at_random(tmp_path, rng, 600)
    with rocketstore.open(tmp_path, "r") as store:
        for topic in TOPICS:
            expected: dict[int, list[dict[str, Any]]] = {}
            for message in store.consumer(topic):
                expected.setdefault(message.queue_id, []).append(row_of(message))
            consumer, most = store.consumer(topic), rng.randrange(1, 60)
            found: dict[int, list[dict[str, Any]]] = {}
            while (columns := consumer.poll_columns(most)).rows:
                rows = rows_of([columns])
                assert len(rows) == columns.rows <= most
                (queue_id,) = {row["queue_id"] for row in rows}
                found.setdefault(queue_id, []).extend(rows)
                assert columns.begin_offset == rows[0]["physical_offset"]
                assert columns.end_offset == rows[-1]["physical_offset"] + rows[-1]["size"]
            assert found == expected


def test_positions_commits_and_other_calls_go_together(store: Store) -> None:
    put(store, 10)
    with store.consumer("t", group="g") as consumer:
        assert offsets(consumer.poll_columns(3)) == [0, 1, 2]
        assert [message.queue_offset for message in consumer.poll(2)] == [3, 4]
        next(consumer)
        # What iterating has fetched is handed out first.
        assert offsets(consumer.poll_columns(2)) == [6, 7]
        assert consumer.commit() == {0: 8}
    with store.consumer("t", group="g") as consumer:
        assert offsets(consumer.poll_columns(columns=["queue_offset"])) == [8, 9]
        none = consumer.poll_columns(timeout_s=0.01)
        assert (none.rows, none.begin_offset, none.end_offset) == (0, 0, 0)
        assert none["body"].tolist() == []


def test_columns_equal_themselves_alone(store: Store) -> None:
    put(store, 3)
    one, other = (store.consumer("t").poll_columns(columns=["queue_offset"]) for _ in range(2))
    assert one.rows == other.rows > 1
    assert one == one and one != other and one != {}
    assert len({one, other}) == 2 and [other, one].index(one) == 1


def test_only_wanted_columns_and_tags(store: Store) -> None:
    writer = store.writer("t", queue_id=0)
    for number in range(6):
        writer.put(b"%d" % number, tags="even" if number % 2 == 0 else "odd")
    consumer = store.consumer("t", tags="odd")
    columns = consumer.poll_columns(columns=["body", "queue_offset"])
    assert list(columns) == ["body", "queue_offset"]
    again = iter(["queue_offset"])  # any iterable, looked at once
    assert list(consumer.poll_columns(columns=again)) == ["queue_offset"]
    assert columns["body"].tolist() == [b"1", b"3", b"5"]
    assert columns["queue_offset"].dtype == np.int64


def test_records_beyond_the_limit_of_bytes_stay_for_the_next_call(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, 5)
    size = store.get(0).size
    monkeypatch.setattr(column_poll, "POLL_BYTES_MAX", 2 * size)
    consumer, counts = store.consumer("t"), []
    while (columns := consumer.poll_columns()).rows:
        counts.append(columns.rows)
    assert counts == [2, 2, 1]
    monkeypatch.setattr(column_poll, "POLL_BYTES_MAX", 1)
    consumer.seek("earliest")
    assert consumer.poll_columns().rows == 1  # one at least


def test_nothing_counts_as_handed_out_that_could_not_be_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, 5)
    consumer = store.consumer("t")
    consumer.poll_columns(2)

    def failing(*_: object) -> dict[str, Any]:
        raise rocketstore.ReadFailedError("the log", "bytes")

    monkeypatch.setattr(column_poll, "columns_of", failing)
    with pytest.raises(rocketstore.ReadFailedError):
        consumer.poll_columns(2)
    assert consumer.positions == {0: 2}
    monkeypatch.undo()
    assert offsets(consumer.poll_columns(2)) == [2, 3]


@pytest.mark.parametrize("most", [0, -1, 65537])
def test_too_few_or_too_many_are_refused(store: Store, most: int) -> None:
    with pytest.raises(ValueError, match="max_messages = .*: 1 … 65536"):
        store.consumer("t").poll_columns(most)


@pytest.mark.parametrize(
    ("columns", "error"),
    [(["bodies"], ValueError), (["body_view"], ValueError), ("body", TypeError)],
)
def test_columns_that_are_not_there_are_refused(
    store: Store, columns: Any, error: type[Exception]
) -> None:
    with pytest.raises(error, match=str(columns[0])):
        store.consumer("t").poll_columns(columns=columns)


def test_views_of_bodies_are_refused_with_the_reason(store: Store) -> None:
    with pytest.raises(ValueError, match=r"body_view.*only a scan has it.*rocketstore\.scan"):
        store.consumer("t").poll_columns(columns=["queue_offset", "body_view"])


def test_damage_is_an_error_behind_what_is_sound(store: Store, tmp_path: Path) -> None:
    put(store, 4)
    size = store.get(0).size
    store.close()
    (segment,) = (tmp_path / "s" / "commitlog").iterdir()
    with segment.open("r+b") as file:
        file.seek(2 * size + size // 2)
        byte = file.read(1)[0]
        file.seek(2 * size + size // 2)
        file.write(bytes([byte ^ 1]))
    with rocketstore.open(tmp_path / "s", "r") as reopened:
        consumer = reopened.consumer("t")
        rows = [consumer.poll_columns(4).rows]
        with pytest.raises(CorruptRecordError):
            while rows[-1]:
                rows.append(consumer.poll_columns(4).rows)
        assert sum(rows) == 2
        assert consumer.positions == {0: 2}
        consumer.seek(3, queue_id=0)
        assert offsets(consumer.poll_columns(4)) == [3]
