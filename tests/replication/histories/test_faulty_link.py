"""Each fault of a link is what it says, and a copy gets over it; what a peer that lies achieves."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rocketstore import FencedError, ReplicasUnavailableError, ReplicaTimeoutError, Store
from tests.replication.copies import (
    address_of,
    caught_up,
    copy_of,
    open_copy,
    open_master,
    put_some,
    same_log,
    service_of,
)
from tests.replication.histories import liars
from tests.replication.histories.faulty_link import FaultyLink
from tests.replication.histories.liars import (
    BELIEVED_LIES,
    BELIEVED_MASTER_LIES,
    COPY_LIES,
    LATER_TERM,
    MASTER_LIES,
    LyingMaster,
)
from tests.support.small_store import log_bytes
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


KEY = b"a secret of the two ends"
SHORT_TIMES: dict[str, Any] = {
    "heartbeat_every": timedelta(milliseconds=20),
    "silence_limit": timedelta(seconds=5),
}
QUICK = timedelta(milliseconds=100)
#: A liar that was sent away knows it by then, seconds: only a test that fails takes so long.
lie_as_copy = partial(liars.lie_as_copy, patience_s=100)


def put_for_two(master: Store) -> None:
    master.writer("orders").put(b"for two machines", durability="replicas(2)")


@pytest.mark.parametrize("key", [None, KEY], ids=["no key", "key"])
@pytest.mark.parametrize("lie", COPY_LIES)
def test_a_master_sends_a_lying_copy_away(
    tmp_path: Path, rng: random.Random, lie: str, key: bytes | None
) -> None:
    """While it is connected, and afterwards, no put has two machines."""
    with open_master(tmp_path, replica_timeout=QUICK, key=key, **SHORT_TIMES) as master:
        put_some(master, 12)
        wait_until(lambda: master.visible_offset > 1000)
        gone: list[bool] = []
        thread = threading.Thread(
            target=lambda: gone.append(
                lie_as_copy(address_of(master), lie, rng, with_key=key is not None)
            )
        )
        thread.start()
        while thread.is_alive():
            with pytest.raises((ReplicasUnavailableError, ReplicaTimeoutError)):
                put_for_two(master)
        thread.join()
        assert gone == [True]
        wait_until(lambda: not service_of(master).replicas)
        with pytest.raises(ReplicasUnavailableError):
            put_for_two(master)
        if key is not None:
            assert service_of(master).bytes_sent == 0


@pytest.mark.parametrize("lie", BELIEVED_LIES)
def test_with_a_key_nothing_of_a_liar_is_believed(
    tmp_path: Path, rng: random.Random, lie: str
) -> None:
    with open_master(tmp_path, replica_timeout=QUICK, key=KEY, **SHORT_TIMES) as master:
        put_some(master, 5)
        assert lie_as_copy(address_of(master), lie, rng, with_key=True)
        assert lie_as_copy(address_of(master), lie, rng, with_key=False)
        with pytest.raises(ReplicasUnavailableError):
            put_for_two(master)
        assert service_of(master).bytes_sent == 0


def test_without_a_key_an_acknowledgement_is_believed(tmp_path: Path, rng: random.Random) -> None:
    """docs/replication.md says so: it cannot be checked."""
    with open_master(tmp_path, replica_timeout=timedelta(seconds=10), **SHORT_TIMES) as master:
        put_some(master, 5)
        lie = "threw away what it acknowledges"
        thread = threading.Thread(
            target=lie_as_copy, args=(address_of(master), lie, rng), kwargs={"with_key": False}
        )
        thread.start()
        wait_until(lambda: any(one.synced for one in service_of(master).replicas))
        put_for_two(master)
    thread.join()


def test_without_a_key_a_later_term_is_believed(tmp_path: Path, rng: random.Random) -> None:
    with open_master(tmp_path, **SHORT_TIMES) as master:
        put_some(master, 5)
        assert lie_as_copy(address_of(master), "knows a later term", rng, with_key=False)
        with pytest.raises(FencedError, match=f"promoted in term {LATER_TERM}"):
            put_for_two(master)


@pytest.mark.parametrize(
    ("lie", "key"),
    [(lie, key) for lie in MASTER_LIES for key in (None, KEY)]
    + [(lie, KEY) for lie in BELIEVED_MASTER_LIES],
)
def test_a_copy_takes_nothing_of_a_lying_master(
    tmp_path: Path, rng: random.Random, lie: str, key: bytes | None
) -> None:
    """It has not a byte more or less afterwards. Opened again, it follows its master."""
    with (
        open_master(tmp_path / "m", key=key, **SHORT_TIMES) as master,
        LyingMaster(rng, with_key=key is not None, lie=lie) as liar,
        FaultyLink(rng, address_of(master)) as link,
    ):
        settings: dict[str, Any] = {"key": key, **SHORT_TIMES, "silence_limit": QUICK}
        with open_copy(tmp_path / "c", link.address, **settings) as copy:
            put_some(master, 12)
            caught_up(copy, master)
            had = log_bytes(tmp_path / "c").rstrip(b"\0")
            link.lead_to(liar.address)
            wait_until(lambda: liar.told[lie] > 3 or copy.replication.error is not None)
            assert copy.visible_offset == master.visible_offset
            assert not copy.replication.must_open_again
        assert log_bytes(tmp_path / "c").rstrip(b"\0") == had
        with open_copy(tmp_path / "c", link.address, **settings):  # its open asks the liar, too
            pass
        link.lead_to(address_of(master))
        put_some(master, 5)
        with open_copy(tmp_path / "c", link.address, **settings) as copy:
            assert copy.recovery.cut is None
            caught_up(copy, master)
    same_log(tmp_path / "m", tmp_path / "c")


def test_without_a_key_a_promotion_is_believed(tmp_path: Path, rng: random.Random) -> None:
    """What the copy loses by it is in quarantine, and comes again from the true master."""
    lie = "has the copy cut by a promotion"
    with open_master(tmp_path / "m", **SHORT_TIMES) as master:
        with open_copy(tmp_path / "c", master, **SHORT_TIMES) as copy:
            put_some(master, 12)
            caught_up(copy, master)
        with (
            LyingMaster(rng, with_key=False, lie=lie) as liar,
            open_copy(tmp_path / "c", liar.address, **SHORT_TIMES) as copy,
        ):
            assert copy.recovery.cut == (0, master.visible_offset)
            assert copy.recovery.quarantine
        with open_copy(tmp_path / "c", master, **SHORT_TIMES) as copy:
            caught_up(copy, master)
    same_log(tmp_path / "m", tmp_path / "c")
