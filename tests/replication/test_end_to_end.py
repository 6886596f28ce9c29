"""Our master to our copies: identity, keys, cuts, promotion, fences."""

from __future__ import annotations

import random
import re
import shutil
import ssl
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from rocketstore import (
    ConfigError,
    DivergedError,
    FencedError,
    ReplicaStoreError,
    ReplicasUnavailableError,
    RocketStoreError,
)
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.replication import promote
from rocketstore.replication.protocol.epochs import with_promotion
from rocketstore.replication.protocol.session import Identity
from rocketstore.replication.replica.service import MustOpenAgainError
from rocketstore.replication.role.state import load_state
from rocketstore.tools import verify
from tests.replication.certificates import contexts
from tests.replication.copies import (
    Peer,
    address_of,
    caught_up,
    copy_of,
    counted,
    open_copy,
    open_master,
    put_some,
    same_log,
    service_of,
)
from tests.replication.cutting_proxy import CuttingProxy
from tests.replication.ends import Log
from tests.support.small_store import SMALL, dispatched, everything, open_small
from tests.support.waiting import PATIENCE_S, wait_until

KEY = b"a key of 16 bytes or more"
SHAPE = {"index_slots": SMALL["index_slots"], "index_entries": SMALL["index_entries"]}


def test_copy_is_byte_for_byte_the_master(tmp_path: Path) -> None:
    with open_master(tmp_path / "m") as master:
        put_some(master)
        with open_copy(tmp_path / "c", master) as copy:
            put_some(master)
            caught_up(copy, master)
            assert [m.body for m in everything(copy)] == [m.body for m in everything(master)]
            assert [len(copy.query("orders", "key7"))] == [2]
    same_log(tmp_path / "m", tmp_path / "c")
    assert verify(tmp_path / "c", **SHAPE).faults == ()


def test_copy_goes_on_after_restarts_of_both(tmp_path: Path) -> None:
    for _ in range(3):
        with open_master(tmp_path / "m") as master, open_copy(tmp_path / "c", master) as copy:
            put_some(master, 10)
            caught_up(copy, master)
    same_log(tmp_path / "m", tmp_path / "c")
    states = [load_state(StoreLayout(tmp_path / name)) for name in "mc"]
    assert states[0] is not None
    assert states[1] is not None
    assert states[0].store_id == states[1].store_id
    assert states[0].epochs == states[1].epochs


def test_copy_takes_no_puts(tmp_path: Path) -> None:
    with open_master(tmp_path / "m") as master, open_copy(tmp_path / "c", master) as copy:
        for put in (
            lambda: copy.writer("orders"),
            lambda: copy.put_message("orders", b"x"),
            copy.transaction,
            lambda: copy.trim(before_offset=0),
        ):
            with pytest.raises(ReplicaStoreError, match="is a copy of"):
                put()
    with pytest.raises(ReplicaStoreError, match="rocketstore promote"):
        open_small(tmp_path / "c")


def test_promise_of_two_machines(tmp_path: Path) -> None:
    with open_master(tmp_path / "m") as master:
        writer = master.writer("orders")
        with pytest.raises(ReplicasUnavailableError):
            writer.put(b"alone", durability="replicas(2)")
        with open_copy(tmp_path / "c", master):
            counted(master)
            result = writer.put(b"two", durability="replicas(2)")
            [peer] = master.replication.peers
            assert peer.synced >= result.end_offset


def test_empty_copy_begins_where_a_trimmed_master_does(tmp_path: Path) -> None:
    with open_master(tmp_path / "m") as master:
        put_some(master, 60)
        dispatched(master).flush()
        begin = master.trim(before_offset=9000)
        assert begin > 0
        with open_copy(tmp_path / "c", master) as copy:
            caught_up(copy, master)
            assert copy.begin_offset == begin
            assert [m.body for m in everything(copy)] == [m.body for m in everything(master)]
    same_log(tmp_path / "m", tmp_path / "c")


def test_copy_with_files_of_another_size_goes_no_further(tmp_path: Path) -> None:
    """Before a put counts it as a replica; with the right size the same directory follows."""
    other = {"commit_log_file_size_bytes": 2 * SMALL["commit_log_file_size_bytes"]}
    with open_master(tmp_path / "m") as master:
        with open_copy(tmp_path / "c", master, other) as copy:
            wait_until(lambda: copy_of(copy).error is not None)
            said = str(copy_of(copy).error)
            assert f"commit_log_file_size_bytes={SMALL['commit_log_file_size_bytes']}" in said
            assert str(other["commit_log_file_size_bytes"]) in said
            with pytest.raises(ReplicasUnavailableError):
                master.writer("orders").put(b"alone", durability="replicas(2)")
        with open_copy(tmp_path / "c", master) as copy:
            caught_up(copy, master)


