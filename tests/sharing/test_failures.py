"""Failures that programs of this kind had in public; the numbers are those of the research for this feature.

Numbers 1 to 9, 11 and 12 are here, 10 is in test_forks. 5 and 9 run in namespaces of their own instead of
containers. Of 7, a guest is stopped at random moments instead of at every step.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import rocketstore
from rocketstore import OutcomeUnknownError, RocketStoreError, Store
from tests.process.other_process import HOLD, PROLOGUE, SMALL, OtherProcess, other_process
from tests.sharing.conftest import Guests
from tests.sharing.hosts import host_pid
from tests.support.paths import ROOT
from tests.support.waiting import pause, wait_until

pytestmark = pytest.mark.timeout(120)

#: Opens and puts numbers from given[0] on, each with an id, until killed; says each that was acknowledged.
PUTS = """
store = rocketstore.open(path, **options)
writer = store.writer(given[1])
say("open")
told()
number = given[0]
while True:
    writer.put(b"%d" % number, durability=given[2], unique_id=str(number))
    say(str(number))
    number += 1
"""


def bodies(store: Store, topic: str = "orders") -> list[int]:
    return [int(message.body) for message in store.consumer(topic)]


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@contextlib.contextmanager
def stopped(process: OtherProcess) -> Iterator[None]:
    os.kill(process.pid, signal.SIGSTOP)
    wait_until(lambda: state_of(process.pid) == "T")
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)


def sockets(pid: int) -> int:
    """Open sockets of a process: files of the store come and go with its log."""
    found = 0
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            found += os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:")
    return found


def test_1_and_7_a_stopped_guest_stops_nobody(guest: Store, root: Path, rng: random.Random) -> None:
    """With answers under way, again and again; its own calls go on afterwards."""
    writer = guest.writer("orders")
    count = 0
    with other_process(PUTS, root, given=[0, "stops", "os"], shared="guest") as other:
        assert other.line() == "open"
        other.hears()
        before = 0
        for _ in range(10):
            before = int(other.line())
            pause(rng.uniform(0, 0.02))
            with stopped(other):
                for promise in ("os", "disk") * 20:
                    writer.put(b"%d" % count, durability=promise)
                    count += 1
                assert len(list(guest.consumer("stops"))) > before
        assert int(other.line()) > before
    assert bodies(guest) == list(range(count))


#: A host that is killed once a put of a guest is flushed: often before its answer is sent.
DIES_BETWEEN = """
import signal, threading
store = rocketstore.open(path, **options)
def watch():
    begin = store.flushed_offset
    say("watching")
    while store.flushed_offset == begin:
        pass
    os.kill(os.getpid(), signal.SIGKILL)
say("open")
told()
threading.Thread(target=watch).start()
told()
"""


@pytest.mark.parametrize("unique", [True, False])
def test_2_the_host_dies_between_flush_and_answer(root: Path, guests: Guests, unique: bool) -> None:
    """The outcome is unknown and said so; with a unique id the guest, the next host, settles it: once."""
    rounds, unknown = 6, 0
    for number in range(rounds):
        with other_process(DIES_BETWEEN, root, shared="host") as host:
            assert host.line() == "open"
            guest = guests(True)
            writer = guest.writer("orders")
            writer.put(b"%d" % (2 * number))
            host.hears()
            assert host.line() == "watching"
            try:
                body = b"%d" % (2 * number + 1)
                writer.put(body, unique_id=f"u{number}" if unique else None)
            except OutcomeUnknownError:
                unknown += 1
                assert not unique
            wait_until(lambda: host.process.poll() is not None)
            # This process is the host now; a host= of the next round needs the lock.
            writer.put(b"-1")
            assert host_pid(root) == os.getpid()
            found = bodies(guest)
            assert found.count(2 * number + 1) == 1 or not unique
            assert found.count(2 * number + 1) <= 1
            guest.close()
    print(f"{unknown} of {rounds} were unknown")


#: Opens when told, in vain; says why.
IN_VAIN = """
told()
try:
    rocketstore.open(path, **options)
