"""Tags codes of delayed messages, those that another program stored with levels of its own among them."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from rocketstore._native.format.codec import tags_code
from tests.support.made_store import MadeStore
from tests.support.small_store import everything, open_small

TOPIC = "SCHEDULE_TOPIC_XXXX"
STORED_MS = 1_700_000_000_000
LEVELS = {"1": 1000, "+2": 5000, "007": 7000, "3": 7000, "99": 7000, "2147483647": 7000}
NONE = [
    "0",
    "-1",
    "+0",
    "abc",
    "2147483648",
    "-2147483649",
    "+-2",
    "-+2",
    "++2",
    "+",
    "-",
    " 2",
    "2 ",
]


@pytest.mark.parametrize("level", [*LEVELS, *NONE])
def test_a_level_of_any_kind(tmp_path: Path, level: str) -> None:
    """What Java reads as a level gives the time of delivery; nothing else stops the dispatch."""
    made = MadeStore(tmp_path)
    made.put(TOPIC, body=b"delayed", tags="a", properties={"DELAY": level}, store_ms=STORED_MS)
    made.put(body=b"behind", store_ms=STORED_MS)
    with open_small(tmp_path, delay_levels="1s 5s 7s") as store:
        assert [message.body for message in everything(store)] == [b"behind"]
        assert [message.body for message in everything(store, TOPIC)] == [b"delayed"]
        assert store.dispatched_offset == store.end_offset == made.end
    unit = (tmp_path / "consumequeue" / TOPIC / "0" / f"{0:020d}").read_bytes()[:20]
    code = STORED_MS + LEVELS[level] if level in LEVELS else tags_code("a")
    assert struct.unpack(">qiq", unit)[2] == code