# ---- keys and TLS ----


def test_copy_with_the_key_follows(tmp_path: Path) -> None:
    with open_master(tmp_path / "m", key=KEY) as master:
        put_some(master)
        with open_copy(tmp_path / "c", master, key=KEY) as copy:
            caught_up(copy, master)


@pytest.mark.parametrize("key", [None, b"another key of 16 bytes"])
def test_copy_without_the_key_gets_nothing(tmp_path: Path, key: bytes | None) -> None:
    with open_master(tmp_path / "m", key=KEY) as master:
        put_some(master)
        with open_copy(tmp_path / "c", master, key=key) as copy:
            wait_until(lambda: copy_of(copy).last_error is not None)
            assert "key" in str(copy_of(copy).last_error)
            assert copy.visible_offset == 0
            assert service_of(master).bytes_sent == 0


def test_copy_follows_through_tls(tmp_path: Path, certificate: Path) -> None:
    server, client = contexts(certificate)
    with open_master(tmp_path / "m", tls=server, key=KEY) as master:
        put_some(master)
        with open_copy(tmp_path / "c", master, tls=client, key=KEY) as copy:
            put_some(master)
            caught_up(copy, master)
    same_log(tmp_path / "m", tmp_path / "c")


def test_client_without_a_certificate_gets_nothing(tmp_path: Path, certificate: Path) -> None:
    server, _ = contexts(certificate)
    plain = ssl.create_default_context(cafile=str(certificate))
    with open_master(tmp_path / "m", tls=server) as master:
        put_some(master)
        for tls in (plain, None):
            with open_copy(tmp_path / f"c{tls is None}", master, tls=tls) as copy:
                wait_until(lambda copy=copy: copy_of(copy).last_error is not None)
                assert str(copy_of(copy).last_error)
                assert copy.visible_offset == 0
                said = "return a certificate" if tls else "no TLS: wrong version number"
                wait_until(lambda said=said: re.search(said, str(service_of(master).last_error)))


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"listen": "0.0.0.0:0"}, "loopback"),
        ({"listen": "example.org:0"}, "loopback"),
        ({"key": b"short"}, "16 bytes"),
        ({"protocol": "rocketmq", "key": KEY}, "rocketmq"),
        ({"protocol": "raft"}, "protocol"),
        ({"heartbeat_every": timedelta(0)}, "heartbeat_every"),
    ],
)
def test_settings_that_contradict_each_other(
    tmp_path: Path, settings: dict[str, object], names: str
) -> None:
    with pytest.raises(ConfigError, match=names):
        open_master(tmp_path / "m", **settings)
    assert not (tmp_path / "m").exists()


# ---- histories ----


def _lost_tail(tmp_path: Path) -> None:
    """A master that has less than its copy: its disk was set back, and it went on."""
    with open_master(tmp_path / "m") as master:
        put_some(master, 20)
        with open_copy(tmp_path / "c", master) as copy:
            caught_up(copy, master)
    shutil.copytree(tmp_path / "m", tmp_path / "old")
    with open_master(tmp_path / "m") as master, open_copy(tmp_path / "c", master) as copy:
        put_some(master, 9)
        caught_up(copy, master)
    shutil.rmtree(tmp_path / "m")
    shutil.move(tmp_path / "old", tmp_path / "m")


def test_copy_of_a_master_that_lost_its_tail_is_cut(tmp_path: Path) -> None:
    """What is cut goes to quarantine, and what the master put instead takes its place."""
    _lost_tail(tmp_path)
    with open_master(tmp_path / "m") as master:
        end = master.visible_offset
        master.writer("orders", queue_id=1).put(b"instead")
        with open_copy(tmp_path / "c", master) as copy:
            assert copy.recovery.end == end
            assert copy.recovery.cut is not None
            assert copy.recovery.quarantine
            caught_up(copy, master)
            assert [m.body for m in everything(copy)] == [m.body for m in everything(master)]
    same_log(tmp_path / "m", tmp_path / "c")
    assert verify(tmp_path / "c", **SHAPE).faults == ()


def test_open_copy_is_cut_at_its_next_open(tmp_path: Path) -> None:
    """Readers of an open store hold messages: it stops instead, and says what is to be done."""
    _lost_tail(tmp_path)
    with open_master(tmp_path / "m") as master:
        master.writer("orders").put(b"instead")
        with open_copy(tmp_path / "c", "127.0.0.1:9") as copy:
            before = copy.visible_offset
            copy_of(copy).settings = _replaced(copy_of(copy).settings, address_of(master))
            wait_until(lambda: copy_of(copy).error is not None)
            assert isinstance(copy_of(copy).error, MustOpenAgainError)
            assert copy.visible_offset == before
        with open_copy(tmp_path / "c", master) as copy:
            caught_up(copy, master)
    same_log(tmp_path / "m", tmp_path / "c")


