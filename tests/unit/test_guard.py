"""SIGBUS in native code: an error in our own loops, everybody else's business outside of them."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketstore import ReadFailedError
from rocketstore._native.dispatch.dispatch_loop import FAULT, DispatchLoop
from rocketstore._native.format import codec, index_file, queue_file, scanner
from rocketstore._native.format import queue_reader as unit_reader
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore._native.sync.positions import Positions
from tests.structure.source_tree import ROOT

PAGE = 4096


def record(physical_offset: int, body: bytes) -> bytes:
    return codec.encode_record(
        topic="orders",
        body=body,
        physical_offset=physical_offset,
        properties=b"TAGS\x01red\x02",
        store_timestamp_ms=1,
        born_host="10.1.2.3:54321",
        store_host="192.168.0.9:10911",
        record_crc=True,
    )


def log_file(path: Path, data: bytes) -> MappedFile:
    (path / "log").write_bytes(data)
    return MappedFile.open(path / "log", 0, len(data), "write")


@pytest.fixture
def cut_file(tmp_path: Path) -> Callable[[int], MappedFile]:
    """A mapped file of which another program has taken all bytes."""

    def make(size: int = 4 * PAGE) -> MappedFile:
        path = tmp_path / f"{size}"
        path.write_bytes(bytes(size))
        file = MappedFile.open(path, 0, size, "write")
        os.truncate(path, 0)
        return file

    return make


def test_reads_of_a_cut_file(cut_file: Callable[[int], MappedFile]) -> None:
    """D-34: copies, scans and units say that the bytes cannot be read."""
    size = index_file.file_size(10, 20)
    file, index = cut_file(4 * PAGE), cut_file(size)
    reads: list[Callable[[], object]] = [
        lambda: file.read(0, 10),
        lambda: file.read(0, 4 * PAGE),
        lambda: scanner.read_message(file, 0, PAGE, verify=0),
        lambda: scanner.scan_segment(file, 0, PAGE, verify=0),
        lambda: scanner.resynchronise(file, 1, PAGE, budget=scanner.SearchBudget()),
        lambda: unit_reader.read_units(
            file, 0, 3, (), PAGE, topic=b"t", queue_id=0, first_queue_offset=0, log_minimum=0,
            limit_offset=PAGE, verify=0, tags_codes=None,
        ),
        lambda: unit_reader.check_units(
            file, 0, 3, (), PAGE, topic=b"t", queue_id=0, first_queue_offset=0, log_minimum=0,
            limit_offset=PAGE, tags=True,
        ),
        lambda: queue_file.read_unit(file, 1),
        lambda: queue_file.written_units(file),
        lambda: queue_file.first_kept(file, 0, 10, 5),
        lambda: queue_file.physical_end(file, 10),
        lambda: queue_file.units_array(file, 0, 3),
        lambda: index_file.header(index, 10, 20),
        lambda: index_file.entry(index, 10, 20, 3),
        lambda: index_file.plausible(index, 10, 20),
        lambda: index_file.deduce(index),
        lambda: index_file.Walk(index, 10, 20, 5, 0, 10),
        lambda: index_file.validate(index, 10, 20),
        lambda: Positions.over(file).flushed,
        lambda: Positions.over(file).run_id,
        lambda: Positions.over(file).changes,
    ]  # fmt: skip
    for read in reads:
        with pytest.raises(ReadFailedError, match="cannot be read"):
            read()


def test_search_for_data_in_a_cut_file(tmp_path: Path) -> None:
    """D-34: what follows a file's new end within a page is zeros, what lies behind it cannot be read."""
    path = tmp_path / "file"
    path.write_bytes(bytes(4 * PAGE))
    file = MappedFile.open(path, 0, 4 * PAGE, "private")
    os.truncate(path, PAGE)
    assert file.find_data(0, PAGE) == PAGE
    with pytest.raises(ReadFailedError):
        file.find_data(0, 2 * PAGE)


def test_stores_to_a_cut_file(cut_file: Callable[[int], MappedFile]) -> None:
    """D-34: stores say EIO."""
    file, index = cut_file(4 * PAGE), cut_file(index_file.file_size(10, 20))
    stores: list[Callable[[], object]] = [
        lambda: file.write(5, b"x"),
        lambda: file.write(0, bytes(4 * PAGE)),
        lambda: file.zero(0, PAGE),
        lambda: queue_file.write_unit(file, 1, 0, 1, 2),
        lambda: queue_file.fill_pre_blank(file, 0, 10),
        lambda: queue_file.cut(file, 7),
        lambda: index_file.put(index, 10, 20, 20, 5, 100, 1000),
        lambda: index_file.cut(index, 10, 20, 5),
        lambda: Positions.over(file).format(),
        lambda: Positions().publish_to(Positions.over(file)),
        lambda: setattr(Positions.over(file), "flushed", 5),
        lambda: setattr(Positions.over(file), "run_id", bytes(16)),
        lambda: Positions.over(file).notify(),
    ]
    for store in stores:
        with pytest.raises(OSError, match="SIGBUS") as caught:
            store()
        assert caught.value.errno == errno.EIO
    with pytest.raises(OSError, match=os.strerror(errno.EFAULT)):
        file.populate(0, PAGE)


