"""Services of an open store end before it closes, and once."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import pytest

import rocketstore
from tests.support.small_store import open_small


class Putting:
    """A service that puts one last message when it is stopped."""

    def __init__(self, store: rocketstore.Store, said: list[str], name: str) -> None:
        self.store, self.said, self.name = store, said, name

    def stop(self) -> None:
        self.store.put_message("last", self.name.encode())
        self.said.append(self.name)


class Other(Putting):
    pass


def test_services_stop_newest_first_while_the_store_takes_puts(tmp_path: Path) -> None:
    said: list[str] = []
    store = open_small(tmp_path)
    guests = store._engine.guests
    one = guests.get(Putting, lambda: Putting(store, said, "one"))
    assert guests.get(Putting, lambda: Putting(store, said, "another")) is one
    guests.get(Other, lambda: Other(store, said, "two"))
    store.close()
    store.close()
    assert said == ["two", "one"]
    with open_small(tmp_path, "r") as reader:
        assert [message.body for message in reader.consumer("last")] == [b"two", b"one"]
    with pytest.raises(rocketstore.StoreClosedError, match="Threads cannot begin"):
        guests.get(Threads, lambda: Threads(store))


class Threads:
    """A service whose thread trims until it is stopped."""

    def __init__(self, store: rocketstore.Store) -> None:
        self.store, self.over, self.trims = store, threading.Event(), 0
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        while not self.over.is_set():
            self.store.trim(before_offset=self.store.begin_offset)
            self.trims += 1

    def stop(self) -> None:
        self.over.set()
        self.thread.join()


def test_a_close_waits_for_the_trim_of_a_service(tmp_path: Path) -> None:
    for _ in range(20):
        store = open_small(tmp_path)
        service = store._engine.guests.get(Threads, partial(Threads, store))
        while not service.trims:
            store.put_message("orders", b"x")
        store.close()
        assert not service.thread.is_alive()
