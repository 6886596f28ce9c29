"""What a peer that lies achieves: nothing with a key, and without one what cannot be checked."""

from __future__ import annotations

import random
import threading
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rocketstore import FencedError, ReplicasUnavailableError, ReplicaTimeoutError, Store
from tests.replication.copies import (
    address_of,
    caught_up,
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

KEY = b"a secret of the two ends"
TIMES: dict[str, Any] = {
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
    with open_master(tmp_path, replica_timeout=QUICK, key=key, **TIMES) as master:
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
    with open_master(tmp_path, replica_timeout=QUICK, key=KEY, **TIMES) as master:
        put_some(master, 5)
        assert lie_as_copy(address_of(master), lie, rng, with_key=True)
        assert lie_as_copy(address_of(master), lie, rng, with_key=False)
        with pytest.raises(ReplicasUnavailableError):
            put_for_two(master)
        assert service_of(master).bytes_sent == 0


def test_without_a_key_an_acknowledgement_is_believed(tmp_path: Path, rng: random.Random) -> None:
    """docs/replication.md says so: it cannot be checked."""
    with open_master(tmp_path, replica_timeout=timedelta(seconds=10), **TIMES) as master:
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
    with open_master(tmp_path, **TIMES) as master:
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
        open_master(tmp_path / "m", key=key, **TIMES) as master,
        LyingMaster(rng, with_key=key is not None, lie=lie) as liar,
        FaultyLink(rng, address_of(master)) as link,
    ):
        settings: dict[str, Any] = {"key": key, **TIMES, "silence_limit": QUICK}
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
    with open_master(tmp_path / "m", **TIMES) as master:
        with open_copy(tmp_path / "c", master, **TIMES) as copy:
            put_some(master, 12)
            caught_up(copy, master)
        with (
            LyingMaster(rng, with_key=False, lie=lie) as liar,
            open_copy(tmp_path / "c", liar.address, **TIMES) as copy,
        ):
            assert copy.recovery.cut == (0, master.visible_offset)
            assert copy.recovery.quarantine
        with open_copy(tmp_path / "c", master, **TIMES) as copy:
            caught_up(copy, master)
    same_log(tmp_path / "m", tmp_path / "c")
