"""The socket of a store is found at any path, by those that may come, and by no copy of a fork."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketstore.log.layout.ownership import make_directories
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.sharing.meeting import Listener, connect, peer_of, process_name, process_state
from tests.support.forking import in_child
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.quick,
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]

STRANGER = 65_533


@contextlib.contextmanager
def listening(layout: StoreLayout) -> Iterator[Listener]:
    listener = Listener(layout)
    try:
        yield listener
    finally:
        listener.close()
        listener.leave()


def meets(layout: StoreLayout, listener: Listener) -> None:
    """A connection carries what is sent, both ways, and both know the other's process."""
    found = connect(layout)
    assert found is not None
    ours, pid = found
    theirs, guest = listener.accept()
    with ours, theirs:
        assert (pid, guest) == (os.getpid(), os.getpid())
        for one, other in ((ours, theirs), (theirs, ours)):
            one.setblocking(True)
            one.sendall(b"hello")
            other.setblocking(True)
            assert other.recv(5) == b"hello"


def deep(root: Path, length: int) -> Path:
    """A directory whose path has so many characters, or some more."""
    while len(os.fspath(root)) < length:
        root /= "d" * min(200, max(1, length - len(os.fspath(root)) - 1))
    return root


@pytest.mark.parametrize("length", [90, 107, 108, 300, 3000])
def test_a_path_may_have_any_length(tmp_path: Path, length: int) -> None:
    layout = StoreLayout(deep(tmp_path, length))
    os.makedirs(layout.root)
    make_directories(layout)
    with listening(layout) as listener:
        meets(layout, listener)


def test_a_relative_path_and_another_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    layout = StoreLayout(Path("store"))
    make_directories(layout)
    with listening(layout) as listener:
        monkeypatch.chdir("/")
        meets(layout, listener)
        meets(StoreLayout(tmp_path / "store"), listener)


def test_nobody_listens(layout: StoreLayout) -> None:
    assert connect(layout) is None
    assert connect(StoreLayout(layout.root / "none")) is None
    layout.host_socket.write_bytes(b"a file")
    assert connect(layout) is None
    layout.host_socket.unlink()
    with socket.socket(socket.AF_UNIX) as bound, listening(layout) as listener:
        layout.host_socket.rename(layout.own / "other")  # of one that was killed
        assert connect(layout) is None
        bound.bind(f"/proc/self/fd/{listener._directory}/host.sock")
        assert connect(layout) is None  # bound, and listens not yet


@pytest.mark.parametrize("kind", ["socket", "file", "link"])
def test_what_lies_in_the_place_of_the_socket_goes(layout: StoreLayout, kind: str) -> None:
    """Only a holder of the lock makes one, so it is nobody's."""
    if kind == "socket":
        with listening(layout):
            os.link(layout.host_socket, layout.own / "kept")
        (layout.own / "kept").rename(layout.host_socket)
    elif kind == "file":
        layout.host_socket.write_bytes(b"x")
    else:
        (layout.root / "target").write_bytes(b"kept")
        layout.host_socket.symlink_to(layout.root / "target")
    with listening(layout) as listener:
        meets(layout, listener)
    assert not os.path.lexists(layout.host_socket)
    if kind == "link":
        assert (layout.root / "target").read_bytes() == b"kept"


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_the_socket_is_of_the_user_alone(layout: StoreLayout, umask: int) -> None:
    before = os.umask(umask)
    try:
        with listening(layout) as listener:
            made = layout.host_socket.lstat()
            meets(layout, listener)
    finally:
        os.umask(before)
    assert (stat.S_ISSOCK(made.st_mode), stat.S_IMODE(made.st_mode)) == (True, 0o600)


