"""compact: what is printed, exit codes, wrong arguments."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import rocketstore
from tests.support.small_store import dispatched, open_small, segments


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    path = tmp_path / "s"
    with open_small(path) as store:
        for n in range(20):
            store.put_message("users", b"%d" % n, properties={"KEYS": f"k{n % 4}"})
        store.put_message("users", b"no key")
        store.put_message("users", b"", properties={"KEYS": "k0"})
        dispatched(store)
    return path


def bodies(path: Path) -> list[bytes]:
    with rocketstore.open(path, "r") as store:
        return [message.body for message in store.consumer("users")]


def test_a_dry_run_then_the_run(invoke, filled: Path, tmp_path: Path) -> None:
    into = tmp_path / "t"
    plan = invoke("compact", "--dry-run", "--topic", "users", filled, into)
    assert plan.exit_code == 0, plan.stderr
    assert (
        "22 messages with 4 keys: 5 would be kept (1 tombstone among them), 17 super" in plan.output
    )
    assert not into.exists()
    done = invoke("compact", "--grace", "0s", "--topic", "users", filled, into)
    assert done.exit_code == 0, done.stderr
    assert done.output.splitlines()[1:] == [
        "1 message without a key: kept",
        f"read from {filled}: physical offsets 0 … {segments(filled) and end_of(filled)}",
    ]
    assert bodies(into) == [b"17", b"18", b"19", b"no key"]
    assert invoke("verify", into).exit_code == 0
    again = invoke("compact", "--topic", "users", filled, into)
    assert again.exit_code == 1
    assert "it is not empty" in again.stderr


def end_of(path: Path) -> int:
    with open_small(path, "r") as store:
        return store.visible_offset


def test_new_offsets(invoke, filled: Path, tmp_path: Path) -> None:
    done = invoke("compact", "--new-offsets", "--topic", "users", filled, tmp_path / "t")
    assert done.exit_code == 0, done.stderr
    with rocketstore.open(tmp_path / "t", "r") as store:
        assert [message.queue_offset for message in store.consumer("users")] == [0, 1, 2, 3, 4]


def test_other_choices(invoke, filled: Path, tmp_path: Path) -> None:
    choices = ("--keep-tombstones", "--drop-without-key", "--json")
    with open_small(filled):  # a writer may live meanwhile
        done = invoke("compact", *choices, "--topic", "users", filled, tmp_path / "t")
    report = json.loads(done.output)
    assert (report["kept"], report["without_key"], report["without_key_kept"]) == (4, 1, 0)
    assert (report["tombstones_kept"], report["damage_count"]) == (0, 0)
    assert bodies(tmp_path / "t") == [b"17", b"18", b"19", b""]


def test_damage(invoke, filled: Path, tmp_path: Path) -> None:
    with segments(filled)[0].open("r+b") as file:
        file.seek(90)
        file.write(b"\xff")
    refused = invoke("compact", "--topic", "users", filled, tmp_path / "t")
    assert (refused.exit_code, (tmp_path / "t").exists()) == (3, False)
    done = invoke("compact", "--skip-damage", "--topic", "users", filled, tmp_path / "t")
    assert done.exit_code == 3
    assert "damage in the source: [0, " in done.output


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--topic", "users"), 2),
        (("{s}", "{t}"), 2),
        (("--topic", "users", "--grace", "x", "{s}", "{t}"), 2),
        (("--topic", "nobody", "{s}", "{t}"), 1),
        (("--topic", "users", "{s}", "{s}/t"), 1),
        (("--topic", "users", "{t}", "{t}2"), 1),
    ],
)
def test_wrong_arguments(
    invoke, filled: Path, tmp_path: Path, arguments: tuple[str, ...], code: int
) -> None:
    given = [one.format(s=filled, t=tmp_path / "t") for one in arguments]
    assert invoke("compact", *given).exit_code == code


def test_help(invoke) -> None:
    shown = invoke("compact", "--help")
    assert shown.exit_code == 0
    assert "latest message of each key" in shown.output
    assert "--grace" in shown.output
