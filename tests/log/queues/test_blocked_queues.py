"""`rocketstore/blocked_queues` as a reader sees it, whatever its bytes are."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketstore.errors import StoreBehindError
from rocketstore.log.layout.lock import OUR_MARK
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.queues.blocked_queues import BlockedQueues, FollowedBlocks


@pytest.fixture
def layout(tmp_path: Path) -> StoreLayout:
    layout = StoreLayout(tmp_path)
    layout.tmp.mkdir(parents=True)
    layout.lock.write_bytes(OUR_MARK)
    return layout


def test_a_reader_is_told_of_a_blocked_queue(layout: StoreLayout) -> None:
    BlockedQueues(layout, writes=True).add("orders", 1, "a link is in its place")
    blocks = FollowedBlocks(layout)
    blocks.look()
    blocks.check("orders", 0)
    with pytest.raises(StoreBehindError, match="orders/1.*a link is in its place"):
        blocks.check("orders", 1)


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "[" + "[]," * 1_000_000 + "[]]", "9" * 5000, "7", "null", '[["a",1e999,"x"]]',
     '[["a",NaN,"x"]]', '[["a",[],"x"]]', "[1]", '{"a":1}', "\ufeff[]"],
)  # fmt: skip
def test_what_is_no_list_of_queues_blocks_none(layout: StoreLayout, text: str) -> None:
    layout.blocked_queues.write_text(text)
    blocks = FollowedBlocks(layout)
    blocks.look()
    assert blocks.places == {}
