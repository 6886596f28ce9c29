"""What a process had seen synced before it was killed is not written again by the next one (D-23)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketstore._native.os import syscalls
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.layout.positions_page import PositionsPage, State
from rocketstore.log.recovery.repair import BLOCK_BYTES
from tests.process.other_process import numbers, open_small, other_process

OPTIONS: dict[str, Any] = {
    "durability": "os",
    "flush_interval_ms": 3_600_000,
    "commit_log_file_size_bytes": 4 << 20,
}
LARGE_PAGE = Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")
#: No checkpoint after the first; half of the messages synced, then half that nobody syncs.
HALF = """
from rocketstore.log.commitlog.checkpointer import Checkpointer
Checkpointer.step = lambda self: 1.0
store = rocketstore.open(path, **options)
writer = store.writer(TOPIC)
for number in range(400):
    if number == 200:
        store.wait_flushed(store.end_offset)
    writer.put(b"%d:" % number + bytes(15_000))
say("done")
told()
"""


@pytest.fixture
def layout(tmp_path: Path) -> StoreLayout:
    """A store whose process was killed: nothing in our checkpoint, half of it synced."""
    with other_process(HALF, tmp_path, **OPTIONS) as writer:
        assert writer.line() == "done"
        writer.kill()
    return StoreLayout(tmp_path)


def change(layout: StoreLayout, what: Callable[[PositionsPage], None]) -> int:
    """Changes the page that the killed process left; where that says the log is synced."""
    page = PositionsPage.create(layout.positions)
    what(page)
    flushed = page.positions.flushed
    page.close()
    return flushed


def written_again(layout: StoreLayout, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int, int]:
    """Opens the store; from where, up to where and how many bytes of log the opening wrote."""
    pieces: list[tuple[int, int]] = []
    pwrite = syscalls.pwrite

    def watched(fd: int, data: bytes, position: int) -> int:
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        if path.parent == layout.commit_log:
            pieces.append((int(path.name) + position, int(path.name) + position + len(data)))
        return pwrite(fd, data, position)

    monkeypatch.setattr(syscalls, "pwrite", watched)
    with open_small(layout.root, **OPTIONS) as store:
        assert store.recovery.was_durable == 0
        assert store.recovery.mode in ("unclean", "foreign-unclean")
        assert numbers(store) == list(range(400))
        end = store.recovery.end
        inside = [(low, min(high, end)) for low, high in pieces if low < end]
        return (
            min((low for low, _ in inside), default=end),
            max((high for _, high in inside), default=0),
            sum(high - low for low, high in inside),
        )


def test_only_what_was_not_synced(layout: StoreLayout, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-23: the page of a process that died in this boot says what the disk has. The last block of that
    may have been spoilt by a write behind it."""
    begin = change(layout, lambda page: None) - BLOCK_BYTES
    low, high, count = written_again(layout, monkeypatch)
    assert 0 < begin < high - BLOCK_BYTES
    assert (low, count) == (begin, high - begin)


@pytest.mark.skipif(not LARGE_PAGE.exists(), reason="a kernel without large pages")
def test_a_block_is_what_one_store_may_have_written() -> None:
    """Of a file that is mapped with large pages, the kernel writes such a page for one byte."""
    assert int(LARGE_PAGE.read_text()) <= BLOCK_BYTES


def other_boot(page: PositionsPage) -> None:
    page.positions.boot_id = bytes(range(16))


def other_run(page: PositionsPage) -> None:
    page.positions.run_id = bytes(range(16))


def recovering(page: PositionsPage) -> None:
    page.positions.state = State.RECOVERING


@pytest.mark.parametrize("what", [other_boot, other_run, recovering])
def test_all_behind_the_checkpoint_where_nobody_knows(
    what: Callable[[PositionsPage], None], layout: StoreLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-23: after a start of the machine, another run, or a recovery that did not come to its end."""
    assert change(layout, what) > 0
    low, high, count = written_again(layout, monkeypatch)
    assert (low, count) == (0, high)


def test_all_of_it_where_rocketmq_wrote_last(
    layout: StoreLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout.lock.write_bytes(b"lock")
    low, high, count = written_again(layout, monkeypatch)
    assert (low, count) == (0, high)
