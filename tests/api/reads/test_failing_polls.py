"""Polls that fail, and the times that they are given."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from rocketstore import Consumer, Message
from rocketstore.consuming import cursors as queue_cursors
from rocketstore.log.read.reader import Reader
from tests.support.consumer_setting import Setting
from tests.support.striking import at_each_line


def test_the_longest_and_the_wrong_timeouts(setting: Setting) -> None:
    setting.made.fill(1)
    consumer = setting.consumer(queue_id=0)
    assert consumer.poll(timeout_s=float("inf"))
    assert next(setting.consumer(queue_id=0).follow(timeout_s=float("inf")))
    with pytest.raises(ValueError, match="timeout_s = nan"):
        setting.consumer(offset="latest").poll(timeout_s=float("nan"))


def test_a_poll_that_fails_behind_messages(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has goes out, and the error with the next poll, whatever the other queue has by then."""
    setting.made.fill(10, queue_id=0)
    setting.made.fill(10, queue_id=1)
    consumer, fetch = setting.consumer(), Reader.fetch

    def fail(self: Any, topic: str, queue_id: int, *rest: Any) -> Any:
        if queue_id == 0:
            raise OSError(errno.EMFILE, "Too many open files")
        return fetch(self, topic, queue_id, *rest)

    seen = consumer.poll(4)
    monkeypatch.setattr(Reader, "fetch", fail)
    failed = 0
    for _ in range(6):
        setting.made.fill(5, queue_id=1)
        try:
            seen += consumer.poll()
        except OSError:
            failed += 1
    assert failed >= 2
    monkeypatch.undo()
    consumer.seek(2, queue_id=0)
    while batch := consumer.poll():
        seen += batch
    assert [m.queue_offset for m in seen if m.queue_id == 0] == list(range(10))
    assert [m.queue_offset for m in seen if m.queue_id == 1] == list(range(40))


def in_turns(consumer: Consumer) -> list[Message]:
    return consumer.poll(30)


def one_by_one(consumer: Consumer) -> list[Message]:
    return [next(consumer)]


@pytest.mark.parametrize("call", [in_turns, one_by_one])
def test_ctrl_c_at_any_line_of_a_poll(
    setting: Setting, call: Callable[[Consumer], list[Message]]
) -> None:
    """What no caller got comes again: a commit behind Ctrl-C must not step over it."""
    for queue_id in range(3):
        setting.made.fill(4, queue_id=queue_id)

    polling = False

    def ctrl_c() -> None:
        if polling:
            raise KeyboardInterrupt

    def work() -> None:
        nonlocal polling
        consumer = setting.consumer()
        seen = consumer.poll(5)
        try:
            polling = True
            seen += call(consumer)
        except KeyboardInterrupt:
            assert sum(consumer.positions.values()) == len(seen)
        finally:
            polling = False
        seen += list(consumer)
        assert sorted((m.queue_id, m.queue_offset) for m in seen) == [
            (queue_id, offset) for queue_id in range(3) for offset in range(4)
        ]

    assert at_each_line(queue_cursors, work, ctrl_c) > 30


def test_an_error_behind_a_full_batch(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """The look at what follows may fail, too, by the limit of descriptors for one; the batch is not lost."""
    setting.made.fill(10)
    consumer, run_from = setting.consumer(queue_id=0), Reader.run_from

    def fail(self: Reader, *where: Any) -> Any:
        monkeypatch.setattr(Reader, "run_from", run_from)
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(Reader, "run_from", fail)
    with pytest.raises(OSError, match="Too many open files"):
        consumer.poll(4)
    assert consumer.positions == {0: 0}
    assert [m.queue_offset for m in consumer] == list(range(10))