def test_a_directory_that_takes_no_socket_is_named(
    layout: StoreLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoSocket(socket.socket):
        def bind(self, address: object) -> None:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(socket, "socket", NoSocket)
    with pytest.raises(OSError, match=r"no socket can be made here.*host\.sock"):
        Listener(layout)
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_a_close_wakes_the_thread_that_accepts(layout: StoreLayout) -> None:
    listener = Listener(layout)
    ended: list[OSError] = []

    def accept() -> None:
        try:
            listener.accept()
        except OSError as error:
            ended.append(error)

    thread = threading.Thread(target=accept)
    thread.start()
    listener.close()
    thread.join()
    listener.leave()
    assert ended[0].errno == errno.EINVAL
    assert not layout.host_socket.exists()
    assert connect(layout) is None


def test_a_moved_store_keeps_its_socket(layout: StoreLayout) -> None:
    with listening(layout) as listener:
        moved = layout.root.rename(layout.root.parent / "moved")
        make_directories(layout)
        with listening(layout) as other:
            meets(StoreLayout(moved), listener)
            meets(layout, other)
    assert not (moved / "rocketstore/host.sock").exists()


# ---- who may come ----


@pytest.fixture
def open_to_all(layout: StoreLayout) -> Iterator[Listener]:
    """A listener whose socket every user can reach."""
    with listening(layout) as listener:
        for path in (layout.own, *layout.own.parents):
            if path != Path("/") and path.stat().st_uid == os.geteuid():
                with contextlib.suppress(PermissionError):
                    path.chmod(path.stat().st_mode | 0o711)
        layout.host_socket.chmod(0o666)
        yield listener


@pytest.mark.root
def test_another_user_is_sent_away_unread(layout: StoreLayout, open_to_all: Listener) -> None:
    got: list[int] = []

    def accept() -> None:
        sock, pid = open_to_all.accept()
        sock.close()
        got.append(pid)

    thread = threading.Thread(target=accept)
    thread.start()

    def stranger() -> None:
        directory = os.open(layout.own, os.O_PATH)
        os.setresuid(STRANGER, STRANGER, STRANGER)
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(f"/proc/self/fd/{directory}/host.sock")
            with contextlib.suppress(BrokenPipeError):
                sock.sendall(b"\x10\0\0\0" + b"x" * 16)
            with contextlib.suppress(ConnectionResetError):
                assert sock.recv(1) == b""

    assert in_child(stranger) == 0
    assert thread.is_alive()
    found = connect(layout)
    thread.join()
    assert got == [os.getpid()]
    assert found is not None
    found[0].close()


@pytest.mark.root
def test_a_socket_of_another_user_is_not_believed(layout: StoreLayout) -> None:
    """One who may write into the directory has put it there."""
    for path in (layout.own, *layout.own.parents):
        if path != Path("/") and path.stat().st_uid == 0:
            path.chmod(path.stat().st_mode | 0o711)
    layout.own.chmod(0o777)
    ready, go_on = os.pipe()
    end, ended = os.pipe()

    def stranger() -> None:
        os.close(ended)
        directory = os.open(layout.own, os.O_PATH)
        os.setresuid(STRANGER, STRANGER, STRANGER)
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(f"/proc/self/fd/{directory}/host.sock")
            sock.listen()
            os.write(go_on, b"x")
            os.read(end, 1)

    children: list[int] = []
    thread = threading.Thread(target=lambda: children.append(in_child(stranger)))
    thread.start()
    os.read(ready, 1)
    with pytest.raises(PermissionError, match=f"of user {STRANGER}, the store of 0"):
        connect(layout)
    os.close(ended)
    thread.join()
    assert children == [0]
    for fd in (ready, go_on, end):
        os.close(fd)


@pytest.mark.root
def test_a_host_of_root_serves_the_user_of_the_store(layout: StoreLayout) -> None:
    for path in (layout.own, layout.root):
        os.chown(path, STRANGER, STRANGER)
    with listening(layout):
        made = layout.host_socket.lstat()
    assert (made.st_uid, made.st_gid, stat.S_IMODE(made.st_mode)) == (STRANGER, STRANGER, 0o600)


def test_peers_of_this_user_of_the_owner_and_of_root_may_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, other = socket.socketpair()
    with one, other:
        assert peer_of(one, STRANGER) == os.getpid()
        own = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
        assert peer_of(one, own) == os.getpid()
        if own:
            with pytest.raises(PermissionError, match=f"user {own}"):
                peer_of(one, STRANGER)


# ---- forks ----


def end_of(sock: socket.socket) -> bool:
    """Whether the other side has ended."""
    sock.setblocking(False)
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False


def test_a_child_keeps_nothing_open(layout: StoreLayout) -> None:
    """The end of a connection is the end of its process, though a child of it lives."""
    with listening(layout) as listener:
        found = connect(layout)
        assert found is not None
        ours, (theirs, _) = found[0], listener.accept()
        waits, go_on = os.pipe()
        begun, begins = os.pipe()
        numbers = {ours.fileno(), theirs.fileno()}

        def child() -> None:
            os.close(go_on)
            os.write(begins, b".")
            assert {os.readlink(f"/proc/self/fd/{n}") for n in numbers} == {os.devnull}
            ours.close()  # closes no number that is another's by now
            os.read(waits, 1)

        ended: list[int] = []
        thread = threading.Thread(target=lambda: ended.append(in_child(child)))
        thread.start()
        os.read(begun, 1)
        ours.close()
        wait_until(lambda: end_of(theirs))
        theirs.close()
    assert connect(layout) is None  # no copy of the listener is left
    os.close(go_on)
    thread.join()
    for number in (waits, begun, begins):
        os.close(number)
    assert ended == [0]


def test_a_child_closes_nothing_that_is_another_s(layout: StoreLayout, tmp_path: Path) -> None:
    """A number that was ours and is used again is left alone."""
    with listening(layout) as listener:
        found = connect(layout)
        assert found is not None
        number = found[0].fileno()
        found[0].close()
        listener.accept()[0].close()
        other = os.open(tmp_path, os.O_RDONLY)
        if other != number:
            os.dup2(other, number)
            os.close(other)

        def child() -> None:
            assert os.path.samestat(os.fstat(number), os.stat(tmp_path))

        assert in_child(child) == 0
        os.close(number)


def test_forks_while_connections_are_born(layout: StoreLayout) -> None:
    """A fork waits for a descriptor that is made and not adopted yet: no child gets one."""
    stop = threading.Event()
    with listening(layout) as listener:

        def come_and_go() -> None:
            while not stop.is_set():
                found = connect(layout)
                if found is not None:
                    listener.accept()[0].close()
                    found[0].close()

        def child() -> None:
            links = [
                os.readlink(f"/proc/self/fd/{name}")
                for name in os.listdir("/proc/self/fd")
                if os.path.lexists(f"/proc/self/fd/{name}")
            ]
            new = [link for link in links if link.startswith("socket:") and link not in before]
            assert new == []

        before = {
            os.readlink(f"/proc/self/fd/{name}")
            for name in os.listdir("/proc/self/fd")
            if os.path.lexists(f"/proc/self/fd/{name}")
        } - {f"socket:[{os.fstat(listener._socket.fileno()).st_ino}]"}
        thread = threading.Thread(target=come_and_go)
        thread.start()
        try:
            results: list[int] = [in_child(child) for _ in range(20)]
        finally:
            stop.set()
            thread.join()
        assert results == [0] * 20


# ---- processes ----


def test_what_is_said_of_processes() -> None:
    assert process_state(os.getpid()) == "running"
    assert process_state(0) == process_state(None) == process_state(2**22 + 1) == "gone"
    assert process_name(os.getpid()) == Path("/proc/self/comm").read_text().strip()
    assert process_name(2**22 + 1) == "?"


def test_no_descriptor_is_left(layout: StoreLayout) -> None:
    def all_of_it() -> None:
        with listening(layout) as listener:
            meets(layout, listener)
        assert connect(layout) is None

    all_of_it()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        all_of_it()
    assert len(os.listdir("/proc/self/fd")) == before