def test_a_message_whose_file_was_cut(tmp_path: Path) -> None:
    """D-13 D-34: a message that was handed out keeps its numbers; its texts cannot be read any more."""
    data = record(0, b"body " * 1000)
    file = log_file(tmp_path, data)
    message = scanner.read_message(file, 0, len(data), verify=0)
    again = scanner.read_message(file, 0, len(data), verify=0)
    assert message == again
    os.truncate(file.path, 0)
    assert message.size == len(data)
    for name in ("topic", "body", "properties", "tags", "message_id", "born_host", "tags_code"):
        with pytest.raises(ReadFailedError):
            getattr(message, name)
    for look in (bytes, repr, lambda m: m == again):
        with pytest.raises(ReadFailedError):
            look(message)


def test_dispatch_says_of_which_file_a_page_is_gone(tmp_path: Path) -> None:
    """D-34: the loop stops with the kind of the file; the records before are dispatched."""
    data = record(0, b"one")
    file = log_file(tmp_path, data)
    loop = DispatchLoop((), multi_dispatch=False, report_arrivals=False)
    os.truncate(file.path, 0)
    assert loop.run(file, 0, len(data)) == (FAULT, 0)
    assert loop.faulted == "log"


def test_faults_of_many_threads(cut_file: Callable[[int], MappedFile]) -> None:
    """D-34: each thread has its own guard."""
    file = cut_file(4 * PAGE)
    heard = []

    def read() -> None:
        for _ in range(300):
            try:
                file.read(PAGE, 100)
            except ReadFailedError:
                heard.append(1)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(heard) == 1200


PROLOGUE = """
import ctypes, faulthandler, mmap, os, signal, sys, tempfile
from rocketstore import ReadFailedError
from rocketstore._native.os import sigbus_guard as guard
from rocketstore._native.os.mapped_file import MappedFile
path = os.path.join(tempfile.mkdtemp(), "file")
def cut():
    open(path, "wb").write(bytes(8192))
    file = MappedFile.open(path, 0, 8192, "read")
    os.truncate(path, 0)
    return file
def guarded():
    try:
        cut().read(0, 10)
    except ReadFailedError:
        print("error", flush=True)
def unguarded():
    bytes(memoryview(cut()))
"""


def python(program: str) -> tuple[int, str, str]:
    """What becomes of a process: its end, and what it says."""
    done = subprocess.run(
        [sys.executable, "-c", PROLOGUE + program],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONFAULTHANDLER": ""},
    )
    return done.returncode, done.stdout, done.stderr


def test_a_view_that_the_caller_touches_is_not_protected() -> None:
    """D-34: outside our loops the process ends by the signal, as without us."""
    assert python("guarded(); unguarded(); print('alive')")[:2] == (-7, "error\n")


def test_a_handler_that_was_there_before_still_hears() -> None:
    """D-34: faulthandler, enabled first, tells where a fault outside our loops was; ours it never sees."""
    end, said, told = python("faulthandler.enable(); guarded(); guarded(); unguarded()")
    assert (end, said) == (-7, "error\nerror\n")
    assert told.count("Fatal Python error: Bus error") == 1
    assert "in unguarded" in told


def test_a_handler_that_came_later_may_pass_the_fault_on() -> None:
    """D-34: faulthandler takes the signal after us and passes it on by raise(): the fault recurs and comes
    to us. The next mapping takes the signal back."""
    end, said, _ = python("""
file = cut()
faulthandler.enable()
assert not guard.owns_signal()
try:
    file.read(0, 10)
except ReadFailedError:
    print("error", flush=True)
faulthandler.disable()
faulthandler.enable()
guarded()
assert guard.owns_signal()
guarded()
""")
    assert (end, said) == (0, "error\nerror\nerror\n")


def test_two_that_call_each_other_end_all_the_same() -> None:
    """D-34: faulthandler knows us as the one before it, we know it as the one before us."""
    end, said, told = python("cut(); faulthandler.enable(); guarded(); unguarded()")
    assert (end, said) == (-7, "error\n")
    assert "in unguarded" in told


def test_a_signal_that_is_sent_goes_to_the_handler_of_the_program() -> None:
    """D-34: kill(2) is no fault."""
    end, said, _ = python("""
signal.signal(signal.SIGBUS, lambda *_: print("heard", flush=True))
guarded()
os.kill(os.getpid(), signal.SIGBUS)
guarded()
""")
    assert (end, said) == (0, "error\nheard\nerror\n")


def test_an_ignored_signal_stays_ignored() -> None:
    """D-34: what is sent is ignored; a fault cannot be."""
    program = "signal.signal(signal.SIGBUS, signal.SIG_IGN); guarded(); "
    program += "os.kill(os.getpid(), signal.SIGBUS); print('alive', flush=True); unguarded()"
    assert python(program)[:2] == (-7, "error\nalive\n")


def test_nothing_is_taken_before_a_file_is_mapped() -> None:
    """D-34: importing the library changes no handler."""
    assert python("print(guard.owns_signal()); cut(); print(guard.owns_signal())")[:2] == (
        0,
        "False\nTrue\n",
    )
