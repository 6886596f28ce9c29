"""Brokers that are upgraded and go back, with us in between; what the ten files of 5.4 hide."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

import rocketstore
from rocketstore.tools import rebuild, verify
from tests.interop.exchange import assert_sound, put_theirs
from tests.interop.messages import SMALL, Sent, config_of
from tests.interop.oracle import Oracle, since
from tests.interop.test_alternating import Directory
from tests.interop.views import Tally, of_oracle, of_ours

pytestmark = pytest.mark.java

CHAINS = (
    ("4.9.8", "5.3.3", "5.5.1"),
    ("5.5.1", "5.3.3", "5.5.1"),
    ("5.5.1", "4.9.8"),
    ("5.3.3", "5.5.1"),
)


@pytest.mark.parametrize("stop", ["clean", "halted"])
@pytest.mark.parametrize("chain", CHAINS, ids="-".join)
def test_upgrades_and_downgrades(
    chain: tuple[str, ...], stop: str, rng: random.Random, tmp_path: Path
) -> None:
    """All that anybody acknowledged is there, in order, for each that comes next."""
    directory = Directory(tmp_path, Tally())
    for version in chain:
        with Oracle(version) as oracle:
            store = oracle.start(directory.path, SMALL)
            directory.theirs(rng, store)
            if stop == "clean":
                store.settle()
                store.shutdown()
        directory.ours(rng, clean=stop == "clean")
    with rocketstore.open(directory.path, config=config_of(SMALL)) as store:
        directory.check(of_ours(store))
    assert_sound(directory.path)


@pytest.mark.parametrize(("stop", "tool"), [("clean", "open"), ("crash", "rebuild")])
def test_what_ten_files_hide(
    oracle: Oracle, version: str, tally: Tally, tmp_path: Path, stop: str, tool: str
) -> None:
    """K-88: queues that were deleted come back for ten files. verify says what is missing; rebuild makes it,
    and so does an open."""
    if not since(version, "5.4"):
        pytest.skip("earlier releases look at the whole log")
    path = tmp_path / "store"
    sent = [Sent(queue_id=n % 2, body=b"%03d" % n + bytes(1500)) for n in range(200)]
    with oracle.open(path, SMALL) as theirs:
        put_theirs(theirs, sent)
        theirs.settle()
        whole = of_oracle(theirs.dump())
    assert len(list((path / "commitlog").iterdir())) > 12
    shutil.rmtree(path / "consumequeue")
    if stop == "crash":
        (path / "abort").touch()
    with oracle.open(path, SMALL) as theirs:
        theirs.settle()
        served = of_oracle(theirs.dump())
    assert 0 < len(served.messages()) < len(whole.messages())
    shape = {"index_slots": SMALL["maxHashSlotNum"], "index_entries": SMALL["maxIndexNum"]}
    assert not verify(path, **shape).ok
    if tool == "rebuild":
        rebuild(path, **shape)
    else:
        rocketstore.open(path, config=config_of(SMALL)).close()
    with rocketstore.open(path, "r", config=config_of(SMALL)) as ours:
        tally.same(whole, of_ours(ours))
    with oracle.open(path, SMALL) as theirs:
        tally.same(of_oracle(theirs.dump()), whole)
    assert_sound(path)
