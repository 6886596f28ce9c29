"""Segments of a crashed store that hold other bytes, or vanished: `recover`, its dry run, `verify`
and readers name what is lost, and nothing that is safe."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from tests.support.copies import copy_if_there
from tests.support.small_store import SEGMENT, SMALL, dispatched, open_small, parts

COUNT = 60
SHAPE = [f"--index-{n}={SMALL[f'index_{n}']}" for n in ("slots", "entries")]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a process leaves that is killed once all was dispatched and synced."""
    path = tmp_path_factory.mktemp("killed") / "s"
    with open_small(path.with_name("alive")) as store:
        for number in range(COUNT):
            for topic in ("a", "b"):
                store.writer(topic).put(b"%s-%03d" % (topic.encode(), number), keys=f"k{number}")
        parts(dispatched(store)).checkpointer.save(derived=True)
        shutil.copytree(path.with_name("alive"), path, copy_function=copy_if_there)
    return path


def segment(root: Path, number: int) -> Path:
    return root / "commitlog" / f"{number * SEGMENT:020d}"


def zero(root: Path) -> list[int]:
    segment(root, 1).write_bytes(bytes(SEGMENT))
    return [1]


def swap(root: Path) -> list[int]:
    one, other = segment(root, 1).read_bytes(), segment(root, 2).read_bytes()
    segment(root, 1).write_bytes(other)
    segment(root, 2).write_bytes(one)
    return [1, 2]


def older(root: Path) -> list[int]:
    """A copy of another segment in its place."""
    segment(root, 1).write_bytes(segment(root, 0).read_bytes())
    return [1]


def numbers_in(path: Path, segments: list[int]) -> dict[str, list[int]]:
    """Queue offsets by topic, of the records in these segments."""
    found: dict[str, list[int]] = {"a": [], "b": []}
    columns = ["topic", "queue_offset", "physical_offset"]
    for chunk in rocketstore.scan(path, columns=columns):
        names = list(chunk["topic"])
        for name, number, offset in zip(
            names, chunk["queue_offset"], chunk["physical_offset"], strict=True
        ):
            if int(offset) // SEGMENT in segments:
                key = name.decode() if isinstance(name, bytes) else str(name)
                found[key].append(int(number))
    return found


@pytest.mark.parametrize("damage", [zero, swap, older])
def test_recover_names_what_other_bytes_stand_for(
    damage: Callable[[Path], list[int]], killed: Path, tmp_path: Path, invoke: Callable[..., Any]
) -> None:
    path = tmp_path / "s"
    shutil.copytree(killed, path)
    lost = numbers_in(killed, damage(path))
    expected = [
        {"topic": topic, "queue_id": 0, "first": min(numbers), "last": max(numbers),
         "count": len(numbers), "why": "damaged", "stored_after_ms": 0}
        for topic, numbers in sorted(lost.items())
    ]  # fmt: skip
    for arguments in (["--dry-run"], [], []):
        shown = invoke("recover", path, "--json", *arguments)
        assert shown.exit_code == 3, shown.output
        assert json.loads(shown.stdout)["lost_messages"] == expected
    found = invoke("verify", path, *SHAPE)
    assert found.exit_code == 3


def test_verify_names_the_messages_of_a_segment_of_zeros(
    killed: Path, tmp_path: Path, invoke: Callable[..., Any]
) -> None:
    path = tmp_path / "s"
    shutil.copytree(killed, path)
    lost = numbers_in(killed, zero(path))
    found = invoke("verify", path, *SHAPE)
    for topic, numbers in lost.items():
        assert (
            f"{topic}/0: {min(numbers)} … {max(numbers)} ({len(numbers)} messages)" in found.stdout
        )
    assert "LOST" in found.stdout
    invoke("recover", path)
    assert "repair" in invoke("verify", path, *SHAPE).stderr
    assert invoke("repair", path).exit_code == 0
    assert invoke("verify", path, *SHAPE).exit_code == 0
    assert invoke("recover", path).exit_code == 0


def test_a_sound_store_lacks_nothing(
    killed: Path, tmp_path: Path, invoke: Callable[..., Any]
) -> None:
    path = tmp_path / "s"
    shutil.copytree(killed, path)
    for _ in range(2):
        shown = invoke("recover", path, "--json")
        assert shown.exit_code == 0
        assert json.loads(shown.stdout)["lost_messages"] == []


def test_vanished_segments_are_safe_and_all_say_so(
    killed: Path, tmp_path: Path, invoke: Callable[..., Any]
) -> None:
    """`rocketstore/live` has them, and the next open for writing links them back."""
    path = tmp_path / "s"
    shutil.copytree(killed, path)
    kept = sorted(file.name for file in (path / "rocketstore" / "live").iterdir())
    gone = [name for name in kept if int(name) < COUNT * 2 * 400]
    assert gone
    for name in gone:
        (path / "commitlog" / name).unlink()
    found = invoke("verify", path, *SHAPE)
    assert found.exit_code == 3
    assert "LOST" not in found.stdout
    assert "HIDDEN" not in found.stdout
    assert found.stderr.count("the next open for writing links it back") == len(gone)
    assert found.stderr.splitlines()[-1].startswith(f"rocketstore recover {path}")
    assert "give" not in found.stderr
    with open_small(path, "r") as reader:
        assert reader.max_queue_offset("a", 0) == COUNT
        [last] = reader.query("a", f"k{COUNT - 1}")
        assert last.body == b"a-%03d" % (COUNT - 1)
    assert sum(chunk.rows for chunk in rocketstore.scan(path, columns=["size"])) == 2 * COUNT
    reports = []
    for arguments in (["--dry-run"], []):
        shown = invoke("recover", path, "--json", *arguments)
        assert shown.exit_code == 0, shown.output
        report = json.loads(shown.stdout)
        assert sum("is linked back" in note for note in report["notes"]) == len(gone)
        reports.append((report["missing"], report["lost_messages"], report["topics"]))
    assert reports[0] == reports[1]
    assert all((path / "commitlog" / name).exists() for name in gone[:1])
    assert invoke("verify", path, *SHAPE).exit_code == 0
