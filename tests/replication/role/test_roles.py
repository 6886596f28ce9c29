"""Roles: what a store may do that was a master or a copy, what a fence does, and what replication.json says."""

from __future__ import annotations

import errno
import time
from pathlib import Path

import pytest

from rocketstore import (
    ConfigError,
    FencedError,
    PutResult,
    ReplicaStoreError,
    ReplicationError,
    Store,
    StoreLockedError,
)
from rocketstore.log.layout.destroy import OWN_NAMES
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.replication.protocol.session import Identity
from rocketstore.replication.replica.copied_log import CopiedLog
from rocketstore.replication.role import fence as fences
from rocketstore.replication.role.fence import fence_of
from rocketstore.replication.role.lease import FileLease, keep_lease
from rocketstore.replication.role.promotion import promote
from rocketstore.replication.role.startup import (
    take_master_role,
    take_plain_role,
    take_replica_role,
)
from rocketstore.replication.role.state import (
    ReplicationState,
    as_master,
    as_replica,
    fenced,
    load_state,
    promoted,
    save_state,
)
from tests.support.small_store import engine_of, open_small
from tests.support.waiting import wait_until


def _state(root: Path) -> ReplicationState:
    state = load_state(StoreLayout(root))
    assert state is not None
    return state


def _put(store: Store, body: bytes) -> PutResult:
    return store.writer("orders").put(body)


def _master(root: Path, count: int = 3) -> int:
    """A master that has put some messages, and is closed; its end."""
    with open_small(root) as store:
        if load_state(StoreLayout(root)) is None:  # else the open has begun an epoch
            take_master_role(engine_of(store))
        for _ in range(count):
            _put(store, b"x")
        return store.visible_offset


def test_each_open_of_a_master_begins_an_epoch(tmp_path: Path) -> None:
    end = _master(tmp_path)
    _master(tmp_path)
    assert [(one.term, one.run, one.start) for one in _state(tmp_path).epochs] == [
        (1, 0, 0),
        (1, 1, end),
    ]


def test_plain_open_of_a_master_begins_one_as_well(tmp_path: Path) -> None:
    """It may have lost a tail that replicas have."""
    end = _master(tmp_path)
    with open_small(tmp_path) as store:
        _put(store, b"plain")
    assert _state(tmp_path).epochs[-1].start == end


