"""State files of any bytes: whatever they hold, reading them gives something sane or nothing, in time."""

from __future__ import annotations

import json
import logging
import random
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rocketstore._native.sync.positions import MAGIC
from rocketstore.consuming.consumer_offsets import ConsumerOffsets
from rocketstore.errors import ConfigError
from rocketstore.log.commitlog.checkpoint import CheckpointFile, RocketmqCheckpoint
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.layout.positions_page import PositionsPage, State, writer_pid
from rocketstore.log.layout.state_files import read_json
from rocketstore.log.layout.store_json import load_store_state

#: A second is ten thousand times what a file of this size takes.
PATIENCE_S = 1.0
OFFSETS = b'{"dataVersion":{"counter":7},"offsetTable":{"orders@billing":{0:5,1:7}}}'
STATE = json.dumps(
    {
        "version": 1,
        "uuid": "01234567-89ab-cdef-0123-456789abcdef",
        "created_ms": 1_700_000_000_000,
        "record_crc": True,
        "foreign": [[0, 100], [200, 300]],
    }
).encode()
#: What parsers stumble over, put into sound files.
TOKENS = [
    b"{", b"}", b"[", b"]", b'"', b"\\", b"\\u0000", b"\\ud800", b"null", b"true", b"NaN", b"1e999",
    b"-Infinity", b"-0", b"-1", b"9" * 19, b"9" * 5000, b"0x10", b"\x00", b"\xff\xfe", b",", b":",
    b"\xef\xbb\xbf", b'"foreign":', b'"offsetTable":', b"[" * 200, b'{"a":' * 200, b"\xe2\x80\xa8",
    b"1:",
]  # fmt: skip

pytestmark = pytest.mark.filterwarnings("error")
generous = settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "rocketstore")


@pytest.fixture
def layout(tmp_path: Path) -> StoreLayout:
    found = StoreLayout(tmp_path)
    found.own.mkdir()
    found.config.mkdir()
    return found


def changed(rng: random.Random, data: bytes) -> bytes:
    """Bytes flipped, cut out, doubled, or a token put in."""
    for _ in range(rng.randint(1, 4)):
        at, end = rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0 if data:
                at %= len(data)
                data = data[:at] + bytes((data[at] ^ 1 << rng.randrange(8),)) + data[at + 1 :]
            case 1:
                data = data[: min(at, end)] + data[max(at, end) :]
            case 2:
                data = data[:at] + data[min(at, end) : max(at, end)] + data[at:]
            case _:
                data = data[:at] + rng.choice(TOKENS) + data[at:]
    return data


def read_all(layout: StoreLayout) -> None:
    """Every reader of JSON; none may raise anything but the refusal of a newer version."""
    began = time.monotonic()
    found = read_json(layout.consumer_offsets)
    assert found is None or isinstance(found, dict | list | str | int | float | bool)
    offsets = ConsumerOffsets(layout, read_only=True)
    offsets.load()
    for queue_id, stored in offsets.get("orders", "billing").items():
        assert 0 <= queue_id < 2**31
        assert 0 <= stored < 2**63
    try:
        state = load_store_state(layout)
    except ConfigError:
        state = None
    if state is not None:
        edges = [edge for part in state.foreign for edge in part]
        assert edges == sorted(edges)
        assert all(0 <= edge < 2**63 for edge in edges)
    assert time.monotonic() - began < PATIENCE_S


def test_changed_json(layout: StoreLayout, rng: random.Random) -> None:
    for _ in range(1000):
        layout.consumer_offsets.write_bytes(changed(rng, OFFSETS))
        layout.store_json.write_bytes(changed(rng, STATE))
        read_all(layout)


@generous
@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20,
))  # fmt: skip
def test_any_json_where_a_state_belongs(layout: StoreLayout, document: object) -> None:
    text = json.dumps(document).encode()
    layout.store_json.write_bytes(text)
    layout.consumer_offsets.write_bytes(json.dumps({"offsetTable": document}).encode())
    read_all(layout)
    layout.consumer_offsets.write_bytes(
        json.dumps({"offsetTable": {"orders@billing": document}}).encode()
    )
    read_all(layout)


@generous
@given(st.binary(max_size=300))
def test_any_bytes_where_json_belongs(layout: StoreLayout, data: bytes) -> None:
    layout.store_json.write_bytes(data)
    layout.consumer_offsets.write_bytes(data)
    read_all(layout)


@pytest.mark.parametrize("queue_id", ["9" * 5000, "9" * 19, "٣", "01", "-1", str(2**31)])
def test_a_queue_id_that_is_none_is_passed_over(layout: StoreLayout, queue_id: str) -> None:
    """Python refuses to read a number of 5000 digits: that must not keep a store from opening."""
    row = {queue_id: 5, "0": 7}
    layout.consumer_offsets.write_text(json.dumps({"offsetTable": {"orders@billing": row}}))
    offsets = ConsumerOffsets(layout, read_only=True)
    offsets.load()
    assert offsets.get("orders", "billing") == {0: 7}
    assert offsets.clamp(lambda topic, queue_id: 100) == []


@pytest.mark.parametrize("data", [b"[" * (1 << 20), b'{"a":' * (1 << 18), b'"' + b"\\" * (1 << 20)])
def test_deep_and_long_json_is_given_up_in_time(layout: StoreLayout, data: bytes) -> None:
    layout.store_json.write_bytes(data)
    layout.consumer_offsets.write_bytes(data)
    read_all(layout)


@generous
@given(st.binary(max_size=9000))
def test_any_bytes_as_checkpoints_and_positions(layout: StoreLayout, data: bytes) -> None:
    layout.own_checkpoint.write_bytes(data)
    layout.checkpoint.write_bytes(data)
    CheckpointFile(layout.own_checkpoint).load()
    assert len(RocketmqCheckpoint(layout.checkpoint).load()) == 6
    magic = MAGIC.to_bytes(8, sys.byteorder)
    for page in (data, (magic + data)[:4096].ljust(4096, b"\xff")):
        layout.positions.write_bytes(page)
        assert writer_pid(layout.positions) is None
        try:
            opened = PositionsPage.open_readonly(layout.positions)
        except FileNotFoundError:
            continue
        assert opened.state in State
        opened.close()
