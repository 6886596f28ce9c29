"""RocketMQ's transient store pool (semantics 6)."""

from __future__ import annotations

import logging

import pytest

from rocketstore.log.mapped_files.write_buffer_pool import WriteBufferPool

pytestmark = pytest.mark.quick

SIZE = 8192


def test_buffers_are_made_and_locked_at_the_start() -> None:
    """S004-30 S004-31 S004-33 S004-34."""
    pool = WriteBufferPool(5, SIZE)
    assert (pool.total, pool.free) == (5, 5)
    assert 0 <= pool.locked <= 5
    buffers = [pool.borrow() for _ in range(5)]
    for buffer in buffers:
        assert buffer is not None
        assert (buffer.size, buffer.fd, buffer.writable) == (SIZE, -1, True)
    assert sum(buffer is not None and buffer.memory_locked for buffer in buffers) == pool.locked


def test_a_pool_without_buffers_lends_none_and_has_no_limit() -> None:
    """S004-32 S004-39 S004-71."""
    pool = WriteBufferPool(0, SIZE)
    assert pool.borrow() is None
    assert (pool.free, pool.remaining) == (0, 2**31 - 1)


def test_borrow_does_not_wait_and_may_return_none() -> None:
    """S004-37: and then puts are refused (S004-39)."""
    pool = WriteBufferPool(2, SIZE)
    first, second = pool.borrow(), pool.borrow()
    assert first is not second
    assert pool.borrow() is None
    assert (pool.free, pool.remaining) == (0, 0)


def test_the_buffer_that_came_back_last_is_borrowed_first() -> None:
    """S004-36 S004-15 S004-28: a warm one; its bytes stay, nobody commits them."""
    pool = WriteBufferPool(3, SIZE)
    a, b = pool.borrow(), pool.borrow()
    assert a is not None
    assert b is not None
    b.write(0, b"old")
    pool.give_back(a)
    pool.give_back(b)
    assert pool.free == 3
    assert pool.borrow() is b
    assert b.read(0, 3) == b"old"
    assert pool.borrow() is a


def test_each_borrow_that_leaves_less_than_two_fifths_warns(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """S004-38."""
    pool = WriteBufferPool(5, SIZE)
    warned, buffer = [], None
    for _ in range(5):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            buffer = pool.borrow()
        warned.append(len(caplog.records))
    assert warned == [0, 0, 0, 1, 1]
    assert buffer is not None
    pool.give_back(buffer)
    with caplog.at_level(logging.WARNING):
        pool.borrow()
    assert "only 0 of 5 write buffers are left" in caplog.text


def test_what_was_not_borrowed_cannot_be_given_back() -> None:
    pool, other = WriteBufferPool(2, SIZE), WriteBufferPool(2, SIZE)
    buffer = other.borrow()
    assert buffer is not None
    with pytest.raises(ValueError, match="not borrowed"):
        pool.give_back(buffer)
    other.give_back(buffer)
    with pytest.raises(ValueError, match="not borrowed"):
        other.give_back(buffer)
    assert (pool.free, other.free) == (2, 2)


def test_close_unlocks_and_a_borrowed_buffer_goes_when_it_comes_back() -> None:
    """S004-35."""
    pool = WriteBufferPool(2, SIZE)
    out, rest = pool.borrow(), pool.borrow()
    assert out is not None
    assert rest is not None
    pool.give_back(rest)
    pool.close()
    pool.close()
    assert rest.closed
    assert not rest.memory_locked
    assert pool.borrow() is None
    out.write(0, b"commits may still be under way")
    pool.give_back(out)
    assert out.closed
    assert not out.memory_locked
    assert pool.free == 0


def test_a_refused_lock_is_counted_and_no_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """D-39: RLIMIT_MEMLOCK is small for most users."""

    class Refusing:
        memory_locked = False

        @staticmethod
        def anonymous(start_offset: int, size: int) -> Refusing:
            return Refusing()

        def lock_memory(self, *, on_fault: bool) -> bool:
            return False

        def close(self) -> None:
            pass

    monkeypatch.setattr("rocketstore.log.mapped_files.write_buffer_pool.MappedFile", Refusing)
    with caplog.at_level(logging.WARNING):
        pool = WriteBufferPool(3, SIZE)
    assert pool.locked == 0
    assert "3 of 3 write buffers are not locked" in caplog.text
    assert pool.borrow() is not None
    pool.close()


@pytest.mark.parametrize(("buffers", "size"), [(-1, SIZE), (1, 0)])
def test_impossible_pools_are_refused(buffers: int, size: int) -> None:
    with pytest.raises(ValueError, match="buffers of"):
        WriteBufferPool(buffers, size)
