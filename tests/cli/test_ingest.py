"""ingest: lines in, the same lines out, and where a stopped run goes on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.cli import exit_codes

PATIENCE_S = 60.0


def bodies(path: Path, topic: str, queue_id: int | None = None) -> list[bytes]:
    with rocketstore.open(path, "r") as store:
        return [bytes(message.body) for message in store.consumer(topic, queue_id=queue_id)]


@pytest.mark.parametrize("durability", ["memory", "os", "disk"])
def test_lines_of_a_file_become_messages(invoke, tmp_path: Path, durability: str) -> None:
    lines = tmp_path / "lines"
    expected = [b"", b"one", b"with\r", b"\xff\x00binary", b"x" * 5000, b"last, no newline"]
    lines.write_bytes(b"\n".join(expected))
    store = tmp_path / "store"
    with rocketstore.open(store, commit_log_file_size_bytes=1 << 20) as opened:
        opened.writer("other").put(b"makes the first file")
    result = invoke("ingest", store, lines, "--topic", "t", "--durability", durability)
    assert result.exit_code == 0, result.stderr
    assert "stored 6 lines" in result.output
    assert "the next line is 7" in result.output
    assert bodies(store, "t") == expected


def test_lines_of_a_pipe_become_messages(start, tmp_path: Path) -> None:
    child = start("ingest", tmp_path / "store", "--topic", "t", "--durability", "os", "--tags", "a")
    _, errors = child.communicate("one\ntwo\n", timeout=PATIENCE_S)
    assert (child.returncode, errors) == (0, "")
    with rocketstore.open(tmp_path / "store", "r") as store:
        found = [(bytes(m.body), m.tags) for m in store.consumer("t")]
    assert found == [(b"one", "a"), (b"two", "a")]


def test_an_empty_input_stores_nothing(invoke, tmp_path: Path) -> None:
    (tmp_path / "lines").touch()
    result = invoke("ingest", tmp_path / "store", tmp_path / "lines", "--topic", "t")
    assert result.exit_code == 0
    assert "stored 0 lines" in result.output


def test_more_lines_than_one_batch_and_one_read(invoke, tmp_path: Path) -> None:
    expected = [b"%d" % n * (n % 40) for n in range(30_000)]
    (tmp_path / "lines").write_bytes(b"".join(line + b"\n" for line in expected))
    words = ("ingest", tmp_path / "store", tmp_path / "lines", "--topic", "t")
    assert invoke(*words, "--durability", "os").exit_code == 0
    assert bodies(tmp_path / "store", "t") == expected


@pytest.mark.parametrize("durability", ["os", "disk"])
def test_queues_take_turns(invoke, tmp_path: Path, durability: str) -> None:
    (tmp_path / "lines").write_bytes(b"".join(b"%d\n" % n for n in range(9)))
    words = ("ingest", tmp_path / "store", tmp_path / "lines", "--topic", "t", "--queues", 3)
    assert invoke(*words, "--durability", durability).exit_code == 0
    found = [bodies(tmp_path / "store", "t", n) for n in range(3)]
    assert [len(queue) for queue in found] == [3, 3, 3]
    assert sorted(int(body) for queue in found for body in queue) == list(range(9))


@pytest.mark.parametrize(("flushed", "next_line"), [(0, 1), (1, 2), (2, 3), (4, 5)])
def test_lines_in_turns_that_are_not_on_the_disk_do_not_count(
    invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flushed: int, next_line: int
) -> None:
    """The sync fails behind the fourth line, or nobody reached it: what is on the disk counts."""
    ends: list[int] = [0]
    real = rocketstore.Writer.put

    def put(self: rocketstore.Writer, *words: Any, **named: Any) -> rocketstore.PutResult:
        result = real(self, *words, **named)
        ends.append(result.end_offset)
        return result

    def fails(self: rocketstore.Store, end_offset: int) -> None:
        assert end_offset == ends[-1]
        raise rocketstore.StoreFailedError("a sync failed")

    monkeypatch.setattr(rocketstore.Writer, "put", put, raising=False)
    monkeypatch.setattr(rocketstore.Store, "wait_flushed", fails)
    monkeypatch.setattr(rocketstore.Store, "flushed_offset", property(lambda _: ends[flushed]))
    (tmp_path / "lines").write_bytes(b"a\nb\nc\nd\n")
    words = ("ingest", tmp_path / "store", tmp_path / "lines", "--topic", "t")
    result = invoke(*words, "--segment-bytes", 1 << 20, "--queues", 2)
    assert result.exit_code == exit_codes.FAILED
    assert result.stderr.splitlines() == [
        f"rocketstore: line {next_line}: a sync failed",
        f"resume with --start-line {next_line}",
    ]


def test_lines_in_front_of_one_that_fails_are_waited_for(
    invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = []
    put, wait = rocketstore.Writer.put, rocketstore.Store.wait_flushed

    def full(self: rocketstore.Writer, body: bytes, **named: Any) -> rocketstore.PutResult:
        if body == b"c":
            raise rocketstore.DiskFullError(28, "no room for a file", "the segment")
        return put(self, body, **named)

    def noted(self: rocketstore.Store, end_offset: int) -> None:
        wait(self, end_offset)
        waited.append(end_offset == self.end_offset == self.flushed_offset)

    monkeypatch.setattr(rocketstore.Writer, "put", full, raising=False)
    monkeypatch.setattr(rocketstore.Store, "wait_flushed", noted)
    (tmp_path / "lines").write_bytes(b"a\nb\nc\nd\n")
    words = ("ingest", tmp_path / "store", tmp_path / "lines", "--topic", "t")
    result = invoke(*words, "--segment-bytes", 1 << 20, "--queues", 2)
    assert result.stderr.splitlines()[-1] == "resume with --start-line 3"
    assert waited == [True]


def test_start_line_skips_what_is_stored(invoke, tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"".join(b"%d\n" % n for n in range(1, 11)))
    words = ("ingest", tmp_path / "store", tmp_path / "lines", "--topic", "t")
    result = invoke(*words, "--start-line", 8)
    assert "the next line is 11" in result.output
    assert bodies(tmp_path / "store", "t") == [b"8", b"9", b"10"]


def test_a_start_line_behind_the_input_is_an_error(invoke, tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"1\n2\n3\n4\n5\n")
    words = ("ingest", tmp_path / "store", tmp_path / "lines", "--topic", "t")
    words = (*words, "--segment-bytes", 1 << 20)
    result = invoke(*words, "--start-line", 7)
    assert (result.exit_code, result.stdout) == (exit_codes.FAILED, "")
    assert result.stderr == "rocketstore: --start-line 7: the input has 5 lines\n"
    result = invoke(*words, "--start-line", 6)  # the next one: all are stored
    assert (result.exit_code, "stored 0 lines" in result.stdout) == (0, True)


def test_a_new_store_gets_files_of_the_size_that_is_asked_for(invoke, tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"one\n")
    words = ("ingest", tmp_path / "store", tmp_path / "lines", "--topic", "t", "--segment-bytes")
    for _ in range(2):
        assert invoke(*words, 65536).exit_code == 0
    (file,) = (tmp_path / "store" / "commitlog").iterdir()
    assert file.stat().st_size == 65536
    assert bodies(tmp_path / "store", "t") == [b"one", b"one"]
    result = invoke(*words, 1 << 20)
    assert result.exit_code == exit_codes.FAILED
    assert "the files of this store have 65536" in result.stderr
    assert invoke(*words, 100).exit_code == exit_codes.USAGE


def test_a_disk_without_room_for_a_segment_is_told_of_smaller_ones(
    invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise rocketstore.DiskFullError(28, "no room for a file", "the segment")

    monkeypatch.setattr(rocketstore.Writer, "put_batch", full, raising=False)
    (tmp_path / "lines").write_bytes(b"one\n")
    words = ("ingest", tmp_path / "store", tmp_path / "lines", "--topic", "t")
    result = invoke(*words)
    assert result.exit_code == exit_codes.FAILED
    assert result.stderr.splitlines() == [
        "rocketstore: line 1: the segment: no room for a file; "
        "--segment-bytes makes a new store with smaller files",
        "resume with --start-line 1",
    ]


def test_a_line_that_no_message_can_hold_names_itself(invoke, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with rocketstore.open(store, commit_log_file_size_bytes=64 * 1024) as opened:
        opened.writer("other").put(b"makes the first file")
    (tmp_path / "lines").write_bytes(b"a\nb\n" + b"c" * 100_000 + b"\nd\n")
    result = invoke("ingest", store, tmp_path / "lines", "--topic", "t")
    assert result.exit_code == exit_codes.FAILED
    first, second = result.stderr.splitlines()
    assert first.startswith("rocketstore: line 3: 100000 bytes")
    assert second == "resume with --start-line 3"
    assert bodies(store, "t") == [b"a", b"b"]


WORDS = [
    "t",
    "%",
    "a|b",
    "|",
    "||",
    "a||b",
    " a",
    "a ",
    "\t",
    "",
    "/x",
    "../x",
    "a b",
    "é",
    "\xa0a",
]
WORDS += ["\x01", "a\x02b", "\x03a", "\udcff", "t" * 127, "t" * 128, "t" * 300, "é" * 128]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rocketstore.Store]:
    path = tmp_path_factory.mktemp("library") / "store"
    with rocketstore.open(path, durability="os", commit_log_file_size_bytes=1 << 20) as store:
        yield store


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("option", ["--topic", "--tags"])
def test_what_the_library_refuses_is_a_wrong_argument_and_makes_no_store(
    invoke, tmp_path: Path, library: rocketstore.Store, option: str, word: str
) -> None:
    (tmp_path / "lines").write_bytes(b"a\n")
    words = ("ingest", tmp_path / "store", tmp_path / "lines", "--segment-bytes", 1 << 20)
    if option == "--tags":
        words = (*words, "--topic", "t")
    try:
        library.writer(word if option == "--topic" else "t").put(
            b"", tags=word if option == "--tags" else None
        )
        refused = len(word.encode()) > 255  # the command's own limit
    except rocketstore.MessageRejectedError:
        refused = True
    result = invoke(*words, option, word)
    assert result.exit_code == (exit_codes.USAGE if refused else 0), result.stderr
    assert (f"for '{option}'" in result.stderr) == refused
    assert (tmp_path / "store").exists() != refused


@pytest.mark.parametrize("words", [("--queue-id", 2**31), ("--queues", 65537)])
def test_queues_that_no_topic_has_make_no_store(
    invoke, tmp_path: Path, words: tuple[object, ...]
) -> None:
    (tmp_path / "lines").write_bytes(b"a\n")
    result = invoke("ingest", tmp_path / "store", tmp_path / "lines", "--topic", "t", *words)
    assert result.exit_code == exit_codes.USAGE
    assert not (tmp_path / "store").exists()


def test_the_longest_names_leave_room_in_a_batch(invoke, tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"\n" * 5000)
    words = ("ingest", tmp_path / "store", tmp_path / "lines", "--durability", "os")
    names = ("--topic", "t" * 127, "--tags", "x" * 255)
    assert invoke(*words, "--segment-bytes", 65536, *names).exit_code == 0
    assert bodies(tmp_path / "store", "t" * 127) == [b""] * 5000


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, exit_codes.INTERRUPTED), (signal.SIGTERM, exit_codes.TERMINATED)],
)
def test_a_signal_while_a_pipe_is_quiet_stops_cleanly(
    start, tmp_path: Path, number: int, code: int
) -> None:
    store = tmp_path / "store"
    child = start("ingest", store, "--topic", "t", "--durability", "os")
    assert child.stdin is not None
    child.stdin.write("".join(f"{n}\n" for n in range(1000)) + "not whole")
    child.stdin.flush()
    wait_for_messages(child, store, "t", 1000)
    child.send_signal(number)
    # Standard input stays open: only the signal ends it.
    assert child.wait(PATIENCE_S) == code
    assert child.stderr is not None
    assert child.stderr.read() == "resume with --start-line 1001\n"
    with rocketstore.open(store, "r") as opened:
        assert opened.max_queue_offset("t", 0) == 1000
        assert opened.recovery.mode == "clean"


@pytest.mark.parametrize("write", [False, True])
def test_a_named_pipe_is_waited_for_until_a_signal_comes(
    start, tmp_path: Path, write: bool
) -> None:
    store, pipe = tmp_path / "store", tmp_path / "pipe"
    os.mkfifo(pipe)
    child = start("ingest", store, pipe, "--topic", "t", "--segment-bytes", 1 << 20)
    wait_for_messages(child, store, "t", 0)
    if write:  # what a writer gave is stored when it ends
        with pipe.open("wb") as writer:
            writer.write(b"one\ntwo\n")
        assert child.wait(PATIENCE_S) == 0
        assert bodies(store, "t") == [b"one", b"two"]
        return
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=PATIENCE_S)
    assert (child.returncode, errors) == (exit_codes.INTERRUPTED, "resume with --start-line 1\n")


def test_an_input_that_cannot_be_read_is_named(start, tmp_path: Path) -> None:
    with open(tmp_path / "for writing", "w") as unreadable:
        words = ("ingest", tmp_path / "store", "--topic", "t", "--segment-bytes", 1 << 20)
        child = start(*words, stdin=unreadable)
        _, errors = child.communicate(timeout=PATIENCE_S)
    assert child.returncode == exit_codes.FAILED
    assert errors.splitlines() == [
        "rocketstore: line 1: the input: Bad file descriptor",
        "resume with --start-line 1",
    ]


def test_stopped_and_resumed_stores_each_line_once(start, tmp_path: Path) -> None:
    """Ctrl-C while lines pour in; the line that is named is the first one missing."""
    store = tmp_path / "store"
    lines = tmp_path / "lines"
    lines.write_bytes(b"".join(b"line %d\n" % n for n in range(400_000)))
    words = ("ingest", store, lines, "--topic", "t", "--durability", "os")
    child = start(*words, "--queues", 2)
    wait_for_messages(child, store, "t", 1)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=PATIENCE_S)
    assert child.returncode in (exit_codes.INTERRUPTED, 0)
    if child.returncode:
        resume = re.fullmatch(r"resume with --start-line (\d+)\n", errors)
        assert resume is not None, errors
        again = start(*words, "--queues", 2, "--start-line", resume[1])
        assert again.wait(PATIENCE_S) == 0
    found = bodies(store, "t", 0) + bodies(store, "t", 1)
    assert len(found) == 400_000
    assert len(set(found)) == 400_000


def wait_for_messages(child: subprocess.Popen[str], path: Path, topic: str, count: int) -> None:
    """Until a reader in this process sees `count` messages of the child."""
    deadline = time.monotonic() + PATIENCE_S
    while not (path / "rocketstore" / "positions").exists():
        assert child.poll() is None, child.communicate()
        assert time.monotonic() < deadline, "the store was not made"
    while True:
        with rocketstore.open(path, "r") as store, store.consumer(topic) as consumer:
            seen = 0
            while seen < count and (batch := consumer.poll(count, timeout_s=1.0)):
                seen += len(batch)
            if seen >= count:
                return
        assert child.poll() is None, child.communicate()
        assert time.monotonic() < deadline, f"{seen} messages of {count}"


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "rmq_sys_rocketstore_transactions"])
def test_topics_of_services_are_refused_before_anything_is_made(
    invoke, tmp_path: Path, topic: str
) -> None:
    """The next open would deliver the lines, or try to execute them."""
    result = invoke("ingest", tmp_path / "store", "--topic", topic, input="line\n")
    assert result.exit_code == exit_codes.USAGE
    assert f"{topic!r}: services of a store act upon what lies there" in " ".join(
        result.stderr.split()
    )
    assert not (tmp_path / "store").exists()
