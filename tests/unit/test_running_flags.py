"""Named reasons for refusals: RocketMQ's bits and decisions, with causes."""

from __future__ import annotations

import threading
import time

import pytest

from rocketstore.log.commitlog.running_flags import FlagReason, RunningFlags

#: reason: value, blocks put, blocks get (semantics 13.6)
TABLE = {
    FlagReason.NOT_READABLE: (1, False, True),
    FlagReason.NOT_WRITEABLE: (2, True, False),
    FlagReason.WRITE_LOGICS_QUEUE_ERROR: (4, True, False),
    FlagReason.WRITE_INDEX_FILE_ERROR: (8, True, False),
    FlagReason.DISK_FULL: (16, True, False),
    FlagReason.FENCED: (32, True, False),
    FlagReason.LOGIC_DISK_FULL: (64, True, False),
}


@pytest.fixture
def flags() -> RunningFlags:
    """Nothing stands in the way."""
    return RunningFlags()


@pytest.mark.parametrize("reason", TABLE)
def test_each_reason_blocks_what_the_table_says(reason: FlagReason, flags: RunningFlags) -> None:
    value, blocks_put, blocks_get = TABLE[reason]
    assert (flags.writeable, flags.readable) == (True, True)
    assert flags.set(reason, "because") is False
    assert flags.bits == value
    assert flags.is_set(reason)
    assert flags.writeable is not blocks_put
    assert flags.readable is not blocks_get


def test_the_table_has_every_reason() -> None:
    assert set(TABLE) == set(FlagReason)


def test_the_first_cause_and_time_stay(flags: RunningFlags) -> None:
    first = OSError(28, "No space left on device")
    before_ms = time.time_ns() // 1_000_000
    flags.set(FlagReason.DISK_FULL, first)
    after_ms = time.time_ns() // 1_000_000
    assert flags.set(FlagReason.DISK_FULL, "later") is True
    [state] = flags.states
    assert state.cause is first
    assert before_ms <= state.since_ms <= after_ms


def test_clear_says_whether_the_reason_was_in_force(flags: RunningFlags) -> None:
    flags.set(FlagReason.DISK_FULL, "a")
    flags.set(FlagReason.FENCED, "b")
    assert flags.clear(FlagReason.DISK_FULL) is True
    assert flags.clear(FlagReason.DISK_FULL) is False
    assert flags.bits == 32
    assert flags.set(FlagReason.DISK_FULL, "c") is False
    assert [state.cause for state in flags.states] == ["b", "c"]


def test_text_names_reason_time_and_cause(flags: RunningFlags) -> None:
    assert str(flags) == "running"
    flags.set(FlagReason.NOT_WRITEABLE, "maintenance")
    assert str(flags).startswith("NOT_WRITEABLE since 2")
    assert str(flags).endswith("Z: maintenance")


def test_a_set_of_reasons_is_refused(flags: RunningFlags) -> None:
    with pytest.raises(ValueError, match="not one reason"):
        flags.set(FlagReason.DISK_FULL | FlagReason.FENCED, "x")
    with pytest.raises(ValueError, match="not one reason"):
        flags.clear(FlagReason(0))


def test_threads_that_set_one_reason_agree_on_who_was_first(flags: RunningFlags) -> None:
    barrier = threading.Barrier(8)
    firsts = []

    def work(name: int) -> None:
        barrier.wait(20)
        if not flags.set(FlagReason.FENCED, str(name)):
            firsts.append(str(name))

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert firsts == [state.cause for state in flags.states]
