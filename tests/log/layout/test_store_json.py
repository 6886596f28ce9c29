"""store.json: what a store is, in a file that later releases may extend."""

from __future__ import annotations

import json

import pytest

from rocketstore.errors import ConfigError
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.layout.store_json import (
    MAX_RANGES,
    VERSION,
    load_store_state,
    new_store_state,
    save_store_state,
)


def test_state_comes_back(layout: StoreLayout) -> None:
    state = new_store_state(created_ms=5, record_crc=True).with_foreign(10, 20)
    save_store_state(layout, state)
    assert load_store_state(layout) == state


def test_every_store_has_its_own_uuid() -> None:
    states = {new_store_state(created_ms=1, record_crc=True).uuid for _ in range(10)}
    assert len(states) == 10


def test_store_without_a_file_has_no_state(layout: StoreLayout) -> None:
    assert load_store_state(layout) is None


def test_foreign_ranges_are_joined() -> None:
    state = new_store_state(created_ms=1, record_crc=True)
    for start, end in ((50, 60), (10, 20), (20, 30), (55, 70), (5, 5)):
        state = state.with_foreign(start, end)
    assert state.foreign == ((10, 30), (50, 70))
    assert [state.is_foreign(offset) for offset in (9, 10, 29, 30, 69, 70)] == [
        False,
        True,
        True,
        False,
        True,
        False,
    ]


def test_foreign_ranges_have_a_bound() -> None:
    state = new_store_state(created_ms=1, record_crc=True)
    for number in range(MAX_RANGES + 10):
        state = state.with_foreign(number * 10, number * 10 + 1)
    assert len(state.foreign) == MAX_RANGES
    assert all(state.is_foreign(number * 10) for number in range(MAX_RANGES + 10))


def test_falls_of_store_times_come_back(layout: StoreLayout) -> None:
    """D-28: and where they lie tells which ranges have their times in order."""
    state = new_store_state(created_ms=1, record_crc=True).with_fall(100).with_fall(7000)
    save_store_state(layout, state)
    assert load_store_state(layout) == state
    assert state.falls == ((100, 101), (7000, 7001))
    ranges = ((0, 100), (0, 101), (100, 7000), (101, 7000), (101, 7001), (7001, 9000))
    assert [state.falls_within(*range_) for range_ in ranges] == [
        False, True, False, False, True, False,
    ]  # fmt: skip


def test_falls_of_store_times_have_a_bound() -> None:
    state = new_store_state(created_ms=1, record_crc=True)
    for number in range(MAX_RANGES + 10):
        state = state.with_fall(number * 10)
    assert len(state.falls) == MAX_RANGES
    assert all(state.falls_within(n * 10 - 1, n * 10 + 1) for n in range(MAX_RANGES + 10))


def test_newer_version_is_refused(layout: StoreLayout) -> None:
    layout.store_json.write_text(json.dumps({"version": VERSION + 1}))
    with pytest.raises(ConfigError, match="open the store with a newer rocketstore"):
        load_store_state(layout)


def test_unknown_names_are_kept(layout: StoreLayout) -> None:
    state = new_store_state(created_ms=5, record_crc=False)
    save_store_state(layout, state)
    document = json.loads(layout.store_json.read_text())
    layout.store_json.write_text(json.dumps({**document, "later": [1, 2]}))
    found = load_store_state(layout)
    assert found is not None
    save_store_state(layout, found.with_foreign(1, 2))
    assert json.loads(layout.store_json.read_text())["later"] == [1, 2]


GOOD = {
    "version": 1,
    "uuid": "12345678123456781234567812345678",
    "created_ms": 1,
    "record_crc": True,
    "foreign": [],
}


def test_file_of_another_hand_is_read(layout: StoreLayout) -> None:
    layout.store_json.write_text(json.dumps(GOOD))
    found = load_store_state(layout)
    assert found is not None
    assert (found.created_ms, found.record_crc) == (1, True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "17",
        '{"version": 1}',
        json.dumps({**GOOD, "version": "x"}),
        json.dumps({**GOOD, "uuid": 1}),
        json.dumps({**GOOD, "created_ms": -1}),
        json.dumps({**GOOD, "foreign": [[1]]}),
        json.dumps({**GOOD, "foreign": [[1, 2.5]]}),
        json.dumps({**GOOD, "foreign": 7}),
    ],
)
def test_file_that_nobody_can_read_is_no_state(text: str, layout: StoreLayout) -> None:
    layout.store_json.write_text(text)
    assert load_store_state(layout) is None
