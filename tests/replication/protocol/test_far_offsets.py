"""Bytes at the end of the offsets that there are: refused by a word, not by the end of a thread."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketstore import ReplicationError
from rocketstore._native.format.constants import MAGIC_BLANK
from rocketstore.replication.protocol.classic import frame_header
from rocketstore.replication.protocol.epochs import OFFSET_MAX, Epoch
from rocketstore.replication.protocol.frames import Accept, Kind, data_frame, frame
from tests.replication.copies import copy_of, open_copy
from tests.replication.ends import joined
from tests.support.small_store import SEGMENT, open_small
from tests.support.waiting import wait_until

END = OFFSET_MAX + 1
#: A blank of one whole file.
BLANK = struct.pack(">II", SEGMENT, MAGIC_BLANK).ljust(SEGMENT, b"\0")


def _own(start: int) -> tuple[bytes, ...]:
    """What a master says, an answer for each word of the copy."""
    epochs = (Epoch(1, 0, 0, b"A" * 8),)
    accept = frame(Kind.ACCEPT, Accept(b"S" * 16, start, False, OFFSET_MAX, SEGMENT, epochs).pack())
    files = [joined(data_frame(1, at, 2**64 - 1, memoryview(BLANK))) for at in _files(start)]
    return frame(Kind.CHALLENGE, bytes(34)), accept + b"".join(files)


def _classic(start: int) -> tuple[bytes, ...]:
    return (b"".join(frame_header(at, SEGMENT) + BLANK for at in _files(start)),)


def _files(start: int) -> list[int]:
    return list(range(start, END, SEGMENT))


@contextlib.contextmanager
def lying_master(answers: tuple[bytes, ...]) -> Iterator[str]:
    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = listener.accept()
                with sock, contextlib.suppress(OSError):
                    for answer in answers:
                        sock.recv(4096)
                        sock.sendall(answer)
                    while sock.recv(4096):
                        pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize("back", [1, 2, 3])
@pytest.mark.parametrize("protocol", ["rocketstore", "rocketmq"])
def test_bytes_that_no_file_can_hold_are_refused(
    tmp_path: Path, protocol: Any, back: int, caplog: pytest.LogCaptureFixture
) -> None:
    """From the last file on, and where one that can be held comes before."""
    start = END - back * SEGMENT
    answers = _own(start) if protocol == "rocketstore" else _classic(start)
    begin = {"begin": start} if protocol == "rocketmq" else {}
    with (
        lying_master(answers) as address,
        open_copy(tmp_path, address, protocol=protocol, **begin) as copy,
    ):
        service = copy_of(copy)
        wait_until(lambda: service.stopped is not None)
        assert isinstance(service.stopped, ReplicationError)
        assert "can follow theirs" in caplog.text
        assert copy.end_offset == (END - 2 * SEGMENT if back == 3 else 0)
    with open_small(tmp_path, "r") as copy:
        assert copy.end_offset == (END - 2 * SEGMENT if back == 3 else 0)
