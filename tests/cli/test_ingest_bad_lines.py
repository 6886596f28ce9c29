"""ingest: lines that no message can hold, and the lines before and after them."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.cli import exit_codes
from tests.support.waiting import wait_until

PATIENCE_S = 60.0


def bodies(path: Path, topic: str) -> list[bytes]:
    with rocketstore.open(path, "r") as store:
        return [bytes(message.body) for message in store.consumer(topic)]


@pytest.mark.parametrize("size", [70_000, 200_000, 1_000_000])  # in one read, and in several
@pytest.mark.parametrize("newline", [b"", b"\n"], ids=["cut", "whole"])
def test_an_over_long_line_blocks_no_other(
    invoke, tmp_path: Path, size: int, newline: bytes
) -> None:
    """It is named by its number, --start-line steps over it, --bad-lines goes on after it."""
    store, lines, bad = tmp_path / "store", tmp_path / "lines", tmp_path / "bad"
    with rocketstore.open(store, commit_log_file_size_bytes=64 * 1024) as opened:
        opened.writer("other").put(b"makes the first file")
    long = b"x" * size
    lines.write_bytes(b"one\n" + long + b"\n\n\xff\x00four\n" + long + newline)
    words = ("ingest", store, lines, "--topic", "t")
    for start_line, number, stored in (
        (1, 2, [b"one"]),
        (2, 2, []),
        (3, 5, [b"", b"\xff\x00four"]),
    ):
        before = bodies(store, "t")
        result = invoke(*words, "--start-line", start_line)
        assert result.exit_code == exit_codes.FAILED
        first, second = result.stderr.splitlines()
        assert first.startswith(f"rocketstore: line {number}: ") and "--bad-lines skip" in first
        assert second == f"resume with --start-line {number}"
        assert bodies(store, "t") == before + stored
    result = invoke(*words, "--start-line", 6)
    assert (result.exit_code, result.stderr) == (0, "")
    expected = [b"one", b"", b"\xff\x00four"]
    named = [f"rocketstore: line {n}: {size} bytes: this store takes at most 65416" for n in (2, 5)]
    for topic, choice, done in (
        ("skipped", "skip", "left out"),
        ("diverted", bad, f"it is in {bad}"),
    ):
        result = invoke("ingest", store, lines, "--topic", topic, "--bad-lines", choice)
        assert result.exit_code == 0, result.stderr
        assert bodies(store, topic) == expected
        assert "stored 3 lines" in result.stdout and "2 lines; the next line is 6" in result.stdout
        found = result.stderr.splitlines()
        assert [line.split(" of a line;")[0] for line in found] == named
        assert all(line.endswith(done) for line in found)
    assert bad.read_bytes() == (long + b"\n") * 2
    invoke(*words, "--bad-lines", bad, "--start-line", 3)  # appends
    assert bad.read_bytes() == (long + b"\n") * 3


@pytest.mark.parametrize("words", [(), ("--queues", 2)])
def test_a_line_that_the_files_have_no_room_for_is_a_bad_one(
    invoke, tmp_path: Path, words: tuple[Any, ...]
) -> None:
    """Its body may be as long, with topic and tag no file takes it."""
    lines = tmp_path / "lines"
    lines.write_bytes(b"one\n" + b"x" * 65_400 + b"\nthree\n")
    words = ("ingest", tmp_path / "s", lines, "--topic", "t" * 99, "--tags", "g" * 99, *words)
    words = (*words, "--segment-bytes", 65536)
    result = invoke(*words)
    assert result.stderr.splitlines()[0].startswith("rocketstore: line 2: 65400 bytes: the message")
    result = invoke(*words, "--start-line", 2, "--bad-lines", "skip")
    assert result.exit_code == 0
    assert sorted(bodies(tmp_path / "s", "t" * 99)) == [b"one", b"three"]


def test_a_stop_within_an_over_long_line_leaves_no_part_of_it(start, tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.write_bytes(b"cut by a kill")
    words = ("ingest", tmp_path / "s", "--topic", "t", "--segment-bytes", 65536, "--bad-lines", bad)
    child = start(*words)
    child.stdin.write("one\n" + "x" * 70_000 + "\n" + "y" * 300_000)
    child.stdin.flush()
    wait_until(lambda: bad.exists() and bad.stat().st_size >= 340_000)
    child.send_signal(signal.SIGTERM)
    assert child.wait(PATIENCE_S) == exit_codes.TERMINATED
    assert child.stderr.read().splitlines()[-1] == "resume with --start-line 3"
    assert bad.read_bytes() == b"cut by a kill\n" + b"x" * 70_000 + b"\n"


@pytest.mark.parametrize("choice", ["lines", "pipe", "missing/bad"])
def test_where_bad_lines_cannot_go_is_refused_before_a_store_is_made(
    invoke, tmp_path: Path, choice: str
) -> None:
    (tmp_path / "lines").write_bytes(b"one\n")
    os.mkfifo(tmp_path / "pipe")
    words = ("ingest", tmp_path / "s", tmp_path / "lines", "--topic", "t")
    result = invoke(*words, "--bad-lines", tmp_path / choice)
    assert result.exit_code == exit_codes.USAGE
    assert "--bad-lines" in result.stderr
    assert not (tmp_path / "s").exists()
    assert (tmp_path / "lines").read_bytes() == b"one\n"


def test_bad_lines_that_have_no_room_stop_the_run(invoke, tmp_path: Path, monkeypatch) -> None:
    real = os.write

    def full(descriptor: int, data: bytes) -> int:
        if len(data) > 70_000:
            raise OSError(28, "No space left on device")
        return real(descriptor, data)

    monkeypatch.setattr("rocketstore.cli.lines.os.write", full)
    (tmp_path / "lines").write_bytes(b"one\n" + b"x" * 70_000 + b"\nthree\n")
    words = ("ingest", tmp_path / "s", tmp_path / "lines", "--topic", "t", "--segment-bytes", 65536)
    result = invoke(*words, "--bad-lines", tmp_path / "bad")
    assert result.exit_code == exit_codes.FAILED
    first, second = result.stderr.splitlines()
    assert first.startswith("rocketstore: line 2: ") and str(tmp_path / "bad") in first
    assert second == "resume with --start-line 2"
    assert bodies(tmp_path / "s", "t") == [b"one"]
