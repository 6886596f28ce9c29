"""Commands on stores of other shapes: files of other sizes, and a log that lies in several directories."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.cli import exit_codes
from tests.cli.conftest import Invoke
from tests.support.made_store import MadeStore

#: A broker's own sizes: 20 units a queue file, index files of 50 slots and 200 entries.
OWN = {
    "commit_log_file_size_bytes": 16384,
    "consume_queue_file_size_bytes": 400,
    "index_slots": 50,
    "index_entries": 200,
}
INDEX_BYTES = 40 + 4 * 50 + 20 * 200
BROKER_CONF = """
storePathRootDir = {root}
mappedFileSizeCommitLog = 16384
mappedFileSizeConsumeQueue = 400
maxHashSlotNum = 50
maxIndexNum = 200
"""
COMMANDS = (["recover"], ["rebuild"], ["repair"])


@pytest.fixture
def own_sizes(tmp_path: Path) -> Path:
    """As a broker with its own sizes leaves a store: nothing of ours is in it."""
    path = tmp_path / "store"
    with rocketstore.open(path, **OWN) as store:
        writer = store.writer("orders", keys="k")
        for number in range(50):
            writer.put(b"%d" % number)
    return path


def as_of_a_broker(path: Path) -> None:
    shutil.rmtree(path / "rocketstore")
    lock = path / "lock"
    lock.write_bytes(b"lock" + lock.read_bytes()[4:])


def sizes(path: Path) -> tuple[set[int], set[int]]:
    queues = {one.stat().st_size for one in (path / "consumequeue").rglob("*") if one.is_file()}
    return queues, {one.stat().st_size for one in (path / "index").iterdir()}


def messages(path: Path) -> int:
    with rocketstore.open(path, "r") as store:
        assert len(store.query("orders", "k", limit=64)) == 50
        return store.max_queue_offset("orders", 0)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("gone", ["consumequeue", "index", "both"])
def test_a_broker_conf_says_the_sizes(
    invoke: Invoke, own_sizes: Path, tmp_path: Path, command: list[str], gone: str
) -> None:
    for name in ("consumequeue", "index") if gone == "both" else (gone,):
        shutil.rmtree(own_sizes / name)
    as_of_a_broker(own_sizes)
    conf = tmp_path / "broker.conf"
    conf.write_text(BROKER_CONF.format(root=own_sizes))
    result = invoke(*command, own_sizes, "--config", conf)
    assert result.exit_code == 0, result.output
    if command == ["repair"]:
        with rocketstore.open(own_sizes):  # nothing was damaged: this open makes what is gone
            pass
    assert sizes(own_sizes) == ({400}, {INDEX_BYTES})
    assert messages(own_sizes) == 50


@pytest.mark.parametrize("command", COMMANDS)
def test_files_that_are_there_say_the_sizes(
    invoke: Invoke, own_sizes: Path, command: list[str]
) -> None:
    as_of_a_broker(own_sizes)
    result = invoke(*command, own_sizes)
    assert result.exit_code == 0, result.output
    assert sizes(own_sizes) == ({400}, {INDEX_BYTES})


@pytest.mark.parametrize("command", [["recover"], ["rebuild"]])
def test_the_store_remembers_the_sizes(invoke: Invoke, own_sizes: Path, command: list[str]) -> None:
    shutil.rmtree(own_sizes / "consumequeue")
    shutil.rmtree(own_sizes / "index")
    (own_sizes / "abort").touch()
    result = invoke(*command, own_sizes)
    assert result.exit_code == 0, result.output
    assert sizes(own_sizes) == ({400}, {INDEX_BYTES})
    assert messages(own_sizes) == 50


@pytest.mark.parametrize("command", [["recover"], ["rebuild"]])
def test_a_size_that_nothing_tells_is_named(
    invoke: Invoke, own_sizes: Path, command: list[str]
) -> None:
    shutil.rmtree(own_sizes / "consumequeue")
    shutil.rmtree(own_sizes / "index")
    as_of_a_broker(own_sizes)
    result = invoke(*command, own_sizes)
    assert "new ones get 6000000 bytes" in result.output
    assert "new ones get 5000000 slots and 20000000 entries" in result.output
    assert sizes(own_sizes) == ({6_000_000}, {420_000_040})


def test_sizes_of_another_broker_conf_are_refused(
    invoke: Invoke, own_sizes: Path, tmp_path: Path
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog = 16384\nmappedFileSizeConsumeQueue = 800\n")
    result = invoke("recover", own_sizes, "--config", conf)
    assert result.exit_code == 1
    assert "the files of this store have 400" in result.stderr


@pytest.mark.parametrize(
    "words", [["stat"], ["tail", "orders"], ["verify"], ["query", "orders", "k"]]
)
def test_commands_that_read_take_a_broker_conf(
    invoke: Invoke, own_sizes: Path, tmp_path: Path, words: list[str]
) -> None:
    elsewhere = tmp_path / "log"
    (own_sizes / "commitlog").rename(elsewhere)
    as_of_a_broker(own_sizes)
    conf = tmp_path / "broker.conf"
    conf.write_text(f"{BROKER_CONF.format(root=own_sizes)}storePathCommitLog = {elsewhere}\n")
    name, *more = words
    result = invoke(name, own_sizes, *more, "--config", conf)
    assert result.exit_code == 0, result.output


def test_a_broker_conf_says_the_sizes_of_what_ingest_makes(invoke: Invoke, tmp_path: Path) -> None:
    """As on every command that makes files; `--segment-bytes` wins over it."""
    conf, lines = tmp_path / "broker.conf", tmp_path / "lines"
    conf.write_text(BROKER_CONF.format(root=tmp_path / "elsewhere"))
    lines.write_text("a\nb\n")
    for more, size in (([], 16384), (["--segment-bytes", "8192"], 8192)):
        path = tmp_path / f"store-{size}"
        result = invoke("ingest", path, lines, "--topic", "orders", "--config", conf, *more)
        assert result.exit_code == 0, result.output
        assert (path / "commitlog" / f"{0:020d}").stat().st_size == size
        assert sizes(path)[0] == {400}
        with rocketstore.open(path, "r") as store:
            assert (store.config.index_slots, store.config.index_entries) == (50, 200)


def test_bench_measures_files_of_the_sizes_of_a_broker_conf(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(BROKER_CONF.format(root=tmp_path))
    opened = []

    @contextmanager
    def noted(*args: Any, reads: bool, **options: Any) -> Iterator[list[Any]]:
        opened.append(options)
        yield []

    monkeypatch.setattr("rocketstore.cli.commands.bench.open_sides", noted)
    words = ("--config", conf, "--directory", tmp_path, "--size", "10", "--durability", "os")
    result = invoke("bench", *words)
    assert result.exit_code == 0, result.output
    assert opened == [{**OWN, "record_crc": False}]


def test_a_broker_that_keeps_more_elsewhere_is_named(
    invoke: Invoke, own_sizes: Path, tmp_path: Path
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("indexRocksDBEnable = true\nstoreType = default\n")
    result = invoke("stat", own_sizes, "--config", conf)
    assert result.exit_code == 0, result.output
    said = "indexRocksDBEnable = true: keys in RocksDB are not found here"
    assert result.stderr == f"rocketstore: {conf}: {said}\n"


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
