"""trim and compact: what goes, what stays and why; a dry run; exit codes and wrong arguments."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

import rocketstore
from tests.support.small_store import SEGMENT, dispatched, open_small, segments
from tests.support.waiting import pause


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    path = tmp_path / "s"
    with open_small(path) as store:
        for n in range(60):
            store.put_message("orders", b"%02d" % n * 150)
        dispatched(store)
    return path


def test_a_dry_run_then_the_run(invoke, filled: Path) -> None:
    names = [path.name for path in segments(filled)]
    most = ("--max-bytes", 4 * SEGMENT)
    said = invoke("trim", "--dry-run", *most, filled)
    assert said.exit_code == 0, said.stderr
    assert [path.name for path in segments(filled)] == names
    done = invoke("trim", *most, filled)
    assert done.output == said.output
    assert [path.name for path in segments(filled)] == names[-4:]
    lines = done.output.splitlines()
    assert lines[0].startswith(f"{len(names) - 4} segments of {len(names)} go, ")
    assert lines[1].startswith(f"{names[0]} goes: the log has ")
    assert lines[-1] == f"{names[-1]} stays: the last segment always stays"
    report = json.loads(invoke("trim", "--dry-run", "--json", *most, filled).output)
    assert (report["count"], report["bytes"], len(report["segments"])) == (0, 0, 4)


def test_a_dry_run_of_a_store_that_is_open(invoke, filled: Path) -> None:
    with open_small(filled):
        said = invoke("trim", "--dry-run", "--before", round(time.time() * 1000) - 1, filled)
        assert said.exit_code == 0, said.stderr
        assert "goes: older than" in said.output
        locked = invoke("trim", "--max-bytes", "4K", filled)
        assert locked.exit_code == 4, locked.output


def test_ages_and_holds(invoke, filled: Path) -> None:
    said = invoke("trim", "--max-age", "1h", filled)
    assert said.output.startswith("0 segments of ")
    assert "old, max_age is 1:00:00" in said.output
    pause(1.1)
    for held, why in (
        (("--keep-unshipped",), "never shipped (from 0)"),
        (("--keep-unconsumed-by", "b\x1b[1m"), r"group b\x1b[1m has stored no offset yet"),
    ):
        said = invoke("trim", "--max-age", "1s", *held, filled)
        assert said.exit_code == 0, said.stderr
        assert why in said.output
        assert said.output.startswith("0 segments of ")
    said = invoke("trim", "--max-age", "1s", "--keep-unconsumed-by", "all", filled)
    assert not said.output.startswith("0 segments of ")
    with rocketstore.open(filled, "r") as store:
        assert store.begin_offset > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "give --before, --max-age or --max-bytes"),
        (("--max-age", "7"), "no span above 0, such as 90m, 12h, 7d or 2w"),
        (("--max-age", "0d"), "no span above 0"),
        (("--max-age", "999999999w"), "longer than any clock counts"),
        (("--max-bytes", "0"), "no size above 0, such as 50G or 1048576"),
        (("--max-bytes", "-1"), "no size above 0"),
        (("--before", "2999-01-01T00:00:00Z"), "is to come"),
        (("--before", "5", "--max-age", "1d"), "give one of them"),
        (
            ("--max-age", "1d", "--keep-unconsumed-by", "all", "--keep-unconsumed-by", "b"),
            "includes every other group",
        ),
    ],
)
def test_wrong_arguments(invoke, filled: Path, words: tuple[str, ...], said: str) -> None:
    result = invoke("trim", *words, filled)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())
    assert len(segments(filled)) > 5


@pytest.fixture
def with_keys(tmp_path: Path) -> Path:
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


def test_a_dry_run_of_compact_then_the_run(invoke, with_keys: Path, tmp_path: Path) -> None:
    into = tmp_path / "t"
    plan = invoke("compact", "--dry-run", "--topic", "users", with_keys, into)
    assert plan.exit_code == 0, plan.stderr
    assert (
        "22 messages with 4 keys: 5 would be kept (1 tombstone among them), 17 super" in plan.output
    )
    assert not into.exists()
    done = invoke("compact", "--grace", "0s", "--topic", "users", with_keys, into)
    assert done.exit_code == 0, done.stderr
    assert done.output.splitlines()[1:] == [
        "1 message without a key: kept",
        f"read from {with_keys}: physical offsets 0 … {segments(with_keys) and end_of(with_keys)}",
    ]
    assert bodies(into) == [b"17", b"18", b"19", b"no key"]
    assert invoke("verify", into).exit_code == 0
    again = invoke("compact", "--topic", "users", with_keys, into)
    assert again.exit_code == 1
    assert "it is not empty" in again.stderr


def end_of(path: Path) -> int:
    with open_small(path, "r") as store:
        return store.visible_offset


def test_new_offsets(invoke, with_keys: Path, tmp_path: Path) -> None:
    done = invoke("compact", "--new-offsets", "--topic", "users", with_keys, tmp_path / "t")
    assert done.exit_code == 0, done.stderr
    with rocketstore.open(tmp_path / "t", "r") as store:
        assert [message.queue_offset for message in store.consumer("users")] == [0, 1, 2, 3, 4]


def test_other_choices(invoke, with_keys: Path, tmp_path: Path) -> None:
    choices = ("--keep-tombstones", "--drop-without-key", "--json")
    with open_small(with_keys):  # a writer may live meanwhile
        done = invoke("compact", *choices, "--topic", "users", with_keys, tmp_path / "t")
    report = json.loads(done.output)
    assert (report["kept"], report["without_key"], report["without_key_kept"]) == (4, 1, 0)
    assert (report["tombstones_kept"], report["damage_count"]) == (0, 0)
    assert bodies(tmp_path / "t") == [b"17", b"18", b"19", b""]


def test_damage(invoke, with_keys: Path, tmp_path: Path) -> None:
    with segments(with_keys)[0].open("r+b") as file:
        file.seek(90)
        file.write(b"\xff")
    refused = invoke("compact", "--topic", "users", with_keys, tmp_path / "t")
    assert (refused.exit_code, (tmp_path / "t").exists()) == (3, False)
    done = invoke("compact", "--skip-damage", "--topic", "users", with_keys, tmp_path / "t")
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
def test_wrong_arguments_of_compact(
    invoke, with_keys: Path, tmp_path: Path, arguments: tuple[str, ...], code: int
) -> None:
    given = [one.format(s=with_keys, t=tmp_path / "t") for one in arguments]
    assert invoke("compact", *given).exit_code == code


def test_help(invoke) -> None:
    shown = invoke("compact", "--help")
    assert shown.exit_code == 0
    assert "latest message of each key" in shown.output
    assert "--grace" in shown.output
