"""Numbers that only rise: no lie brings one to its end, and each end is refused by a word or has a remedy."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketstore import FencedError, ReplicationError
from rocketstore._native.format.constants import MAGIC_BLANK
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.replication import Master, promote
from rocketstore.replication.protocol.classic import frame_header
from rocketstore.replication.protocol.epochs import (
    NUMBER_MAX,
    OFFSET_MAX,
    RISE_MOST,
    Epoch,
    believable,
    check_epochs,
    with_promotion,
    with_run,
)
from rocketstore.replication.protocol.frames import Accept, Kind, data_frame, frame
from rocketstore.replication.protocol.session import Identity, MasterSession, ReplicaSession
from rocketstore.replication.role.state import ReplicationState, load_state, save_state
from tests.replication.copies import (
    address_of,
    caught_up,
    open_copy,
    open_master,
    put_some,
    service_of,
)
from tests.replication.copies import copy_of as copy_at
from tests.replication.ends import Log, copy_of, joined, master_of
from tests.support.small_store import SEGMENT, open_small
from tests.support.state_json import change_json
from tests.support.waiting import wait_until

MASTER = Master(listen="127.0.0.1:0")


def liar(term: int, store_id: bytes) -> Log:
    return Log(
        bytearray(b"x" * 10),
        identity=Identity(store_id, (Epoch(term, 0, 0, b"A" * 8),)),
        segment_bytes=SEGMENT,
    )


def claim(address: str, log: Log) -> None:
    """Asks as a copy with this history, and reads to the end."""
    host, port = address.rsplit(":", 1)
    session = ReplicaSession(log)
    with socket.create_connection((host, int(port))) as sock:
        sock.sendall(joined(session.start()))
        while not session.ready:
            session.receive(memoryview(sock.recv(4096)))
        sock.sendall(joined(session.ask(0)))
        while sock.recv(4096):
            pass


def _state(root: Path) -> ReplicationState:
    state = load_state(StoreLayout(root))
    assert state is not None
    return state


def test_a_claim_burns_no_term(tmp_path: Path) -> None:
    """The master goes on, and says what it did not believe."""
    with open_master(tmp_path) as master:
        put_some(master, 2)
        store_id = _state(tmp_path).store_id
        for term in (NUMBER_MAX, RISE_MOST + 2):
            claim(address_of(master), liar(term, store_id))
            wait_until(lambda term=term: f"of term {term}" in str(service_of(master).last_error))
        put_some(master, 2)
    assert _state(tmp_path).fenced_by is None
    assert promote(tmp_path).term == 2


def test_the_farthest_claim_fences_and_the_store_is_promoted_again(tmp_path: Path) -> None:
    with open_master(tmp_path) as master:
        put_some(master, 2)
        claim(address_of(master), liar(RISE_MOST + 1, _state(tmp_path).store_id))
        wait_until(lambda: _state(tmp_path).fenced_by == RISE_MOST + 1)
        with pytest.raises(FencedError):
            put_some(master, 1)
    assert promote(tmp_path).term == RISE_MOST + 2
    with open_small(tmp_path, replication=MASTER) as master:
        put_some(master, 1)


@pytest.mark.parametrize(
    ("term", "known", "believed"),
    [
        (RISE_MOST + 1, 1, True),
        (RISE_MOST + 2, 1, False),
        (NUMBER_MAX - RISE_MOST, 0, True),
        (NUMBER_MAX - RISE_MOST + 1, 0, False),
    ],
)
def test_a_term_rises_by_so_much_at_most(term: int, known: int, believed: bool) -> None:
    """At both ends; one that knows nothing leaves room for promotions."""
    assert believable(term, known) is believed
    epochs = (Epoch(term, 0, 0, b"A" * 8),)
    copy = copy_of(master_of(b"x" * 100), 50) if known else Log()
    session = ReplicaSession(copy)
    session.start()
    session.receive(memoryview(frame(Kind.CHALLENGE, bytes(34))))
    session.ask(0)
    accept = Accept(b"m" * 16, 0, False, 100, 100, epochs)
    refused = refusal(session, frame(Kind.ACCEPT, accept.pack()))
    assert (f"a master of term {term}" in refused) is not believed
    if known:
        master = MasterSession(master_of(b"x" * 100))
        asks = ReplicaSession(Log(bytearray(b"x" * 10), identity=Identity(b"m" * 16, epochs)))
        master.receive(memoryview(joined(asks.start())))
        asks.receive(memoryview(joined(master.replies())))
        refused = refusal(master, joined(asks.ask(0)))
        assert (f"a replica of term {term}" in refused) is not believed


def refusal(session: MasterSession | ReplicaSession, said: bytes) -> str:
    try:
        session.receive(memoryview(said))
    except ReplicationError as error:
        return str(error)
    return ""


def test_a_promotion_goes_no_farther(tmp_path: Path) -> None:
    with open_master(tmp_path) as master:
        put_some(master, 2)
    for above in (RISE_MOST + 2, NUMBER_MAX - 1, 2**70):
        with pytest.raises(ReplicationError, match=f"above: {above} is no term"):
            promote(tmp_path, above=above)
    assert promote(tmp_path, above=RISE_MOST + 1).term == RISE_MOST + 2


def test_at_the_last_term_the_named_remedy_works(tmp_path: Path) -> None:
    """As an earlier program may have left it."""
    with open_master(tmp_path / "m") as master:
        put_some(master, 2)
    layout = StoreLayout(tmp_path / "m")
    save_state(layout, dataclasses.replace(_state(tmp_path / "m"), fenced_by=NUMBER_MAX))
    with pytest.raises(ReplicationError, match=r"remove rocketstore/replication\.json"):
        promote(tmp_path / "m")
    layout.replication.unlink()
    with open_master(tmp_path / "m") as master:
        put_some(master, 2)
        with open_copy(tmp_path / "c", master) as copy:
            caught_up(copy, master)
    assert promote(tmp_path / "c").term == 2


def test_at_the_last_run_nothing_is_written_that_cannot_be_read(tmp_path: Path) -> None:
    with open_master(tmp_path) as master:
        put_some(master, 2)
    last = dataclasses.replace(_state(tmp_path).epochs[-1], run=NUMBER_MAX)
    save_state(StoreLayout(tmp_path), dataclasses.replace(_state(tmp_path), epochs=(last,)))
    before = StoreLayout(tmp_path).replication.read_bytes()
    for options in ({}, {"replication": MASTER}):
        with pytest.raises(ReplicationError, match="begin a new term with 'rocketstore promote'"):
            open_small(tmp_path, **options)  # type: ignore[arg-type]
    assert StoreLayout(tmp_path).replication.read_bytes() == before
    assert promote(tmp_path).term == 2
    with open_small(tmp_path, replication=MASTER) as master:
        put_some(master, 1)


def test_the_last_numbers_are_read_again() -> None:
    first = with_run((), begin=0, end=9)
    check_epochs(with_run((dataclasses.replace(first[0], run=NUMBER_MAX - 1),), begin=0, end=9))
    check_epochs(with_promotion(first, begin=0, end=9, above=NUMBER_MAX - 1))


@pytest.mark.parametrize(
    "value", [NUMBER_MAX + 1, pytest.param(10**4000, id="huge"), -1, True, "x"]
)
def test_a_fence_of_no_term_is_refused(tmp_path: Path, value: Any) -> None:
    with open_master(tmp_path) as master:
        put_some(master, 1)
    path = StoreLayout(tmp_path).replication
    change_json(path, fenced_by=value)
    with pytest.raises(ReplicationError, match="does not tell the role"):
        promote(tmp_path)


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
        service = copy_at(copy)
        wait_until(lambda: service.stopped is not None)
        assert isinstance(service.stopped, ReplicationError)
        assert "can follow theirs" in caplog.text
        assert copy.end_offset == (END - 2 * SEGMENT if back == 3 else 0)
    with open_small(tmp_path, "r") as copy:
        assert copy.end_offset == (END - 2 * SEGMENT if back == 3 else 0)
