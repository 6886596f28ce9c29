"""The same oracle for faults that come from outside: calls of Python itself, and threads, fail as well."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.support import campaign
from tests.syscall_faults import tracing
from tests.syscall_faults.injecting import Case
from tests.syscall_faults.sweeping import EVERY, Sweep, sweep

SCENES = ("life-disk", "killed-os", "torn", "readers")

pytestmark = pytest.mark.proof


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sweep]:
    if reason := tracing.missing():
        pytest.skip(reason)
    with sweep(tmp_path_factory.mktemp("strace")) as found:
        yield found


def test_each_system_call_fails_from_outside(running: Sweep, rng: random.Random) -> None:
    """D-13 D-16 D-36: acknowledged ⊆ recovered ⊆ sent, a typed error, no signal, no hang."""
    cases = []
    for scene in SCENES:
        for name, count in running.trace(scene).items():
            for answer in tracing.SYSCALLS.get(name, "").split():
                every = range(count)
                some = every if EVERY else {0, 1, count - 1, rng.randrange(count)} & set(every)
                cases += [Case(scene, name, tracing.OUTSIDE, nth, answer) for nth in sorted(some)]
    rng.shuffle(cases)
    if EVERY:
        tally = running.run(cases)
    else:
        sample = campaign.begin("failing calls, from outside")

        def goes_on(tried: int) -> bool:
            sample.did = tried
            return sample.goes_on()

        tally = running.run(cases, goes_on)
        sample.did = tally.tried
        sample.end()
    print(
        f"\nstrace: {tally}; {len({case.entry for case in cases})} system calls, {len(cases)} cases"
    )
    assert tally.wrong == [], "\n".join(tally.wrong[:20])
    assert tally.reached > tally.tried * 0.7
