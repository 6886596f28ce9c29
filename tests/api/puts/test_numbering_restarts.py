"""Queues whose numbering began again at 0: a topic made again, a lite topic that expired."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rocketstore import tools
from tests.support.made_store import MadeStore
from tests.support.small_store import SMALL, everything, open_small

LITE = "%LMQ%$TopicA$user0"
SHAPE = {name: SMALL[name] for name in ("index_slots", "index_entries")}


def made(root: Path, counts: tuple[int, ...], *, light: bool, stands: bool) -> list[bytes]:
    """A store whose queue was removed between the runs of `counts` messages: bodies of the last.
    `stands`: RocketMQ has written the units of the last run."""
    store = MadeStore(root)
    for run, count in enumerate(counts):
        for n in range(count):
            body = b"%d/%d" % (run, n)
            store.put("other", body=body)
            if light:
                names = {"INNER_MULTI_DISPATCH": LITE, "INNER_MULTI_QUEUE_OFFSET": str(n)}
                record = store.put("TopicA", body=body, properties=names)
            else:
                record = store.put("orders", body=body, queue_offset=n)
            if run == len(counts) - 1 and stands and light:
                unit = record.physical_offset.to_bytes(8) + record.size.to_bytes(4) + bytes(8)
                store.write_unit(LITE, 0, n, unit)
        if not light:
            shutil.rmtree(root / "consumequeue" / "orders", ignore_errors=True)
        store.dispatch()
    if not stands:
        shutil.rmtree(root / "consumequeue")
    return [b"%d/%d" % (len(counts) - 1, n) for n in range(counts[-1])]


RUNS = [(1, 1), (1, 3), (3, 2), (25, 4), (4, 25), (12, 12, 12), (30, 1, 2), (5, 1)]


@pytest.mark.parametrize("counts", RUNS, ids=str)
@pytest.mark.parametrize("light", [False, True], ids=["topic", "light"])
@pytest.mark.parametrize("how", ["r", "clean", "crash", "lost", "rebuild"])
def test_the_last_numbering_counts(
    how: str, light: bool, counts: tuple[int, ...], tmp_path: Path
) -> None:
    root = tmp_path / "made"
    wanted = made(root, counts, light=light, stands=how not in ("lost", "rebuild"))
    topic = LITE if light else "orders"
    if how == "crash":
        (root / "abort").touch()
    if how == "rebuild":
        (root / "consumequeue").mkdir()
        tools.rebuild(root, **SMALL)
    with open_small(root, "r" if how == "r" else "rw") as store:
        assert [message.body for message in everything(store, topic)] == wanted
        if how != "r" and not light:
            assert store.put_message(topic, b"next").queue_offset == len(wanted)
    if how != "r":
        assert not tools.verify(root, **SHAPE).faults
    with open_small(root, "r") as store:
        found = [message.body for message in everything(store, topic)]
        assert found[: len(wanted)] == wanted


def test_a_single_stray_hides_no_message(tmp_path: Path) -> None:
    """One record with the queue offset 0 behind others, and the old numbering goes on."""
    store = MadeStore(tmp_path / "made")
    for n in (0, 1, 2, 3, 0, 4, 5):
        store.put(body=b"%d" % n, queue_offset=n)
    with open_small(store.root) as opened:
        assert [m.body for m in everything(opened)] == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert any("0 follows others" in f.reason for f in tools.verify(store.root, **SHAPE).faults)
