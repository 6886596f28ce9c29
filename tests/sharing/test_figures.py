"""Which processes share a store: for the host, its guests, and a process that does neither."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import rocketstore
from rocketstore.sharing.meeting import process_state
from rocketstore.tools import guests_of
from tests.process.other_process import SMALL, other_process
from tests.support.waiting import wait_until

#: Puts two messages as a guest, and stays.
GUEST = """
store = rocketstore.open(path, shared="guest")
store.writer("orders").put_batch([b"one", b"two"])
say("put")
told()
store.close()
say("closed")
told()
"""

#: Holds the store.
HOST = """
store = rocketstore.open(path, shared="host", **options)
say("open")
told()
store.close()
say("closed")
told()
"""


def test_host_guests_and_others_see_who_shares_the_store(tmp_path: Path) -> None:
    with (
        rocketstore.open(tmp_path, shared=True, **SMALL) as host,
        rocketstore.open(tmp_path, shared=True) as same,
        rocketstore.open(tmp_path, "r") as reader,
        other_process(GUEST, tmp_path) as other,
    ):
        assert other.line() == "put"
        for store in (host, same):
            wait_until(lambda store=store: len(store.stats().guests) == 2)  # its host may be slow
            figures = store.stats()
            assert figures.host_pid == os.getpid()
            assert [one.pid for one in figures.guests] == [os.getpid(), other.pid]
            theirs = figures.guests[1]
            assert theirs.puts == 2 and theirs.bytes > len(b"onetwo") and theirs.in_flight == 0
            assert theirs.name == Path(f"/proc/{other.pid}/comm").read_text().strip()
            assert theirs.heard_s >= 0
        assert (reader.stats().host_pid, reader.stats().guests) == (os.getpid(), ())
        command = "from rocketstore.tools import guests_of; print([g.pid for g in guests_of('.')])"
        said = subprocess.check_output([sys.executable, "-c", command], cwd=tmp_path)
        assert json.loads(said) == [os.getpid(), other.pid]  # without itself
        other.hears()
        assert other.line() == "closed"
        wait_until(lambda: [one.pid for one in host.stats().guests] == [os.getpid()])


def test_a_store_that_nobody_shares_has_no_guests(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path, **SMALL) as store:
        assert (store.stats().host_pid, store.stats().guests) == (os.getpid(), ())
        assert guests_of(tmp_path) == ()
        with rocketstore.open(tmp_path, "r") as reader:
            assert reader.stats().host_pid == os.getpid()
    with rocketstore.open(tmp_path, "r") as reader:
        assert reader.stats().host_pid == 0
    assert guests_of(tmp_path) == guests_of(tmp_path / "none") == ()


def test_figures_of_a_guest_whose_host_does_not_answer(tmp_path: Path) -> None:
    """Its own go on."""
    with other_process(HOST, tmp_path) as host:
        assert host.line() == "open"
        with rocketstore.open(tmp_path, shared="guest") as store:
            wait_until(lambda: len(store.stats().guests) == 1)
            host.process.send_signal(signal.SIGSTOP)
            wait_until(lambda: process_state(host.pid) == "stopped")
            try:
                assert (store.stats().host_pid, store.stats().guests) == (host.pid, ())
                assert guests_of(tmp_path) == ()
            finally:
                host.process.send_signal(signal.SIGCONT)
            wait_until(lambda: len(store.stats().guests) == 1)
        host.hears()
        assert host.line() == "closed"


def test_the_command_stat_shows_them(tmp_path: Path) -> None:
    pytest.importorskip("rich")
    with (
        rocketstore.open(tmp_path, shared=True, **SMALL),
        rocketstore.open(tmp_path, shared="guest") as guest,
    ):
        guest.writer("orders").put(b"one")
        command = [sys.executable, "-m", "rocketstore", "stat", str(tmp_path)]
        found = json.loads(subprocess.check_output([*command, "--json"]))["sharing"]
        assert found["host_pid"] == os.getpid()
        (mine,) = found["guests"]
        assert (mine["pid"], mine["puts"]) == (os.getpid(), 1)
        lines = subprocess.check_output(command, text=True).splitlines()
        assert f"open for writing in process {os.getpid()}" in lines
        (row,) = [line.split() for line in lines if f" {os.getpid()} " in line]
        assert row[:3] == [mine["name"], str(os.getpid()), "1"]
    found = json.loads(subprocess.check_output([*command, "--json"]))["sharing"]
    assert found == {"host_pid": 0, "guests": []}
