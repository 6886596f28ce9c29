"""Limits of the process: each has a typed error, none is a signal, and a store survives all of them."""

from __future__ import annotations

import errno
import importlib
import os
import resource
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.errors import ConfigError
from rocketstore.values import limits
from tests.process.other_process import numbers, open_small, other_process

MIB = 1 << 20
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


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (
            {"commit_log_file_size_bytes": MIB, "write_buffer_bytes": MIB},
            f"files of {MIB} bytes:",
        ),
        ({"consume_queue_file_size_bytes": 400_000}, "files of 400000 bytes:"),
        ({"index_entries": 20_000}, "files of 40.* .its index.:"),
        ({"index_entries": 20_000, "index_enabled": False}, ""),
    ],
)
def test_a_limit_below_the_files_of_a_store_refuses_the_open(
    tmp_path: Path, options: dict[str, Any], named: str
) -> None:
    """It was a full disk for the log, and an index that was behind for ever. A reader writes none."""
    path, limit = tmp_path / "store", 300_000
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        if named:
            with pytest.raises(ConfigError, match=f"RLIMIT_FSIZE = {limit}: .*{named}.*ulimit -f"):
                open_small(path, **options)
        else:
            open_small(path, **options).close()
            with open_small(path, "r") as store:
                assert not store.topics()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    open_small(path, **options).close()


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


#: Uses up the mappings of the process but for given[0], with modules of the store loaded or not; says
#: what a put of a known and of a new topic, a roll, a reader and a new store raised; then gives the
#: mappings back, goes on, and says what the store has and how many puts were acknowledged.
MAPPED = """
import ctypes, faulthandler
faulthandler.dump_traceback_later(60, exit=True)
left, loaded = given
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
def used_up():
    limit = int(open("/proc/sys/vm/max_map_count").read())
    want = limit - left - sum(1 for _ in open("/proc/self/maps"))
    size = 4096 * (want + 2)
    base = libc.mmap(None, size, 0, 0x22, -1, 0)
    for page in range(0, want, 2):  # every other page: each is a mapping of its own
        if libc.mprotect(base + 4096 * page, 4096, 1):
            break
    return base, size
def tried(what, act):
    try:
        result = act()
    except MemoryError:
        say(f"{what} memory")
    except (rocketstore.RocketStoreError, OSError) as error:
        named = "vm.max_map_count" in str(error) or "vm.max_map_count" in str(error.__cause__)
        say(f"{what} {'named' if named else repr(error)}")
    else:
        say(f"{what} ok")
        return result
acknowledged = {"Orders": 0, "New": 0}
def put(topic, size):
    store.writer(topic).put(b"%d:" % acknowledged[topic] + bytes(size))
    acknowledged[topic] += 1
if loaded:
    store = rocketstore.open(path, **options)
    put(TOPIC, 100)
    list(store.consumer(TOPIC))
else:
    rocketstore.RocketStoreError
taken = used_up()
if loaded:
    tried("put", lambda: put(TOPIC, 100))
    tried("new topic", lambda: put("New", 100))
    tried("roll", lambda: [put(TOPIC, 3000) for _ in range(100)])
    tried("reader", lambda: rocketstore.open(path, "r"))
tried("store", lambda: rocketstore.open(path + ".other", **options).close())
libc.munmap(*taken)
if not loaded:
    store = rocketstore.open(path, **options)
say("released")
for topic in acknowledged:
    put(topic, 100)
    found = [int(bytes(m.body).partition(b":")[0]) for m in store.consumer(topic)]
    say("all" if found == list(range(acknowledged[topic])) else f"{found} {acknowledged}")
say(repr(store.flags.behind))
rocketstore.open(path + ".other", **options).close()
store.close()
"""


