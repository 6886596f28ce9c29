"""`_native.os.syscalls`: the lock that processes share, and what tells a forked child."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketstore._native.os import syscalls

pytestmark = pytest.mark.quick

Child = Callable[[Callable[[], object]], None]


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    fd = syscalls.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


# ---- the lock ----

#: A process with a POSIX lock on byte 0, as RocketMQ takes it.
POSIX_HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
print("locked", flush=True)
sys.stdin.read()
"""


def test_two_descriptions_exclude_each_other(tmp_path: Path, file: int) -> None:
    """D-04"""
    other = syscalls.open(tmp_path / "file", os.O_RDWR)
    assert syscalls.lock_first_byte(file)
    assert not syscalls.lock_first_byte(other)
    assert syscalls.first_byte_holder(other) == -1
    assert syscalls.first_byte_holder(file) is None
    syscalls.unlock_first_byte(file)
    assert syscalls.first_byte_holder(other) is None
    assert syscalls.lock_first_byte(other)
    os.close(other)


def test_a_posix_lock_excludes_ours_and_names_its_process(tmp_path: Path, file: int) -> None:
    """D-04"""
    command = [sys.executable, "-c", POSIX_HOLDER, str(tmp_path / "file")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        assert not syscalls.lock_first_byte(file)
        assert syscalls.first_byte_holder(file) == holder.pid
    assert syscalls.lock_first_byte(file)


def test_our_lock_excludes_posix_locks(tmp_path: Path, file: int) -> None:
    """D-04"""
    assert syscalls.lock_first_byte(file)
    command = [sys.executable, "-c", POSIX_HOLDER, str(tmp_path / "file")]
    done = subprocess.run(command, input=b"", capture_output=True, check=False)
    assert done.returncode != 0
    assert b"BlockingIOError" in done.stderr


def test_a_childs_end_leaves_the_lock(tmp_path: Path, file: int, in_child: Child) -> None:
    """D-35"""
    assert syscalls.lock_first_byte(file)
    in_child(lambda: os.close(file))
    other = syscalls.open(tmp_path / "file", os.O_RDONLY)
    assert syscalls.first_byte_holder(other) == -1
    os.close(other)


# ---- forks ----


def test_a_child_knows_that_it_is_one(probe: Any, in_child: Child) -> None:
    """D-35"""

    def child() -> None:
        assert syscalls.forked()
        assert probe.is_forked()

    assert not syscalls.forked()
    assert not probe.is_forked()
    in_child(child)


def test_a_raw_fork_is_noticed_too() -> None:
    """D-35: fork(2) from C runs none of Python's hooks."""
    libc = ctypes.PyDLL(None)
    pid = libc.fork()
    if pid == 0:
        os._exit(7 if syscalls.forked() else 8)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def test_what_a_child_opens_works_and_what_it_inherited_does_not(in_child: Child) -> None:
    """D-35"""
    inherited = syscalls.process_token()

    def grandchild() -> None:
        assert syscalls.forked_since(inherited)

    def child() -> None:
        assert syscalls.forked_since(inherited)
        own = syscalls.process_token()
        assert own != inherited
        assert not syscalls.forked_since(own)
        assert syscalls.forked_since(inherited)
        assert syscalls.process_token() == own
        assert syscalls.forked()
        in_child(lambda: grandchild())
        in_child(lambda: not_mine(own))

    def not_mine(token: int) -> None:
        assert syscalls.forked_since(token)

    in_child(child)
    assert not syscalls.forked_since(inherited)
    assert syscalls.process_token() == inherited


#: Stands before libc's own: a kernel that knows no MADV_WIPEONFORK.
OLD_KERNEL = """
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
int madvise(void *address, size_t size, int advice)
{
    if (advice == MADV_WIPEONFORK) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_madvise, address, size, advice);
}
"""

WITHOUT_WIPING = """
import os
from rocketstore._native.os import syscalls
inherited = syscalls.process_token()
assert not syscalls.forked() and not syscalls.forked_since(inherited)
if os.fork() == 0:
    assert syscalls.forked() and syscalls.forked_since(inherited)
    own = syscalls.process_token()
    assert not syscalls.forked_since(own) and syscalls.forked_since(inherited)
    os._exit(7)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
assert not syscalls.forked_since(inherited)
print("told by pid")
"""


@pytest.mark.skipif(
    "libasan" in os.environ.get("LD_PRELOAD", ""), reason="a sanitizer wants to be preloaded alone"
)
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_forks_are_noticed_where_the_kernel_wipes_nothing(tmp_path: Path) -> None:
    """D-35: then the process id tells."""
    (tmp_path / "old_kernel.c").write_text(OLD_KERNEL)
    library = tmp_path / "old_kernel.so"
    command = ["cc", "-shared", "-fPIC", "-w", str(tmp_path / "old_kernel.c"), "-o", str(library)]
    subprocess.run(command, check=True)
    environment = {
        **os.environ,
        "LD_PRELOAD": str(library),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_WIPING], env=environment, capture_output=True, check=False
    )
    assert done.stdout == b"told by pid\n", done.stderr
