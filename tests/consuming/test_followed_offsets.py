"""Stored offsets of a store that another process writes, as several threads see them."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from rocketstore.consuming import consumer_offsets
from rocketstore.consuming.consumer_offsets import ConsumerOffsets
from rocketstore.consuming.followed_offsets import FollowerOffsets
from rocketstore.log.layout.paths import StoreLayout


def test_a_thread_that_has_read_before_a_commit_takes_none_back(
    layout: StoreLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first thread reads the files before a commit, and waits. The second thread looks after the commit. The
    table that the first thread has read must not replace the newer one."""
    reader, writer = FollowerOffsets(layout), ConsumerOffsets(layout)
    writer.load()
    writer.commit("orders", "billing", {0: 7}, 700, lambda end: None)
    read, goes_on = threading.Event(), threading.Event()
    document_in = consumer_offsets.document_in

    def slow(*given: Any) -> Any:
        found = document_in(*given)
        if threading.current_thread() is first:
            read.set()
            assert goes_on.wait(60)
        return found

    monkeypatch.setattr(consumer_offsets, "document_in", slow)
    first, second = (threading.Thread(target=reader.look) for _ in range(2))
    first.start()
    assert read.wait(60)
    writer.commit("orders", "billing", {0: 8}, 700, lambda end: None)
    second.start()
    second.join(0.2)  # where nothing makes it wait for the first one, it has looked by now
    goes_on.set()
    first.join()
    second.join()
    assert ConsumerOffsets.get(reader, "orders", "billing") == {0: 8}