@pytest.mark.parametrize("left", [0, 3, 12])
def test_no_mapping_left(tmp_path: Path, left: int) -> None:
    """D-39: what cannot be mapped is an error that names vm.max_map_count; the store goes on after it,
    and a queue that is mapped goes on beside it."""
    with other_process(MAPPED, tmp_path / "s", given=[left, True]) as other:
        said = other.rest().decode().splitlines()
        other.ends()
    until = said.index("released")
    told = dict(line.rsplit(" ", 1) for line in said[:until])
    # "memory": the interpreter had none for an object of its own, of which it raises MemoryError.
    assert set(told.values()) <= {"ok", "named", "memory"}, said
    assert told["put"] == "ok"
    if left == 0:
        assert "ok" not in (told["roll"], told["reader"], told["store"])
    assert said[until + 1 :] == ["all", "all", "()"]
    with open_small(tmp_path / "s") as store:
        assert store.recovery.mode == "clean"


def test_no_mapping_left_to_load_the_modules(tmp_path: Path) -> None:
    """The first use of a name loads native modules: an OSError of the name, which works later on."""
    with other_process(MAPPED, tmp_path / "s", given=[2, False]) as other:
        said = other.rest().decode().splitlines()
        other.ends()
    assert said == ["store named", "released", "all", "all", "()"]


@pytest.mark.parametrize(
    "refusal", [MemoryError(), SystemError("error return without exception set")]
)
def test_a_module_that_finds_no_memory_names_the_limits(
    monkeypatch: pytest.MonkeyPatch, refusal: Exception
) -> None:
    def refuse(_: str) -> None:
        raise refusal

    monkeypatch.setattr(importlib, "import_module", refuse)
    with pytest.raises(OSError, match="rocketstore.tools cannot be loaded.*vm.max_map_count"):
        rocketstore.__getattr__("tools")


def test_errors_name_the_limit_that_is_used_up() -> None:
    assert "RLIMIT_NOFILE): raise it by ulimit -n" in limits.explained(errno.EMFILE)
    assert "fs.file-max" in limits.explained(errno.ENFILE)
    assert limits.explained(errno.EIO) == os.strerror(errno.EIO)
    assert "pids.max" in limits.used_up(errno.EAGAIN, thread=True)


@pytest.mark.parametrize("refusal", [MemoryError(), OSError(errno.ENOMEM, "no memory")])
def test_an_error_names_limits_where_the_look_gets_no_memory(
    monkeypatch: pytest.MonkeyPatch, refusal: Exception
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise refusal

    monkeypatch.setattr(limits, "open", refuse, raising=False)
    assert "vm.max_map_count" in limits.explained(errno.ENOMEM)
    assert "vm.max_map_count" not in limits.explained(errno.EIO)


#: Sets a limit of address space, and says what a store with default options raises; then without.
SPACE = """
import faulthandler, resource
faulthandler.dump_traceback_later(60, exit=True)
rocketstore.open, rocketstore.Store, rocketstore.Writer
resource.setrlimit(resource.RLIMIT_AS, (900_000 << 10, resource.RLIM_INFINITY))
def put():
    with rocketstore.open(path, durability=given) as store:
        store.writer(TOPIC).put(b"x")
try:
    put()
except (rocketstore.RocketStoreError, OSError) as error:
    say(str(error))
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
put()
say("later ok")
"""


@pytest.mark.parametrize("durability", ["disk", "os", "memory"])
def test_segments_of_the_default_size_in_little_address_space(
    tmp_path: Path, durability: str
) -> None:
    """`ulimit -v 900000` with segments of 1 GiB: the open or the put names the limit, and nothing waits."""
    with other_process(SPACE, tmp_path / "s", given=durability) as other:
        said = other.rest().decode().splitlines()
        other.ends()
    assert len(said) == 2 and "(RLIMIT_AS): raise it by ulimit -v" in said[0], said
    assert said[1] == "later ok"
    with rocketstore.open(tmp_path / "s", "r+") as store:
        assert len(list(store.consumer("Orders"))) == 1