def test_plain_store_gets_no_role(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        _put(store, b"x")
        take_plain_role(engine_of(store))
    assert load_state(StoreLayout(tmp_path)) is None


def test_copy_does_not_open_for_puts(tmp_path: Path) -> None:
    open_small(tmp_path).close()
    save_state(StoreLayout(tmp_path), ReplicationState(role="replica"))
    with pytest.raises(ReplicaStoreError, match="rocketstore promote"):
        open_small(tmp_path)
    open_small(tmp_path, "r").close()


def test_store_of_unknown_role_does_not_open_for_puts(tmp_path: Path) -> None:
    open_small(tmp_path).close()
    StoreLayout(tmp_path).replication.write_text("{")
    with pytest.raises(ReplicationError, match="does not tell the role"):
        open_small(tmp_path)
    StoreLayout(tmp_path).replication.unlink()
    open_small(tmp_path).close()


def test_store_with_messages_of_its_own_becomes_no_copy(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        _put(store, b"x")
    with open_small(tmp_path) as store:
        with pytest.raises(ReplicaStoreError, match="messages that no master"):
            take_replica_role(engine_of(store))
        take_replica_role(engine_of(store), compares=True)


def test_old_master_becomes_a_copy_once_accepted_and_keeps_its_history(tmp_path: Path) -> None:
    _master(tmp_path)
    before = _state(tmp_path)
    with open_small(tmp_path) as store:
        assert take_replica_role(engine_of(store)).role == "replica"
        assert _state(tmp_path).role == "master"
        CopiedLog(engine_of(store)).keep(Identity(before.store_id, before.epochs))
    after = _state(tmp_path)
    assert (after.role, after.store_id) == ("replica", before.store_id)
    assert after.epochs[0] == before.epochs[0]


# ---- promotion and fencing ----


def test_promoted_copy_takes_puts_in_a_new_term(tmp_path: Path) -> None:
    end = _master(tmp_path)
    save_state(
        StoreLayout(tmp_path),
        ReplicationState(
            role="replica",
            store_id=_state(tmp_path).store_id,
            epochs=_state(tmp_path).epochs,
            fenced_by=6,
        ),
    )
    promotion = promote(tmp_path)
    assert (promotion.term, promotion.end, promotion.was_master) == (7, end, False)
    with open_small(tmp_path) as store:
        _put(store, b"taken")
    assert [(one.term, one.run) for one in _state(tmp_path).epochs] == [(1, 0), (7, 0), (7, 1)]


def test_rank_is_of_the_last_byte(tmp_path: Path) -> None:
    """An old master may be longer than the store that took its place. And a copy that has heard of
    a new run without a byte of it may lack what another has of the run before."""
    end = _master(tmp_path)
    assert promote(tmp_path, dry_run=True).rank == (1, 0, end)
    promote(tmp_path)
    assert promote(tmp_path, dry_run=True).rank == (1, 0, end)
    with open_small(tmp_path) as store:
        _put(store, b"x")
        longer = store.visible_offset
    assert promote(tmp_path, dry_run=True).rank == (2, 1, longer)


def test_plain_store_is_not_promoted(tmp_path: Path) -> None:
    open_small(tmp_path).close()
    with pytest.raises(ReplicationError, match="is no copy"):
        promote(tmp_path)


def test_open_store_is_not_promoted(tmp_path: Path) -> None:
    with open_small(tmp_path), pytest.raises(StoreLockedError):
        promote(tmp_path)


def test_fenced_master_takes_no_puts_until_it_is_promoted(tmp_path: Path) -> None:
    _master(tmp_path)
    ended: list[FencedError] = []
    with open_small(tmp_path) as store:
        fence = fence_of(engine_of(store))
        fence.on_fence = ended.append
        fence.hear(1)  # its own term
        _put(store, b"taken")
        fence.hear(4)
        for _ in range(2):
            with pytest.raises(FencedError, match="promoted in term 4"):
                _put(store, b"refused")
        fence.hear(3)
        assert store.max_queue_offset("orders", 0) == 4
    assert len(ended) == 1
    assert _state(tmp_path).fenced_by == 4
    with open_small(tmp_path) as store:
        with pytest.raises(FencedError, match="promoted in term 4"):
            _put(store, b"refused after a restart")
        with pytest.raises(FencedError, match="promote it again"):
            take_master_role(engine_of(store))
    assert promote(tmp_path).term == 5
    with open_small(tmp_path) as store:
        assert _put(store, b"taken").queue_offset == 4


# ---- leases ----


def test_lease_of_a_file_has_one_holder(tmp_path: Path) -> None:
    one, other = (FileLease(tmp_path / "lease", name) for name in "ab")
    assert one.renew()
    assert not other.renew()
    assert other.deadline() is None
    assert (one.deadline() or 0) > time.monotonic()
    one.release()
    assert other.renew()
    assert not one.renew()


def test_lease_that_has_ended_is_free(tmp_path: Path) -> None:
    one, other = FileLease(tmp_path / "lease", "a", 1e-9), FileLease(tmp_path / "lease", "b")
    assert one.renew()
    assert other.renew()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"owner": "x"}'])
def test_damaged_lease_is_free(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "lease").write_bytes(content)
    assert FileLease(tmp_path / "lease", "a").renew()


def test_no_put_without_the_lease(tmp_path: Path) -> None:
    lease = FileLease(tmp_path / "lease", "a")
    with open_small(tmp_path / "store") as store:
        watch = keep_lease(engine_of(store), lease)
        with pytest.raises(FencedError, match="lease"):
            _put(store, b"refused")
        lease.renew()
        watch.wake()
        wait_until(lambda: fence_of(engine_of(store)).error is None)
        _put(store, b"taken")
        lease.release()
        watch.wake()
        wait_until(lambda: fence_of(engine_of(store)).error is not None)
        with pytest.raises(FencedError, match="lease"):
            _put(store, b"refused")


def test_lease_does_not_open_the_fence_of_a_promotion(tmp_path: Path) -> None:
    _master(tmp_path)
    with open_small(tmp_path) as store:
        fence = fence_of(engine_of(store))
        fence.hear(2)
        fence.lease("not held")
        fence.lease("")
        with pytest.raises(FencedError, match="promoted in term 2"):
            _put(store, b"refused")


def test_lease_that_fails_is_not_held(tmp_path: Path) -> None:
    class Broken:
        def __init__(self) -> None:
            self.asked = 0

        def deadline(self) -> float:
            self.asked += 1
            if self.asked > 1:
                raise OSError("no answer")
            return time.monotonic() + 60

    with open_small(tmp_path) as store:
        keep_lease(engine_of(store), Broken())
        wait_until(lambda: fence_of(engine_of(store)).error is not None)
        with pytest.raises(FencedError, match="no answer"):
            _put(store, b"refused")


def test_lease_without_a_deadline_is_refused(tmp_path: Path) -> None:
    with open_small(tmp_path) as store, pytest.raises(ConfigError, match="deadline"):
        keep_lease(engine_of(store), object())


def test_a_fence_is_closed_while_its_reason_changes(tmp_path: Path) -> None:
    """A put between two reasons would be taken."""
    _master(tmp_path)
    with open_small(tmp_path) as store:
        flags, open_at = engine_of(store).commit_log.flags, []
        fence = fence_of(engine_of(store))
        fence.lease("not held")
        follow = flags._on_change
        flags.on_change(lambda: (open_at.append(flags.writeable), follow()))
        fence.hear(2)
        assert open_at == [False]
        with pytest.raises(FencedError, match="promoted in term 2"):
            _put(store, b"refused")


def test_a_store_with_a_history_does_not_follow_without_one(tmp_path: Path) -> None:
    """What came by the other protocol would be cut, though n machines have it."""
    _master(tmp_path)
    with open_small(tmp_path) as store, pytest.raises(ReplicaStoreError, match="history"):
        take_replica_role(engine_of(store), compares=True)
    assert _state(tmp_path).role == "master"


def test_a_fence_that_is_not_kept_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no room")

    _master(tmp_path)
    with open_small(tmp_path) as store:
        fence = fence_of(engine_of(store))
        with monkeypatch.context() as patched, pytest.raises(OSError, match="no room"):
            patched.setattr(fences, "save_state", full)
            fence.hear(2)
        assert "not kept over a restart" in caplog.text
        with pytest.raises(FencedError):
            _put(store, b"refused")
        fence.hear(2)
    assert _state(tmp_path).fenced_by == 2


def test_state_comes_back(layout: StoreLayout) -> None:
    state = fenced(as_master(None, begin=0, end=90), 4)
    save_state(layout, state)
    assert load_state(layout) == state


def test_store_without_a_file_has_no_state(layout: StoreLayout) -> None:
    assert load_state(layout) is None


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b"null", b'{"version": 2}', b"[" * 100_000, b"\xff",
        b'{"version": 1, "role": "slave", "store_id": "", "epochs": [], "fenced_by": null}',
        b'{"version": 1, "role": "master", "store_id": "00", "epochs": [], "fenced_by": null}',
        b'{"version": 1, "role": "master", "store_id": "", "epochs": [7], "fenced_by": null}',
        b'{"version": 1, "role": "master", "store_id": "", "epochs": [], "fenced_by": true}',
        b'{"version": 1, "role": "master", "store_id": "", "fenced_by": null, "epochs":'
        b' [{"term": 1, "run": -1, "start": 0, "id": "0011223344556677"}]}',
    ],
)  # fmt: skip
def test_damaged_file_is_an_error(layout: StoreLayout, content: bytes) -> None:
    """Without it a replica would take puts."""
    layout.replication.write_bytes(content)
    with pytest.raises(ReplicationError, match=r"replication\.json does not tell the role"):
        load_state(layout)


