"""Stores that RocketMQ wrote, opened with ours: everything it acknowledged is served, field by field."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from tests.support.reference_stores import Expectation, compare, find_stores, open_reference
from tests.support import paths

STORES = find_stores(paths.STORES)


def image(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_there_are_seventeen() -> None:
    assert len(STORES) == 17


@pytest.mark.parametrize("expected", STORES, ids=lambda e: e.name)
def test_read_only(expected: Expectation, tmp_path: Path) -> None:
    """S001-06: slots, unqueued records, keys and fields; nothing on disk is touched."""
    root = expected.unpack(tmp_path)
    before = image(root)
    with open_reference(expected, root, "r") as store:
        found = compare(expected, store, "r")
    assert not found.mismatches, "\n".join(found.mismatches)
    assert found.messages >= sum(map(len, expected.slots.values()))
    assert image(root) == before


@pytest.mark.parametrize("expected", STORES, ids=lambda e: e.name)
def test_for_writing_and_again(expected: Expectation, tmp_path: Path) -> None:
    """The same after a repair, after a put, and after our own clean stop."""
    root = expected.unpack(tmp_path)
    with open_reference(expected, root, "rw") as store:
        found = compare(expected, store, "rw")
        assert not found.mismatches, "\n".join(found.mismatches)
        assert store.recovery.mode.startswith("foreign")
        ours = store.writer("rocketstore-put").put(b"ours", keys="own").physical_offset
    with open_reference(expected, root, "rw") as store:
        assert store.recovery.mode == "clean"
        assert [m.body for m in store.query("rocketstore-put", "own")] == [b"ours"]
        found = compare(expected, store, "rw again")
        # The put of above is one message more, maybe where a torn one stood.
        odd = [text for text in found.mismatches if "rocketstore-put" not in text]
        odd = [text for text in odd if str(ours) not in text]
        assert not odd, "\n".join(odd)


@pytest.mark.parametrize("expected", STORES, ids=lambda e: e.name)
def test_tags_codes_of_the_units(expected: Expectation, tmp_path: Path) -> None:
    """S001-43 S001-44: what RocketMQ's units hold is what ours hold after all were rebuilt: hash codes
    of tags, and delivery times for delayed messages."""
    root = expected.unpack(tmp_path)
    shutil.rmtree(root / "consumequeue", ignore_errors=True)
    open_reference(expected, root, "rw").close()
    wrong = []
    for (topic, queue_id), slots in expected.slots.items():
        directory = root / "consumequeue" / topic / str(queue_id)
        files = {int(path.name): path.read_bytes() for path in directory.iterdir()}
        size = len(next(iter(files.values())))
        for queue_offset, (physical_offset, tags_code) in slots.items():
            at = queue_offset * 20
            unit = files[at - at % size][at % size : at % size + 20]
            code = int.from_bytes(unit[12:], "big", signed=True)
            if (int.from_bytes(unit[:8], "big"), code) != (physical_offset, tags_code):
                wrong.append(
                    (topic, queue_id, queue_offset, unit.hex(), physical_offset, tags_code)
                )
    assert not wrong, wrong[:5]
