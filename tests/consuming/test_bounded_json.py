"""JSON is weighed before it is parsed: bombs within the limit of a file cost little, large good texts pass."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest

import rocketstore
from rocketstore import ReadFailedError
from rocketstore.consuming.consumer_offsets import ConsumerOffsets
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.values.bounded_json import LIMITS, TooLargeError, parse_json, weigh
from tests.corruption.hostile_faces import in_a_child, peak_bytes
from tests.support.small_store import open_small

OFFSETS = LIMITS["consumerOffset.json"]
#: What allocators keep comes on top of 64 MiB.
MEMORY_BYTES = 80 << 20
N = OFFSETS.size - 100
#: Texts of the size that a file may have: what each is refused for.
BOMBS = {
    "brackets": (b'{"x":[' + b"[]," * (N // 3) + b"[]]}", "entries"),
    "open": (b"[" * N, "entries"),
    "few open": (b"[" * 9, "deeper than 8"),
    "mixed open": (b'{"a":[' * 5 + b"]}" * 5, "deeper than 8"),
    "texts": (b'["",' + b'"",' * (N // 3) + b'""]', "entries"),
    "texts without commas": (b'""' * (N // 2), "entries"),
    "keys": (b"{" + b'"a":1,' * (N // 6) + b'"b":1}', "entries"),
    "bare keys": (b"{" + b"1:1," * (N // 4) + b"2:1}", "entries"),
    "digits": (b'{"a":' + b"9" * N + b"}", "digits"),
    "digits of a key": (b"{" + b"9" * N + b":1}", "digits"),
    "wide text": (b'{"a":"' + "🚀".encode() + b"x" * (N // 2) + b'"}', "bytes"),
    "wide escape": (b'{"a":"\\ud83d\\ude80' + b"x" * (N // 2) + b'"}', "bytes"),
    "long": (b" " * (OFFSETS.size + 1), "bytes"),
    "spaces": (b'{"a":{1' + b" " * N + b"}}", "Expecting"),
    "UTF-16": ('{"a":1}'.encode("utf-16"), "utf-8"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_before_it_goes_off(name: str) -> None:
    """A ValueError that names the limit; no RecursionError, no memory but some copies of the text."""
    text, why = BOMBS[name]
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=why):
            parse_json(text, OFFSETS)
        assert tracemalloc.get_traced_memory()[1] < 3 * len(text) + (4 << 20)
    finally:
        tracemalloc.stop()


def test_what_is_within_the_limits_is_read() -> None:
    wide = "🚀" * (OFFSETS.size // 16 - 10)
    assert parse_json(json.dumps({"a": wide}, ensure_ascii=False), OFFSETS) == {"a": wide}
    row = [0] * (OFFSETS.entries - 1)
    assert parse_json(json.dumps(row), OFFSETS) == row
    with pytest.raises(TooLargeError, match="more than 210,000 entries"):
        parse_json(json.dumps([*row, 0, 0]), OFFSETS)
    assert parse_json('{"a{1:2,": "[[[[[[[[[", 7 : -0.5e3}', OFFSETS) == {
        "a{1:2,": "[" * 9,
        "7": -500.0,
    }


def large_table(offsets: int, queues: int) -> dict[str, dict[str, int]]:
    """A table of `offsets` entries, whose groups read `queues` queues each."""
    return {
        f"orders_of_shop_{n % 500}@billing_group_{n}": {str(q): n for q in range(queues)}
        for n in range(offsets // queues)
    }


@pytest.mark.parametrize("queues", [1, 1000])
def test_a_large_deployment_is_read_in_little_memory(tmp_path: Path, queues: int) -> None:
    """100,000 offsets, whatever the number of groups; the largest table that passes."""
    layout = StoreLayout(tmp_path)
    layout.config.mkdir()
    table = large_table(100_000 if queues < 1000 else 208_000, queues)
    layout.consumer_offsets.write_text(json.dumps({"offsetTable": table}))
    names = len(table)
    del table

    def work() -> tuple[int, int]:
        before = peak_bytes(anew=True)
        offsets = ConsumerOffsets(layout)
        offsets.load()
        offsets.clamp(lambda topic, queue_id: None)
        assert offsets.highest("orders_of_shop_7", 0) >= 7
        return len(offsets.groups()), peak_bytes() - before

    (found, memory), why = in_a_child(work, 60)
    assert not why
    assert found == names
    assert memory < MEMORY_BYTES


def test_good_offsets_beyond_the_limit_are_not_replaced(tmp_path: Path) -> None:
    """An open for writing would begin with no offset at all, and store that."""
    with open_small(tmp_path / "s") as store:
        store.writer("orders").put(b"x")
    path = tmp_path / "s/config/consumerOffset.json"
    text = json.dumps({"offsetTable": large_table(200_000, 4)})
    path.write_text(text)
    with pytest.raises(
        ReadFailedError, match=r"consumerOffset\.json has more than 210,000 entr.*move"
    ):
        rocketstore.open(tmp_path / "s")
    assert path.read_text() == text
    with rocketstore.open(tmp_path / "s", "r") as store:
        assert not store.groups()
        assert len(list(store.consumer("orders"))) == 1


def test_what_is_written_can_be_read_again() -> None:
    assert weigh("[" + "1," * 90, LIMITS["lease"]) == b"[" + b"1," * 90
    with pytest.raises(TooLargeError):
        weigh("[" + "1," * 100, LIMITS["lease"])