except rocketstore.StoreLockedError as error:
    say(str(error))
"""


def test_3_a_stopped_host_is_not_replaced(host: OtherProcess, guests: Guests, root: Path) -> None:
    """It holds the lock: calls and opens end at their limit, and name the process and its state."""
    guest = guests(True)
    writer = guest.writer("orders")
    writer.put(b"0")
    with contextlib.ExitStack() as stack:
        openers = [
            stack.enter_context(other_process(IN_VAIN, root, shared=shared))
            for shared in (True, "guest")
        ]
        with stopped(host):
            for opener in openers:
                opener.hears()
            with pytest.raises(RocketStoreError) as caught:
                writer.put(b"1", timeout_s=0.2)
            assert isinstance(caught.value, (OutcomeUnknownError, rocketstore.BackpressureError))
            told = [str(caught.value), *(opener.line() for opener in openers)]
        for text in told:
            assert str(host.pid) in text and "stopped" in text, told
    writer.put(b"2")
    assert host_pid(root) == host.pid
    found = bodies(guest)
    assert [found[0], found[-1], found.count(1) <= 1] == [0, 2, True]


#: Lowers its own limit of descriptors to what it has and given[0] more, then opens.
FEW_DESCRIPTORS = """
import resource
have = max(map(int, os.listdir("/proc/self/fd"))) + 1
resource.setrlimit(resource.RLIMIT_NOFILE, (have + given, have + given))
before = set(os.listdir("/proc/self/fd"))
try:
    store = rocketstore.open(path, **options)
    store.writer("others").put(b"")
except (OSError, rocketstore.RocketStoreError) as error:
    say(type(error).__name__ + ": " + str(error))
else:
    store.close()
    say("put")
left = set(os.listdir("/proc/self/fd")) - before
say(str(len(left)))
"""


def test_4_a_guest_at_its_limit_of_descriptors(guest: Store, root: Path) -> None:
    """At each step of an open: an error that says why, nothing leaks, others go on."""
    told = []
    for more in (0, 1, 2, 4, 6, 8, 12, 16, 64):
        with other_process(FEW_DESCRIPTORS, root, given=more, shared="guest") as other:
            said, left = other.line(), other.line()
            told.append(said)
            assert said == "put" or "file" in said or "descriptor" in said, told
            assert left == "0", (more, said)
        guest.writer("orders").put(b"0")
    assert told[-1] == "put"
    assert told[0] != "put"


#: A host that lowers its limit once it is open.
FEW_AT_HOST = """
import resource
store = rocketstore.open(path, **options)
say("open")
told()
have = len(os.listdir("/proc/self/fd"))
resource.setrlimit(resource.RLIMIT_NOFILE, (have + 2, 4096))
say("few")
told()
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
say("many")
told()
store.close()
"""


def test_4_a_host_at_its_limit_of_descriptors(root: Path, guests: Guests) -> None:
    """Guests that are there go on; one that comes gets an error in time, or is served once there is room."""
    with other_process(FEW_AT_HOST, root, shared="host") as host:
        assert host.line() == "open"
        first = guests()
        writer = first.writer("orders")
        writer.put(b"0")
        host.hears()
        assert host.line() == "few"
        with pytest.raises((RocketStoreError, OSError)):
            for _ in range(3):
                guests().writer("orders").put(b"9", timeout_s=1)
        writer.put(b"1")
        host.hears()
        assert host.line() == "many"
        guests().writer("orders").put(b"2")
        found = bodies(first)
        assert [n for n in found if n != 9] == [0, 1, 2]


# ---- 5 and 9: name spaces, as containers have them ----


def in_namespaces(program: str, root: Path, given: str) -> subprocess.Popen[str]:
    """Runs a program as process 1 of its own PID name space, without a network."""
    command = ["unshare", "--pid", "--net", "--fork", "--kill-child", "--mount-proc"]
    code = PROLOGUE + program
    options = {**SMALL, "shared": given}
    arguments = [sys.executable, "-c", code, json.dumps([str(root), options, None])]
    return subprocess.Popen(
        [*command, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )


@pytest.fixture
def namespaces() -> None:
    tried = ["unshare", "--pid", "--net", "--fork", "--mount-proc", "true"]
    if shutil.which("unshare") is None or subprocess.run(tried, capture_output=True).returncode:
        pytest.skip("needs unshare, and the right to use it")


IN_CONTAINER = """
store = rocketstore.open(path, **options)
put = store.writer("orders").put(b"%d" % os.getpid())
say("%d %d" % (os.getpid(), put.queue_offset))
told()
"""


@pytest.mark.root
@pytest.mark.usefixtures("namespaces")
def test_5_and_9_processes_of_other_name_spaces(root: Path, guests: Guests) -> None:
    """Two of pid 1 on one volume: the second is a guest of the first, and its host once that one is dead."""
    with in_namespaces(IN_CONTAINER, root, "host") as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "1 0\n"
        with in_namespaces(IN_CONTAINER, root, "guest") as second:
            assert second.stdout is not None
            assert second.stdout.readline() == "1 1\n"
            guest = guests(True)
            assert guest.writer("orders").put(b"1").queue_offset == 2
            first.kill()
            first.wait()
            # The end of unshare is told before the end of what it runs.
            assert guest.writer("orders").put(b"1", unique_id="u").queue_offset == 3
            assert bodies(guest) == [1, 1, 1, 1]
            second.kill()


# ---- 6 and 12: guests that come and are killed ----

#: Forks guests one after the other, each of which is killed in the middle of its puts.
MANY_GUESTS = """
import random, signal, threading, time
rocketstore.open(path, **options).close()  # imports, before the forks
say("ready")
told()
for n in range(given[0]):
    child = os.fork()
    if child == 0:
        store = rocketstore.open(path, **options)
        writer = store.writer("many")
        delay = random.Random(given[1] + n).uniform(0, 0.02)
        killer = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGKILL))
        killer.start()
        while True:
            writer.put_batch([b"x" * 500] * 20, durability="os")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
