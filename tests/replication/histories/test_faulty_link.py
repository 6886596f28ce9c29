"""Each fault of a link is what it says, and a copy gets over it."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.replication.copies import (
    address_of,
    caught_up,
    copy_of,
    open_copy,
    open_master,
    put_some,
    same_log,
)
from tests.replication.histories.faulty_link import FaultyLink
from tests.support.waiting import wait_until

#: Less than a test waits for what must not come, seconds.
SHORT_S = 0.15
TIMES: dict[str, Any] = {
    "heartbeat_every": timedelta(milliseconds=20),
    "silence_limit": timedelta(milliseconds=200),
}


@pytest.fixture
def link(rng: random.Random) -> Iterator[FaultyLink]:
    """Leads to a server that sends back what it gets."""
    server = socket.create_server(("127.0.0.1", 0))

    def echo(sock: socket.socket) -> None:
        with sock:
            while data := sock.recv(1 << 16):
                sock.sendall(data)

    def accept() -> None:
        while True:
            try:
                sock, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=echo, args=(sock,), daemon=True).start()

    thread = threading.Thread(target=accept)
    thread.start()
    with FaultyLink(rng, f"127.0.0.1:{server.getsockname()[1]}") as made:
        yield made
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()


def connected(link: FaultyLink) -> socket.socket:
    host, port = link.address.split(":")
    return socket.create_connection((host, int(port)), 20)


def silent(sock: socket.socket) -> bool:
    sock.settimeout(SHORT_S)
    try:
        return not sock.recv(100) and False
    except TimeoutError:
        return True
    finally:
        sock.settimeout(20)


def test_a_sound_link_passes_everything_on(link: FaultyLink) -> None:
    with connected(link) as sock:
        sock.sendall(b"there and back")
        assert sock.recv(100) == b"there and back"
        sock.shutdown(socket.SHUT_WR)
        assert sock.recv(100) == b""


@pytest.mark.parametrize("way", ["up", "down"])
def test_what_was_held_comes_later(link: FaultyLink, way: str) -> None:
    with connected(link) as sock:
        getattr(link, way).hold()
        sock.sendall(b"late")
        assert silent(sock)
        link.heal()
        assert sock.recv(100) == b"late"


def test_a_partition_accepts_and_says_nothing_not_even_the_end(link: FaultyLink) -> None:
    with connected(link) as before:
        before.sendall(b"x")
        assert before.recv(1) == b"x"
        link.up.hold()
        link.down.hold()
        with connected(link) as sock:
            sock.sendall(b"y")
            before.shutdown(socket.SHUT_WR)
            assert silent(sock)
            assert silent(before)
            link.heal()
            assert sock.recv(1) == b"y"
            assert before.recv(1) == b""


@pytest.mark.parametrize("way", ["up", "down"])
def test_what_was_lost_never_comes_while_the_other_way_goes_on(link: FaultyLink, way: str) -> None:
    with connected(link) as sock:
        getattr(link, way).loses = True
        sock.sendall(b"gone")
        wait_until(lambda: link.counts["bytes lost"] == 4)
        link.heal()
        sock.sendall(b"after it")
        wait_until(lambda: link.counts["bytes lost"] == 12)
        assert silent(sock)
    with connected(link) as sock:
        sock.sendall(b"new")
        assert sock.recv(100) == b"new"


def test_one_bit_is_another_one(link: FaultyLink) -> None:
    with connected(link) as sock:
        link.down.flip()
        sock.sendall(b"\0" * 50)
        assert sum(sock.recv(100)).bit_count() == 1
        sock.sendall(b"\0")
        assert sock.recv(100) == b"\0"


def test_a_connection_ends_after_so_many_bytes(link: FaultyLink) -> None:
    with connected(link) as sock:
        link.down.cut_after(7)
        sock.sendall(b"0123456789")
        got = b""
        while part := sock.recv(100):
            got += part
        assert got == b"0123456"
    with connected(link) as sock:
        sock.sendall(b"whole")
        assert sock.recv(100) == b"whole"


def test_connections_end_when_the_link_leads_elsewhere(link: FaultyLink) -> None:
    with connected(link) as sock:
        sock.sendall(b"x")
        assert sock.recv(1) == b"x"
        link.lead_to(link.target)
        assert sock.recv(1) == b""


# ---- of a copy ----


@pytest.mark.parametrize("fault", ["partition", "up", "down", "slow", "flip", "cut"])
def test_a_copy_gets_over_it(tmp_path: Path, rng: random.Random, fault: str) -> None:
    """It notices by silence, a checksum or the end of the connection, connects again, and has all."""
    with open_master(tmp_path / "m", **TIMES) as master, FaultyLink(rng) as link:
        link.lead_to(address_of(master))
        with open_copy(tmp_path / "c", link.address, **TIMES) as copy:
            put_some(master, 10)
            caught_up(copy, master)
            before = copy.replication.connections
            if fault == "slow":
                link.down.bytes_per_s = 20_000
            elif fault == "flip":
                link.down.flip()
            elif fault == "cut":
                link.down.cut_after(rng.randrange(1, 3000))
            elif fault == "partition":
                link.up.hold()
                link.down.hold()
            else:
                getattr(link, fault).loses = True
            put_some(master, 20)
            if fault != "slow":
                wait_until(lambda: copy.replication.connections > before)
                link.heal()
            caught_up(copy, master)
            assert copy_of(copy).error is None
    same_log(tmp_path / "m", tmp_path / "c")
