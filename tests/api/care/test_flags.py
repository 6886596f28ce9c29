"""Running flags of an open store: what they refuse, and that they say why."""

from __future__ import annotations

import pytest

from rocketstore import FencedError, ReadFailedError, Store, StoreFailedError
from rocketstore.log.commitlog.running_flags import FlagReason
from tests.support.small_store import dispatched, parts


def test_a_new_store_runs(store: Store) -> None:
    assert (store.flags.bits, str(store.flags)) == (0, "running")
    assert store.flags.readable
    assert store.flags.writeable


def test_not_readable_refuses_reads(store: Store) -> None:
    result = store.writer("orders").put(b"x", keys="k")
    dispatched(store)
    store.flags.set(FlagReason.NOT_READABLE, "the operator said so")
    for read in (
        lambda: store.get(result.physical_offset),
        lambda: store.query("orders", "k"),
        lambda: store.consumer("orders").poll(),
    ):
        with pytest.raises(ReadFailedError, match="operator said so"):
            read()
    assert store.writer("orders").put(b"y").queue_offset == 1
    store.flags.clear(FlagReason.NOT_READABLE)
    assert store.get(result.physical_offset).body == b"x"


@pytest.mark.parametrize(
    "reason", [r for r in FlagReason if r is not FlagReason.NOT_READABLE], ids=lambda r: r.name
)
def test_every_other_reason_refuses_puts_and_lets_reads_go_on(
    reason: FlagReason, store: Store
) -> None:
    result = store.writer("orders").put(b"x")
    store.flags.set(reason, "because")
    parts(store).commit_log.refuse_or_admit()
    refused = FencedError if reason is FlagReason.FENCED else StoreFailedError
    with pytest.raises(refused, match="because"):
        store.writer("orders").put(b"y")
    assert store.get(result.physical_offset).body == b"x"
    store.flags.clear(reason)
    parts(store).commit_log.refuse_or_admit()
    assert store.writer("orders").put(b"z").queue_offset == 1


def test_failure_cannot_be_admitted_away(store: Store) -> None:
    """K-01: only opening the store again ends it."""
    parts(store).commit_log.fail(OSError(5, "gone"))
    parts(store).commit_log.refuse_or_admit()
    with pytest.raises(StoreFailedError, match="gone"):
        store.writer("orders").put(b"x")


def test_a_failed_store_says_so(store: Store) -> None:
    """Why it takes no puts is in its flags, and no clearing takes it away."""
    result = store.writer("orders").put(b"x")
    cause = OSError(5, "gone")
    parts(store).commit_log.fail(cause)
    for _ in range(2):
        [state] = store.flags.states
        assert (state.reason, repr(state.cause)) == (FlagReason.NOT_WRITEABLE, repr(cause))
        assert "gone" in str(store.flags)
        assert not store.flags.writeable
        store.flags.clear(FlagReason.NOT_WRITEABLE)
    assert store.get(result.physical_offset).body == b"x"


def test_the_first_cause_stays(store: Store) -> None:
    parts(store).commit_log.fail(OSError(5, "first"))
    parts(store).commit_log.fail(OSError(28, "second"))
    with pytest.raises(StoreFailedError, match="first") as caught:
        store.writer("orders").put(b"x")
    assert str(caught.value.__cause__) == "[Errno 5] first"