say("done")
"""


def kill_many(root: Path, guest: Store, host: OtherProcess, count: int, seed: int) -> None:
    """Sockets and threads of the host come back to what they were; another guest sees no error, and no recovery."""
    writer = guest.writer("orders")
    first = writer.put(b"0").queue_offset + 1
    threads_before, before = len(os.listdir(f"/proc/{host.pid}/task")), sockets(host.pid)
    ended = threading.Event()
    numbers: list[int] = []
    failed: list[BaseException] = []

    def put() -> None:
        try:
            while not ended.is_set():
                numbers.append(writer.put(b"%d" % (len(numbers) + 1)).queue_offset)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=put)
    thread.start()
    try:
        with other_process(MANY_GUESTS, root, given=[count, seed], shared="guest") as many:
            assert many.line() == "ready"
            many.hears()
            assert many.line() == "done"
    finally:
        ended.set()
        thread.join()
    assert failed == []
    assert numbers == list(range(first, first + len(numbers)))
    assert host_pid(root) == host.pid
    batches = (
        [message.body for message in guest.consumer("many")] if "many" in guest.topics() else []
    )
    assert len(batches) % 20 == 0
    wait_until(lambda: sockets(host.pid) <= before, lambda: f"{sockets(host.pid)}, {before} before")
    wait_until(lambda: len(os.listdir(f"/proc/{host.pid}/task")) <= threads_before)


def test_6_and_12_guests_come_and_are_killed(
    host: OtherProcess, guest: Store, root: Path, random_seed: int
) -> None:
    kill_many(root, guest, host, 20, random_seed)


@pytest.mark.proof
def test_6_and_12_a_thousand_guests_come_and_are_killed(
    host: OtherProcess, guest: Store, root: Path, random_seed: int
) -> None:
    """Memory, too."""

    def memory_kb() -> int:
        text = Path(f"/proc/{host.pid}/status").read_text()
        return int(
            next(line for line in text.splitlines() if line.startswith("RssAnon")).split()[1]
        )

    kill_many(root, guest, host, 100, random_seed)
    before = memory_kb()
    for _ in range(9):
        kill_many(root, guest, host, 100, random_seed)
    assert memory_kb() < before + 8192


# ---- 8: paths ----


@pytest.mark.parametrize("length", [90, 107, 108, 300, 3000])
def test_8_paths_of_any_length(tmp_path: Path, length: int) -> None:
    """Absolute, and relative to a directory that changes afterwards."""
    root = tmp_path
    while len(str(root)) + 130 < length:
        root /= "d" * 100
    root /= "s" * max(1, length - len(str(root)) - 1)
    root.parent.mkdir(parents=True, exist_ok=True)
    with other_process(HOLD, root, shared="host") as host:
        assert host.line() == "open"
        before = Path.cwd()
        os.chdir(root.parent)
        try:
            with rocketstore.open(root.name, shared=True, **SMALL) as guest:
                writer = guest.writer("orders")
                writer.put(b"0")
                os.chdir(before)
                writer.put(b"1")
                assert bodies(guest) == [0, 1]
                host.kill()
                assert writer.put(b"2").queue_offset == 2
                assert host_pid(root) == os.getpid()
        finally:
            os.chdir(before)


# ---- 11: the next host ----


@pytest.mark.parametrize("how", ["kill", "close"])
def test_11_a_guest_is_the_next_host(
    host: OtherProcess, guests: Guests, root: Path, how: str
) -> None:
    """After a kill and after a close; what has no guest but such as must not be host says why not."""
    guest = guests("guest")
    writer = guest.writer("orders")
    writer.put(b"0")
    with other_process(HOLD, root, shared=True) as next_host:
        assert next_host.line() == "open"
        if how == "kill":
            host.kill()
        else:
            host.hears()
            assert host.line() == "closed"
            host.ends()
        assert writer.put(b"1", unique_id="1").queue_offset == 1
        assert host_pid(root) == next_host.pid
        next_host.hears()
        next_host.ends()
    with pytest.raises(RocketStoreError) as caught:
        writer.put(b"2", timeout_s=0.2)
    assert not isinstance(caught.value, OutcomeUnknownError), "nobody was asked"
    with rocketstore.open(root, shared=True, **SMALL) as again:
        assert writer.put(b"3").queue_offset == 2
        assert host_pid(root) == os.getpid()
        assert bodies(again) == [0, 1, 3]


#: A guest that dies while it recovers as the next host.
DIES_IN_RECOVERY = """
import signal
from rocketstore.log.recovery import recovery
store = rocketstore.open(path, **options)
def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
recovery._Recovery.run = die
say("open")
told()
"""


def test_11_a_crash_in_recovery_makes_another_one_host(
    host: OtherProcess, root: Path, guests: Guests
) -> None:
    with other_process(DIES_IN_RECOVERY, root, shared=True) as second:
        assert second.line() == "open"
        never = guests("guest")
        writer = never.writer("orders")
        writer.put(b"0")
        host.kill()
        wait_until(lambda: second.process.poll() is not None)
        with other_process(HOLD, root, shared=True) as third:
            assert third.line() == "open"
            assert writer.put(b"1").queue_offset == 1
            assert host_pid(root) == third.pid


def test_11_a_restart_wins_a_host_in_time(root: Path) -> None:
    """Three start at once, again and again, and the host is killed each time: each put goes through."""
    with contextlib.ExitStack() as stack:
        opened = [
            stack.enter_context(other_process(PUTS, root, given=[0, f"t{n}", "disk"], shared=True))
            for n in range(3)
        ]
        for process in opened:
            assert process.line() == "open"
        for process in opened:
            process.hears()
        while opened:
            for process in opened:
                process.line()
            host = host_pid(root)
            victim = next(process for process in opened if process.pid == host)
            opened.remove(victim)
            victim.kill()
            for process in opened:
                last = int(process.line() or -1)
                assert last >= 0
    with rocketstore.open(root, **SMALL) as store:
        for n in range(3):
            found = bodies(store, f"t{n}")
            assert found == list(range(len(found)))
