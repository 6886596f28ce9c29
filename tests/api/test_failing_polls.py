"""Polls that fail, and the times that they are given."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from rocketstore.log.reader import Reader
from tests.consumer_setting import Setting


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
