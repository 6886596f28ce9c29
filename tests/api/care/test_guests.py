"""Services of an open store end before it closes, and once."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.engine.catch_up import dispatch_for_reader
from rocketstore.log.dispatch import dispatcher
from tests.support.small_store import engine_of, no_dispatch, open_small
from tests.support.waiting import wait_until


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
    guests = engine_of(store).guests
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
        service = engine_of(store).guests.get(Threads, partial(Threads, store))
        while not service.trims:
            store.put_message("orders", b"x")
        store.close()
        assert not service.thread.is_alive()


class Reading:
    """A service whose making reads as long as the store lets it."""

    def __init__(self, store: rocketstore.Store, begun: threading.Event) -> None:
        begun.set()
        while True:
            engine_of(store).reader.bounds("orders", 0)

    def stop(self) -> None:
        raise AssertionError("it was never made")


def test_a_close_ends_the_making_of_a_service(tmp_path: Path) -> None:
    """Whatever is read there; what other threads read meanwhile goes on to the end of the close."""
    store, begun, errors = open_small(tmp_path), threading.Event(), list[BaseException]()
    store.put_message("orders", b"x")

    def make() -> None:
        try:
            engine_of(store).guests.get(Reading, lambda: Reading(store, begun))
        except rocketstore.StoreClosedError as error:
            errors.append(error)

    thread = threading.Thread(target=make)
    thread.start()
    begun.wait()
    store.close()
    thread.join()
    assert len(errors) == 1
    assert not (tmp_path / "abort").exists()


def test_a_close_ends_what_a_service_dispatches_while_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two runs, of a log that may be long and grow."""
    monkeypatch.setattr(dispatcher, "RUN_BYTES", 500)
    store = open_small(tmp_path)
    engine: Any = engine_of(store)
    behind, runs = engine._dispatcher, list[int]()
    closing = threading.Thread(target=store.close)

    def catch_up(target: int, *, once: bool = False, short: bool = False) -> int:
        if not once and not engine._guard.over:
            return 0
        runs.append(dispatcher.Dispatcher.catch_up(behind, target, once=once))
        if len(runs) == 1:
            closing.start()
            wait_until(lambda: engine._guard.ending.begun)
        return runs[-1]

    with no_dispatch(store):
        for _ in range(50):
            store.put_message("orders", b"x" * 100)
        behind.catch_up = catch_up
        make = partial(dispatch_for_reader, behind, "", engine._guard.check_open, store.end_offset)
        with pytest.raises(rocketstore.StoreClosedError):
            engine.guests.get(Threads, make)
        assert 0 < runs[0] < 50 * 100
        assert len(runs) == 1
        closing.join()
