"""Commands that look into a store whose log lies in several directories."""

from __future__ import annotations

import json
from itertools import cycle
from pathlib import Path

import pytest

from rocketstore.cli import exit_codes
from tests.support.made_store import MadeStore

NAMES = ("commitlog", "more", "old")


@pytest.fixture
def made(tmp_path: Path) -> MadeStore:
    made = MadeStore(tmp_path / "store")
    made.fill(90)
    files = sorted((made.root / "commitlog").iterdir())
    assert len(files) >= 5
    for name, file in zip(cycle(NAMES), files, strict=False):
        (made.root / name).mkdir(exist_ok=True)
        file.rename(made.root / name / file.name)
    return made


@pytest.fixture(params=["inside", "elsewhere"])
def option(request: pytest.FixtureRequest, made: MadeStore) -> tuple[str, str]:
    if request.param == "inside":
        return "--commit-log-dir", ",".join(NAMES)
    places = [made.root / name for name in NAMES]
    return "--commit-log-dir", ",".join(
        str(place.rename(made.root.with_name(place.name))) for place in places
    )


def test_each_command_reads_all_of_it(invoke, made: MadeStore, option: tuple[str, str]) -> None:
    record, last = made.records[-20], made.records[-1]
    result = invoke("tail", made.root, "orders", "-n", 90, "--format", "%O", *option)
    assert (result.exit_code, result.stderr) == (0, "")
    places = [record.physical_offset for record in made.records]
    assert [int(line) for line in result.stdout.split()] == places
    result = invoke("get", made.root, record.physical_offset, "--format", "%s\\c", *option)
    assert (result.stdout_bytes, result.stderr) == (record.body, "")
    result = invoke("query", made.root, "orders", "no key", *option)
    assert result.stderr == "rocketstore: no message of orders has the key 'no key'\n"
    result = invoke("stat", made.root, "--json", *option)
    found = json.loads(result.stdout)
    assert found["positions"]["end"] == last.physical_offset + last.size
    assert found["recovery"]["missing"] == []
    assert found["files"]["commitlog"]["files"] >= 5


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("tail", "orders", "-n", 3), exit_codes.DAMAGED),
        (("stat",), exit_codes.DAMAGED),
        (("get", 0), exit_codes.OK),
    ],
)
def test_without_it_the_missing_files_are_named(
    invoke, made: MadeStore, words: tuple[object, ...], code: int
) -> None:
    result = invoke(words[0], made.root, *words[1:])
    assert result.exit_code == code
    lines = result.stderr.splitlines()
    assert lines
    for line in lines:
        assert line.startswith("rocketstore: segments of the commit log are missing: ")
        assert line.endswith("several directories, --commit-log-dir has to name all of them")


def test_keys_of_a_log_that_lacks_segments(invoke, store_path: Path) -> None:
    """What is found is shown, and that it may not be all."""
    (store_path / "commitlog" / "00000000000002097152").write_bytes(bytes(1 << 20))
    result = invoke("query", store_path, "orders", "o-7", "--format", "%s")
    assert (result.exit_code, result.stdout) == (exit_codes.DAMAGED, "first 7\n")
    assert "segments of the commit log are missing" in result.stderr
