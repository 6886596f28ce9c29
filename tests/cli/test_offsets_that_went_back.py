"""Stored offsets never go back without a word: each way in which a file of them is damaged, gone or
an older copy, of a store that was closed and of one whose process was killed, at every face."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import rocketstore
from rocketstore.cli import exit_codes
from rocketstore.consuming.commit_journal import BLOCK, JOURNAL_BYTES, Journal
from tests.cli.conftest import Invoke
from tests.support.small_store import engine_of, open_small, put_many

SHAPE = ("--index-slots", 16, "--index-entries", 64)
#: What the groups have committed.
RIGHT = {"idle": 20, "late": 7, "busy": 45}
Damage = Callable[[Path, Path], object]
JSON, JOURNAL = "config/consumerOffset.json", "rocketstore/group_offsets"


class Bases(NamedTuple):
    """Stores, and older copies of their files: `old` of two stops ago."""

    clean: Path
    killed: Path
    old: Path


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Bases:
    root = tmp_path_factory.mktemp("offsets")
    bases = Bases(root / "clean", root / "killed", root / "old")
    path = root / "store"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("rocketstore.consuming.consumer_offsets.MERGE_EVERY_S", 1e9)
        with open_small(path) as store:
            put_many(store.writer("orders", queue_id=0), 50, 10)
            commit(store, idle=20, busy=10)
            commit(store, busy=20)
        shutil.copytree(path, bases.old)
        with open_small(path) as store:
            commit(store, busy=30)
            commit(store, busy=35)
        with open_small(path) as store:
            commit(store, busy=40)
            many = dict.fromkeys(range(1, 60), 0)  # of several blocks
            engine_of(store).offsets.commit("orders", "busy", {**many, 0: 41}, 0, lambda _: None)
            commit(store, late=7)
            commit(store, busy=45)
            shutil.copytree(path, bases.killed)
        shutil.copytree(path, bases.clean)
    return bases


def commit(store: rocketstore.Store, **groups: int) -> None:
    for group, offset in groups.items():
        with store.consumer("orders", group=group) as consumer:
            consumer.commit({0: offset})


def offsets_of(store: rocketstore.Store) -> dict[str, int]:
    return {group: store.committed("orders", group).get(0, 0) for group in RIGHT}


def pending(path: Path) -> range:
    """Numbers of the journal's blocks that the JSON lacks."""
    mark = json.loads((path / JSON).read_text())["rocketstore"]
    return range(mark["merged"], Journal(path / JOURNAL).end)


def looked(path: Path, mode: str) -> tuple[dict[str, int], tuple[str, ...]]:
    with open_small(path, mode) as store:
        return offsets_of(store), store.recovery.offsets_in_doubt


def check(
    invoke: Invoke,
    caplog: pytest.LogCaptureFixture,
    path: Path,
    want: dict[str, int],
    text: str,
) -> None:
    """Every face says `text`, offsets are those of `want`, and the advice ends it. "": none does."""
    verified = invoke("verify", path, *SHAPE)
    assert verified.exit_code == (exit_codes.DAMAGED if text else 0), verified.output
    assert ("takes the offsets as they are" in verified.stderr) is bool(text)
    assert text in verified.stderr
    stat = invoke("stat", path)
    assert stat.exit_code == (exit_codes.DAMAGED if text else 0)
    assert text in stat.output.replace("\n", "")
    for mode in ("r", "rw"):
        caplog.clear()
        found, told = looked(path, mode)
        assert found == want
        assert text in "".join(told)
        assert bool(told) is bool(text)
        lines = [one for one in caplog.messages if told and told[0] in one]
        assert len(lines) == bool(text)
    assert looked(path, "rw") == (want, ())  # once
    assert invoke("verify", path, *SHAPE).exit_code == 0


def gone(path: Path) -> None:
    (path / JSON).unlink()


def emptied(path: Path) -> None:
    (path / JSON).write_bytes(b"")


def without_a_table(path: Path) -> None:
    (path / JSON).write_bytes(b"{}")


def no_json(path: Path) -> None:
    (path / JSON).write_bytes(bytes(100))


MISSING = "is missing, empty or not the file that rocketstore wrote"
OLDER = f"{JSON} is an older copy"
LOST = {"idle": 0, "late": 7, "busy": 45}


