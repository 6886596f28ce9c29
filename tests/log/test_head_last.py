"""Writes of which a kill leaves all or nothing."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketstore.log.flusher import write_durable_head_last, write_head_last

pytestmark = pytest.mark.quick

PAGE = resource.getpagesize()


@pytest.mark.parametrize("write", [write_durable_head_last, write_head_last])
@pytest.mark.parametrize("offset", [0, 100, PAGE - 1])
def test_the_first_page_is_written_last(
    tmp_path: Path, write: Callable[[int, memoryview, int], None], offset: int
) -> None:
    """D-37: a write that ends early, as a kill ends it, leaves no beginning of a record."""
    path = tmp_path / "file"
    path.write_bytes(bytes(8 * PAGE))
    data = b"x" * (3 * PAGE)
    fd = os.open(path, os.O_RDWR)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 * PAGE, before[1]))
        with pytest.raises(OSError, match=os.strerror(errno.EFBIG)) as caught:
            write(fd, memoryview(data), offset)
        assert caught.value.errno == errno.EFBIG
        first = PAGE - offset
        assert os.pread(fd, first, offset) == bytes(first)
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        write(fd, memoryview(data), offset)
        assert os.pread(fd, len(data), offset) == data
        assert os.pread(fd, offset, 0) == bytes(offset)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        os.close(fd)
