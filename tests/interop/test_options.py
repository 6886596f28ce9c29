"""Options of each release beside ours, and those of 5.4 and later that change what RocketMQ leaves or looks at."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import rocketstore
from rocketstore.config.rocketmq_options import OPTIONS
from tests.interop.exchange import assert_sound, put_ours, put_theirs
from tests.interop.messages import SMALL, Sent, config_of
from tests.interop.oracle import Oracle, since
from tests.interop.views import Tally, of_oracle, of_ours

pytestmark = pytest.mark.java


def test_every_option_is_known(oracle: Oracle) -> None:
    """`StoreConfig.from_rocketmq` calls none of them strange, and warns of none that has its default."""
    known = {name: option for option in OPTIONS for name in option.rocketmq}
    defaults: dict[str, str] = oracle.ask("options")["options"]
    assert set(defaults) <= set(known)
    wrong = {
        name: default
        for name, default in defaults.items()
        if known[name].harmless not in (None, default.lower())
    }
    assert wrong == {}


#: The last ones are small: what is stale in RocketMQ's buffers is from larger ones.
STEPS = [
    Sent(
        queue_id=n % 2,
        body=b"%03d" % n * (10 if n > 50 else 500),
        properties=(("KEYS", f"k{n}"), ("TAGS", "ab"[n % 2])),
    )
    for n in range(60)
]


@pytest.fixture
def later(version: str) -> None:
    if not since(version, "5.5"):
        pytest.skip("an option of 5.5")


@pytest.mark.usefixtures("later")
def test_stale_bytes_behind_the_end(oracle: Oracle, tally: Tally, tmp_path: Path) -> None:
    """K-93: with `writeWithoutMmap` they are there after a clean stop, and are no damage. Both go on."""
    path = tmp_path / "store"
    settings = {**SMALL, "writeWithoutMmap": True}
    with oracle.open(path, settings) as theirs:
        put_theirs(theirs, STEPS)
        theirs.settle()
        view = of_oracle(theirs.dump())
    size = int(SMALL["mappedFileSizeCommitLog"])
    last = path / "commitlog" / f"{view.end // size * size:020d}"
    behind, written = view.end % size, last.read_bytes()
    if not any(written[behind:]):
        # RocketMQ takes one of several buffers, and this one had no longer record: as another leaves it.
        with last.open("r+b") as file:
            file.seek(behind)
            file.write(written[behind - 60 : behind])
    assert any(last.read_bytes()[behind:])
    crashed = tmp_path / "crashed"
    shutil.copytree(path, crashed)
    (crashed / "abort").touch()
    assert_sound(path)
    for root, mode in ((path, "r"), (crashed, "r"), (path, "rw"), (crashed, "rw")):
        with rocketstore.open(root, mode, config=config_of(SMALL)) as ours:
            tally.same(view, of_ours(ours))
            assert not ours.recovery.lost
            if mode == "rw":
                put_ours(ours, STEPS[:5])
    for root in (path, crashed):
        with rocketstore.open(root, "r", config=config_of(SMALL)) as ours:
            view = of_ours(ours)
        with oracle.open(root, settings) as theirs:
            tally.same(of_oracle(theirs.dump()), view)
        assert_sound(root)


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("writer", ["ours", "theirs then ours"])
def test_accelerated_recovery_after_our_death(
    version: str, tally: Tally, tmp_path: Path, writer: str
) -> None:
    """K-94: it starts at the offset in the checkpoint, which we set; every record has its unit then."""
    path, image = tmp_path / "store", tmp_path / "image"
    settings = {**SMALL, "enableAcceleratedRecovery": True}
    if writer != "ours":
        with Oracle(version) as oracle, oracle.open(path, settings) as theirs:
            put_theirs(theirs, STEPS)
            theirs.settle()
    with rocketstore.open(path, config=config_of(SMALL)) as ours:
        put_ours(ours, STEPS)
    # The log's time, with which it refuses to start where there is no offset.
    assert any((path / "checkpoint").read_bytes()[:8])
    with rocketstore.open(path, config=config_of(SMALL)) as ours:
        put_ours(ours, STEPS[:20])
        view = of_ours(ours)
        shutil.copytree(path, image)
    with Oracle(version) as oracle:
        theirs = oracle.start(image, settings)
        tally.same(of_oracle(theirs.dump()), view)