@pytest.mark.parametrize("damage", [gone, emptied, without_a_table, no_json])
def test_a_file_of_offsets_that_is_no_use(
    damage: Callable[[Path], None],
    bases: Bases,
    tmp_path: Path,
    invoke: Invoke,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """After a kill the commits of the journal count; after a stop the groups begin anew, and are told."""
    for base, want in ((bases.killed, LOST), (bases.clean, dict.fromkeys(RIGHT, 0))):
        path = shutil.copytree(base, tmp_path / base.name)
        damage(path)
        if damage in (emptied, no_json):  # `verify` has a fault of its own, which no command mends
            assert "all groups start over" in invoke("verify", path, *SHAPE).stderr
            assert looked(path, "r")[1]
            found, told = looked(path, "rw")
            assert (found, bool(told)) == (want, True)
        else:
            check(invoke, caplog, path, want, MISSING)


def older(name: str, to: str = "") -> Damage:
    """An older copy of the file `name`, in its place or in that of another."""
    return lambda path, old: shutil.copy(old / name, path / (to or name))


def bak_of_a_broker(path: Path, old: Path) -> None:
    older(JSON, f"{JSON}.bak")(path, old)
    gone(path)


def reset_by_hand(path: Path, _: Path) -> None:
    document = json.loads((path / JSON).read_text())
    for row in document["offsetTable"].values():
        row["0"] = 3
    (path / JSON).write_text(json.dumps(document))


def another_number(path: Path, _: Path) -> None:
    """One that the journal has; the commits before it are in the journal alone."""
    numbers = pending(path)
    assert len(numbers) > 2
    text = (path / JSON).read_text()
    before, after = (f'"merged": {n},' for n in (numbers.start, numbers.stop - 1))
    assert text.count(before) == 1
    (path / JSON).write_text(text.replace(before, after))


def after_a_broker(damage: Callable[[Path], None]) -> Damage:
    """One bit of the lock says that a broker wrote last. That would have kept what it had read."""

    def change(path: Path, _: Path) -> None:
        (path / "lock").write_bytes(b"lock")
        damage(path)

    return change


def removed(path: Path, _: Path) -> None:
    (path / JOURNAL).unlink()


def filled(byte: bytes) -> Damage:
    return lambda path, _: (path / JOURNAL).write_bytes(byte * JOURNAL_BYTES)


#: Without its journal, a store that was killed has what the JSON had.
UNMERGED = {"idle": 20, "late": 0, "busy": 35}
#: Of no use: what a broker did not keep is gone.
KEPT = {"idle": 0, "late": 7, "busy": 0}
RESET = {"idle": 3, "late": 3, "busy": 3}
BY_HAND = f"{JSON} was changed since rocketstore wrote it"
#: What is done, and what every face says then; the offsets of a store that was closed, of one that was killed,
#: or None.
DAMAGES: dict[str, tuple[Damage, str, dict[str, int] | None, dict[str, int] | None]] = {
    "older JSON": (older(JSON), OLDER, RIGHT, RIGHT),  # what was committed since is in the journal
    "bak of a broker": (bak_of_a_broker, OLDER, None, RIGHT),
    "reset by hand": (reset_by_hand, BY_HAND, RESET, {**RESET, "late": 7}),  # late is not in it yet
    "another number of a block": (another_number, MISSING, None, RIGHT),
    "gone after a broker": (after_a_broker(gone), MISSING, None, KEPT),
    "no table after a broker": (after_a_broker(without_a_table), MISSING, None, KEPT),
    "journal gone": (removed, "it is gone", RIGHT, UNMERGED),
    "journal zeroed": (filled(b"\0"), "it is zeroed or an older copy", RIGHT, UNMERGED),
    "older journal": (older(JOURNAL), "is zeroed or an older copy", None, UNMERGED),
    # A merge leaves none of these bytes: the next block would be in doubt after each.
    "journal of other bytes": (filled(b"x"), "damaged at block", RIGHT, UNMERGED),
}


@pytest.mark.parametrize(
    ("case", "name"),
    [
        pytest.param(case, name, id=f"{case}, {name}")
        for case, row in DAMAGES.items()
        for name, want in zip(("clean", "killed"), row[2:], strict=True)
        if want is not None
    ],
)
def test_each_damage_is_told_once(
    case: str,
    name: str,
    bases: Bases,
    tmp_path: Path,
    invoke: Invoke,
    caplog: pytest.LogCaptureFixture,
) -> None:
    damage, said, *wanted = DAMAGES[case]
    path = shutil.copytree(getattr(bases, name), tmp_path / name)
    damage(path, bases.old)
    check(invoke, caplog, path, wanted[name == "killed"] or {}, said)
    kept = (path / "rocketstore/quarantine/consumerOffset.json-0").exists()
    assert kept or case != "older JSON"


@pytest.mark.parametrize("name", ["clean", "killed"])
def test_after_a_broker_nothing_is_told(
    name: str, bases: Bases, tmp_path: Path, invoke: Invoke, caplog: pytest.LogCaptureFixture
) -> None:
    """It is its file: it has read what the JSON held, and has stored other offsets since."""
    path = shutil.copytree(getattr(bases, name), tmp_path / name)
    (path / "lock").write_bytes(b"lock")
    (path / JSON).write_text('{"offsetTable":{"orders@busy":{0:12},"orders@other":{0:1}}}')
    want = {"idle": 0, "late": 0 if name == "clean" else 7, "busy": 12}
    found, told = looked(path, "r")
    assert (found, told) == (want, ())
    assert looked(path, "rw") == (want, ())
    check(invoke, caplog, path, want, "")


@pytest.mark.parametrize("name", ["clean", "killed"])
def test_a_directory_in_place_of_the_journal(name: str, bases: Bases, tmp_path: Path) -> None:
    """Commits go to the JSON then, and it is told as long as the directory is there."""
    path = shutil.copytree(getattr(bases, name), tmp_path / name)
    removed(path, path)
    (path / JOURNAL).mkdir()
    for mode, busy in (("r", 0), ("rw", 44), ("rw", 45), ("r", 45)):
        with open_small(path, mode) as store:
            assert "it is not a plain file" in "".join(store.recovery.offsets_in_doubt)
            if mode == "rw":
                commit(store, busy=busy)
    assert offsets_of(open_small(path, "r"))["busy"] == 45


def test_a_bit_in_each_block_of_the_journal(bases: Bases, tmp_path: Path) -> None:
    """Whole records behind it count; what the changed one has left to say is named."""
    path = shutil.copytree(bases.killed, tmp_path / "store")
    whole = (path / JOURNAL).read_bytes()
    told_of = set()
    for number in range(Journal(path / JOURNAL).end):
        for at in (0, 9, 13, 17, 25, 33, 40, 60):  # magic, checksum, and each field
            data = bytearray(whole)
            data[number * BLOCK + at] ^= 4
            (path / JOURNAL).write_bytes(data)
            found, told = looked(path, "r")
            last = pending(path)
            assert bool(told) is (number in last or number == Journal(path / JOURNAL).end), (
                number,
                at,
            )
            if number not in last:
                continue
            assert f"damaged at block {number}" in told[0]
            told_of.add(number)
            assert found["idle"] == 20
            newest = number == max(told_of) and found["busy"] != 45
            assert found["busy"] == 45 or newest, (number, at, found)
    assert told_of


def test_the_journal_is_cut_at_each_block(bases: Bases, tmp_path: Path) -> None:
    path = shutil.copytree(bases.killed, tmp_path / "store")
    whole = (path / JOURNAL).read_bytes()
    for number in range(Journal(path / JOURNAL).end + 2):
        (path / JOURNAL).write_bytes(whole[: number * BLOCK])
        found, told = looked(path, "r")
        assert f"it has {number * BLOCK} bytes, not {JOURNAL_BYTES}" in told[0]
        assert found["idle"] == 20


def test_a_torn_record_at_the_end_is_no_damage(bases: Bases, tmp_path: Path) -> None:
    """A kill or a loss of power leaves some blocks of a commit that nobody was told is stored."""
    path = shutil.copytree(bases.killed, tmp_path / "store")
    with open_small(path) as store:
        offsets = engine_of(store).offsets
        end = Journal(path / JOURNAL).end
        many = dict.fromkeys(range(60), 1)
        offsets.commit("orders", "torn", many, 0, lambda _: None)
        torn = (path / JOURNAL).read_bytes()
        assert Journal(path / JOURNAL).end - end >= 3
        shutil.copytree(path, tmp_path / "killed")
    path = tmp_path / "killed"
    blocks = range(end, Journal(path / JOURNAL).end)
    for lacking in ([0], [1], [2], [0, 1], [1, 2], [0, 2], [0, 1, 2]):
        data = bytearray(torn)
        for number in lacking:
            at = blocks[number] * BLOCK
            data[at : at + BLOCK] = bytes(BLOCK)
        (path / JOURNAL).write_bytes(data)
        found, told = looked(path, "r")
        assert (found, told) == (RIGHT, ()), lacking
        with open_small(path, "r") as store:
            assert store.committed("orders", "torn") == {}


def test_a_copy_is_told_and_comes_right_with_its_master(bases: Bases, tmp_path: Path) -> None:
    path = shutil.copytree(bases.clean, tmp_path / "store")
    (path / JSON).write_text((path / JSON).read_text().replace(": 45", ": 20"))
    with open_small(path) as store:
        assert store.recovery.offsets_in_doubt
        assert offsets_of(store)["busy"] == 20
        rows = {f"orders@{group}": {0: offset} for group, offset in RIGHT.items()}
        engine_of(store).offsets.take_from_master(rows, whole=True)
    assert looked(path, "r") == (RIGHT, ())
