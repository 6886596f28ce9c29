"""Limits of the process: each has a typed error, none is a signal, and a store survives all of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.process.other_process import numbers, open_small, other_process

#: Opens, sets limit given[0] to given[1] or, with "used", to what is used now, and puts 400 messages that
#: roll; says what the first put that was refused raised, and how many were acknowledged.
LIMITED = """
import errno, resource
name, value, when = given
limit = getattr(resource, name)
rocketstore.open, rocketstore.Store, rocketstore.Writer  # loads their modules, which the limit is not about
def set_limit():
    used = {
        "RLIMIT_NOFILE": lambda: len(os.listdir("/proc/self/fd")),
        "RLIMIT_AS": lambda: int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize(),
    }.get(name, lambda: 0)()
    resource.setrlimit(limit, (used + value, resource.getrlimit(limit)[1]))
def told(error):
    kind = "typed" if isinstance(error, (rocketstore.RocketStoreError, OSError)) else "UNTYPED"
    cause = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    number = getattr(cause, "errno", None)
    say(f"{kind} {type(error).__name__} {errno.errorcode.get(number, number)}")
stored = 0
try:
    if when == "before":
        set_limit()
    store = rocketstore.open(path, **options)
    if when == "after":
        set_limit()
    writer = store.writer(TOPIC)
    for number in range(400):
        writer.put(b"%d:" % number + bytes(500), keys="k%d" % number)
        stored = number + 1
    say("no error None None")
except (rocketstore.RocketStoreError, OSError, MemoryError) as error:
    told(error)
resource.setrlimit(limit, (resource.getrlimit(limit)[1],) * 2)
say(str(stored))
try:
    store.close()
except NameError:
    pass
except (rocketstore.RocketStoreError, OSError) as error:
    pass
say("end")
"""


def limited(path: Path, limit: str, value: int, when: str, **options: Any) -> tuple[list[str], int]:
    with other_process(LIMITED, path, given=[limit, value, when], **options) as other:
        outcome, stored = other.line().split(), int(other.line())
        assert other.line() == "end"
        other.ends()
    return outcome, stored


@pytest.mark.parametrize("durability", ["disk", "os", "memory"])
def test_a_file_size_limit_is_an_error_not_a_signal(tmp_path: Path, durability: str) -> None:
    """D-13 D-16: EFBIG instead of SIGXFSZ; what was acknowledged is there afterwards."""
    outcome, stored = limited(tmp_path, "RLIMIT_FSIZE", 60_000, "after", durability=durability)
    assert outcome[0] == "typed"
    assert outcome[2] == "EFBIG"
    with open_small(tmp_path) as store:
        found = numbers(store)
        assert found == list(range(len(found)))
        assert len(found) >= stored


@pytest.mark.parametrize("durability", ["disk", "os", "memory"])
@pytest.mark.parametrize("spare", [0, 1, 2, 3, 5])
def test_no_descriptor_left(tmp_path: Path, durability: str, spare: int) -> None:
    """D-16: EMFILE when a segment is made refuses a put; nothing that was acknowledged goes."""
    outcome, stored = limited(tmp_path, "RLIMIT_NOFILE", spare, "after", durability=durability)
    assert outcome[0] == "typed" or outcome[0] == "no"
    assert outcome[2] in ("EMFILE", "None")
    with open_small(tmp_path) as store:
        found = numbers(store)
        assert found == list(range(len(found)))
        assert len(found) >= (stored if durability != "memory" else 0)


@pytest.mark.parametrize("spare", [0, 1, 2, 3, 4])
def test_an_open_without_descriptors(tmp_path: Path, spare: int) -> None:
    """D-16 D-36: an open that cannot go on says EMFILE, and the next one works."""
    with open_small(tmp_path) as store:
        store.writer("Orders").put(b"0:")
    outcome, _ = limited(tmp_path, "RLIMIT_NOFILE", spare, "before")
    assert outcome[0] == "typed"
    assert outcome[2] == "EMFILE"
    with open_small(tmp_path) as store:
        assert numbers(store)[0] == 0


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("spare_kib", [64, 512, 4096, 16384])
def test_no_address_space_left(tmp_path: Path, when: str, spare_kib: int) -> None:
    """D-16: ENOMEM of a mapping, or of a thread's stack, is an error of the call that needed it."""
    outcome, stored = limited(tmp_path, "RLIMIT_AS", spare_kib << 10, when, durability="os")
    if outcome[1] != "MemoryError":  # Python itself had none
        assert outcome[0] in ("typed", "no")
        assert outcome[2] in ("ENOMEM", "EAGAIN", "None")
    with open_small(tmp_path) as store:
        found = numbers(store)
        assert found == list(range(len(found)))
        assert len(found) >= stored


@pytest.mark.parametrize("durability", ["disk", "os", "memory"])
def test_no_locked_memory(tmp_path: Path, durability: str) -> None:
    """D-39: memory that cannot be locked is no error."""
    outcome, stored = limited(tmp_path, "RLIMIT_MEMLOCK", 0, "before", durability=durability)
    assert outcome[0] == "no"
    assert stored == 400


@pytest.mark.skipif(os.geteuid() == 0, reason="root has no limit of processes")
def test_no_thread_left(tmp_path: Path) -> None:
    """D-36: a worker that cannot be started is EAGAIN, and the store is not left half open."""
    outcome, _ = limited(tmp_path, "RLIMIT_NPROC", 0, "before")
    assert outcome[2] == "EAGAIN"