def _replaced(settings, address: str):  # type: ignore[no-untyped-def]
    import dataclasses

    return dataclasses.replace(settings, master=address)


def test_copy_with_other_bytes_stops(tmp_path: Path) -> None:
    """Of one history: no open notices the byte, further up than what it compares."""
    with open_master(tmp_path / "m") as master, open_copy(tmp_path / "c", master) as copy:
        put_some(master, 60)
        caught_up(copy, master)
    segment = min((tmp_path / "c" / "commitlog").iterdir())
    data = segment.read_bytes()
    at = data.index(b"xxxx")
    segment.write_bytes(data[:at] + b"y" + data[at + 1 :])
    with open_master(tmp_path / "m") as master:
        put_some(master, 2)
        with open_copy(tmp_path / "c", master) as copy:
            wait_until(lambda: copy_of(copy).error is not None)
            assert isinstance(copy_of(copy).error, DivergedError)
            assert service_of(master).bytes_sent == 0


def test_copy_of_another_store_stops(tmp_path: Path) -> None:
    for name in "mn":
        with (
            open_master(tmp_path / name) as master,
            open_copy(tmp_path / f"c{name}", master) as copy,
        ):
            put_some(master, 5)
            caught_up(copy, master)
    with open_master(tmp_path / "m") as master, open_copy(tmp_path / "cn", master) as copy:
        wait_until(lambda: copy_of(copy).error is not None)
        assert "different stores" in str(copy_of(copy).error)
        assert service_of(master).bytes_sent == 0


def test_old_master_is_fenced_and_follows(tmp_path: Path) -> None:
    """No put is lost in silence: what the old master took after the promotion is in quarantine."""
    with open_master(tmp_path / "m") as master, open_copy(tmp_path / "c", master) as copy:
        put_some(master, 20)
        caught_up(copy, master)
    assert promote(tmp_path / "c").term == 2
    with open_master(tmp_path / "c") as new, open_copy(tmp_path / "d", new) as follower:
        put_some(new, 5)
        caught_up(follower, new)
    with open_master(tmp_path / "m") as old:
        old.writer("orders").put(b"taken: nobody has told it")
        with open_copy(tmp_path / "d", old) as follower:
            wait_until(lambda: load_state(StoreLayout(tmp_path / "m")).fenced_by == 2)  # type: ignore[union-attr]
            with pytest.raises(FencedError, match="promoted in term 2"):
                old.writer("orders").put(b"refused")
            wait_until(lambda: "promoted in term 2" in str(copy_of(follower).last_error))
    with pytest.raises(FencedError, match="promoted in term 2"):
        open_master(tmp_path / "m")
    with open_master(tmp_path / "c") as new, open_copy(tmp_path / "m", new) as old:
        caught_up(old, new)
        [kept] = old.recovery.quarantine
        assert b"taken: nobody has told it" in b"".join(
            path.read_bytes() for path in Path(kept).iterdir()
        )
    same_log(tmp_path / "m", tmp_path / "c")


def test_put_that_waits_for_copies_hears_of_the_promotion(tmp_path: Path) -> None:
    with open_master(tmp_path / "m", replica_timeout=timedelta(minutes=9)) as master:
        state = load_state(StoreLayout(tmp_path / "m"))
        assert state is not None
        with Peer(address_of(master), Log()):
            counted(master)
            heard: list[BaseException] = []

            def put() -> None:
                try:
                    master.writer("orders").put(b"waits", durability="replicas(2)")
                except RocketStoreError as error:
                    heard.append(error)

            thread = threading.Thread(target=put)
            thread.start()
            wait_until(lambda: master.visible_offset > 0)
            later = with_promotion(state.epochs, begin=0, end=0)
            with Peer(address_of(master), Log(identity=Identity(state.store_id, later))):
                thread.join(PATIENCE_S)
    assert [type(one) for one in heard] == [FencedError]
    assert "not known" in str(heard[0])


def test_connections_that_break_at_any_byte(tmp_path: Path, rng: random.Random) -> None:
    every = timedelta(milliseconds=1)
    with (
        open_master(tmp_path / "m") as master,
        CuttingProxy(address_of(master), rng, 30, 3000) as proxy,
    ):
        put_some(master, 100)
        with open_copy(tmp_path / "c", proxy.address, reconnect_every=every) as copy:
            wait_until(lambda: proxy.cut >= 30 or copy.visible_offset == master.visible_offset)
            put_some(master, 50)
            wait_until(lambda: proxy.cut >= 30)
            caught_up(copy, master)
            assert copy_of(copy).error is None
    same_log(tmp_path / "m", tmp_path / "c")
    assert verify(tmp_path / "c", **SHAPE).faults == ()
