"""The pool of write buffers."""

from __future__ import annotations

import logging

import pytest

from rocketstore.log.mapped_files.write_buffer_pool import WriteBufferPool


def test_filled_at_the_start() -> None:
    """S004-30 S004-33: so many, each of the size of a file."""
    pool = WriteBufferPool(3, 8192)
    buffers = [pool.borrow() for _ in range(3)]
    assert [b.size for b in buffers if b] == [8192] * 3
    assert len(set(map(id, buffers))) == 3
    pool.close()


def test_empty_pool_gives_none_at_once() -> None:
    """S004-32 S004-37: nobody waits for a buffer."""
    pool = WriteBufferPool(1, 4096)
    assert pool.borrow() is not None
    assert pool.borrow() is None
    assert pool.remaining == 0


def test_comes_back_to_the_front() -> None:
    """S004-36: the warm one is used first; what is in it does not matter, zeros are not promised."""
    pool = WriteBufferPool(3, 4096)
    first, second = pool.borrow(), pool.borrow()
    assert first is not None
    assert second is not None
    pool.give_back(first)
    pool.give_back(second)
    assert pool.borrow() is second
    assert pool.borrow() is first
    pool.close()


def test_number_of_free_buffers() -> None:
    """S004-39: how many can be borrowed now."""
    pool = WriteBufferPool(2, 4096)
    seen = [pool.free]
    buffer = pool.borrow()
    seen.append(pool.free)
    assert buffer is not None
    pool.give_back(buffer)
    seen.append(pool.free)
    assert seen == [2, 1, 2]
    pool.close()


def test_few_left_is_warned(caplog: pytest.LogCaptureFixture) -> None:
    """S004-38: less than 40 %."""
    pool = WriteBufferPool(5, 4096)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            pool.borrow()
        assert caplog.text == ""
        pool.borrow()
    assert "only 1 of 5 write buffers are left" in caplog.text
    pool.close()


def test_close_unlocks() -> None:
    """S004-35: free buffers are unlocked and given up; one that is out stays usable."""
    pool = WriteBufferPool(2, 4096)
    out = pool.borrow()
    inside = list(pool._free)
    pool.close()
    assert all(buffer.closed for buffer in inside)
    assert pool.free == 0
    assert out is not None
    out.write(0, b"still here")
    assert out.read(0, 10) == b"still here"