def test_store_id_is_of_the_first_master() -> None:
    first = as_master(None, begin=0, end=10)
    copy = as_replica(None, first.store_id, first.epochs)
    assert promoted(copy, begin=0, end=10).store_id == first.store_id
    assert as_master(None, begin=0, end=10).store_id != first.store_id


def test_promotion_ends_a_fence_and_is_above_it() -> None:
    master = fenced(fenced(as_master(None, begin=0, end=10), 5), 3)
    again = promoted(master, begin=0, end=10)
    assert (master.fenced_by, again.fenced_by, again.term) == (5, None, 6)


def test_copy_of_a_rocketmq_becomes_a_master_with_a_history(layout: StoreLayout) -> None:
    save_state(layout, ReplicationState(role="replica"))
    copy = load_state(layout)
    made = promoted(copy, begin=4096, end=9000)
    assert [(one.term, one.run, one.start) for one in made.epochs] == [(1, 0, 4096)]
    assert len(made.store_id) == 16


def test_destroy_takes_the_state_along(tmp_path: Path) -> None:
    store = open_small(tmp_path / "store")
    layout = StoreLayout(tmp_path / "store")
    save_state(layout, as_master(None, begin=0, end=0))
    layout.cut.write_text("{}")
    store.destroy()
    assert not layout.root.exists()
    assert {layout.replication.name, layout.cut.name} <= set(OWN_NAMES)
