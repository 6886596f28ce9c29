"""Each call of the table fails, one at a time, in each scene of a store's life.

After every run: what was acknowledged is there, nothing is there that was not sent, every error had a
type, the process neither hung nor died by a signal, nothing stayed open or locked, and the store works.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import campaign
from tests.syscall_faults.injecting import FOREVER, SYNCS, Case
from tests.syscall_faults.sweeping import EVERY, Sweep, Tally, sweep

#: Runs of `make faults`, and how a whole run's seconds are shared out among the tests; EVERY=1 tries all there
#: are.
CASES = 2000
FOR_GOOD_CASES = 500
INVISIBLE_CASES = 350
KILLS = 500
SUM = CASES + FOR_GOOD_CASES + INVISIBLE_CASES + KILLS
#: Entries that this machine's workload cannot use.
UNUSED: dict[str, str] = {} if os.geteuid() == 0 else {"fchown": "gives files away: needs root"}


#: Calls that cannot fail; and memory is unmapped wherever its last user happens to go.
UNTRIED = ("clock_gettime", "getpid", "gettid", "munmap")
ROUNDS = 4
MANY = 1 << 20


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sweep]:
    with sweep(tmp_path_factory.mktemp("faults")) as found:
        yield found


def sampled(running: Sweep, cases: list[Case], count: int, least: int) -> Tally:
    """So many of the cases, in their order; in a whole run as many as its time has room for."""
    if EVERY:
        return running.run(cases)
    sample = campaign.begin("failing calls", share=count / SUM, alone=count, least=least)

    def goes_on(tried: int) -> bool:
        sample.did = tried
        return sample.goes_on()

    tally = running.run(cases, goes_on)
    sample.did = tally.tried
    sample.end()
    return tally


def show(tally: Tally, what: str, running: Sweep) -> None:
    print(f"\n{what}: {tally}; {len(running.sites)} sites in the workload")
    assert tally.wrong == [], "\n".join(tally.wrong[:20])


def test_the_workload_uses_every_entry_of_the_table(running: Sweep) -> None:
    """A call that no scene makes would never be tried."""
    from rocketstore._native.os import syscalls

    header = Path(syscalls.__file__).with_name("syscalls.pxd").read_text(encoding="utf-8")
    table = header.partition("cdef struct rs_syscalls:")[2].partition("# Written")[0]
    entries = {line.partition("(*")[2].partition(")")[0] for line in table.splitlines()} - {""}
    assert len(entries) > 30
    assert entries - running.entries == set(UNUSED)


def test_a_sample_of_failing_calls(running: Sweep, rng: random.Random) -> None:
    """D-13 D-16: acknowledged ⊆ recovered ⊆ sent, and a typed error, whichever call fails."""
    cases = running.cases(rng, 16) + running.cases(rng, 8, ["KILL", "short"])
    rng.shuffle(cases)
    tally = running.run(cases[:24])
    show(tally, "a sample", running)
    assert tally.reached > 18


def test_slow_syncs_are_logged(running: Sweep, rng: random.Random) -> None:
    """K-26: a sync of the log that takes 0.6 s is told with its duration; nothing else happens."""
    cases = [case for case in running.cases(rng, 100, ["late"]) if case.entry in SYNCS]
    tally = running.run(cases[:3])
    show(tally, "slow syncs", running)
    assert tally.reached
    for case, logged in tally.logged:
        assert any(re.search(r"flush up to \d+ took [6-9]\d\d ms|took \d{4} ms", text)
                   for text in logged), (case, logged)  # fmt: skip


@pytest.mark.proof
def test_each_call_fails_once(running: Sweep, rng: random.Random) -> None:
    """D-10 D-13 D-16 D-36: every errno of every call at every site."""
    tally = sampled(running, running.cases(rng, CASES), CASES, len(running.sites))
    show(tally, "each call fails once", running)
    failing = {site for site in running.steady if site[0] not in UNTRIED}
    for _ in range(ROUNDS):  # threads that went another way, each time so far
        left = failing - tally.sites
        if not left:
            break
        cases = [c for c in running.cases(rng, MANY) if (c.entry, c.site) in left]
        again = running.run(cases[:24])
        show(again, f"{len(left)} sites again", running)
        tally.sites |= again.sites
    chance = {site for site in running.sites - running.steady if site[0] not in UNTRIED}
    print(
        f"of {len(failing)} sites that every run comes by {len(failing & tally.sites)} failed, of "
        f"{len(chance)} that threads come by now and then {len(chance & tally.sites)}"
    )
    assert failing - tally.sites == set()


@pytest.mark.proof
def test_each_call_fails_for_good(running: Sweep, rng: random.Random) -> None:
    """D-13 D-16 D-36: from one call on, every call of its kind fails: the disk is full, or gone."""
    answers = [answer for answer in ALWAYS if answer != "EINTR"]
    show(
        sampled(running, running.cases(rng, FOR_GOOD_CASES, answers, FOREVER), FOR_GOOD_CASES, 100),
        "each call fails for good",
        running,
    )


#: What lasts.
ALWAYS = ["EACCES", "EDQUOT", "EFBIG", "EIO", "EMFILE", "ENOMEM", "ENOSPC", "EPERM", "EROFS"]


@pytest.mark.proof
def test_what_nobody_notices(running: Sweep, rng: random.Random) -> None:
    """D-10 D-33: an interrupted call, and one that moves a single byte, are gone on with: no error."""
    cases = running.cases(rng, INVISIBLE_CASES, ["EINTR", "short"])
    tally = sampled(running, cases, INVISIBLE_CASES, 100)
    show(tally, "nobody notices", running)


@pytest.mark.proof
def test_a_kill_at_each_call(running: Sweep, rng: random.Random) -> None:
    """D-20 D-22 D-23 D-37: the process dies in front of a call, at every site."""
    tally = sampled(running, running.cases(rng, KILLS, ["KILL"]), KILLS, len(running.sites))
    show(tally, "killed", running)
    if not EVERY:
        assert len(tally.sites) > len(running.sites) * 0.9
