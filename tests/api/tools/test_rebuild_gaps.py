"""Gaps of queues that the log cannot explain: one bound for an open, a rebuild and their parts."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rocketstore import tools
from tests.api.tools.test_rebuild import index_of, made_by_the_store, queues_of
from tests.support.made_store import MadeStore
from tests.support.small_store import SMALL, open_small


@pytest.mark.parametrize("workers", [1, 2])
def test_gaps_that_the_log_cannot_have_lost(
    tmp_path: Path, workers: int, caplog: pytest.LogCaptureFixture, root: Path
) -> None:
    """Two gaps, each within what the log explains, both together beyond it: the first one is filled, by each
    way that makes the queues. The record after the other one has its keys; an open that makes the
    index again fills no gap that the queues were refused."""
    made = MadeStore(root)
    for number in range(60):
        made.put("ab"[number // 30], body=bytes(100), keys=[f"k{number}"])
    far = {topic: made.put(topic, queue_offset=4500, keys=["far"]) for topic in ("a", "b")}
    while made.end < 4096 * 3:
        made.put("other", body=bytes(500), keys=["o"])
    queues, index = made_by_the_store(root, tmp_path / "copy", **SMALL)
    assert any(name.startswith("a/0/") and int(name[-20:]) >= 90_000 for name in queues)
    assert all(int(name[-20:]) < 600 for name in queues if name.startswith("b/0/"))
    refused = f"the record at {far['b'].physical_offset}, and perhaps more, gets no unit: b/0: 4500"
    assert refused in caplog.text
    report = tools.rebuild(root, workers=workers, **SMALL)
    assert report.odd and queues_of(root) == queues and index_of(root) == index
    shutil.rmtree(root / "index")
    with open_small(root) as store:
        found = store.query("b", "far")
        assert [m.physical_offset for m in found] == [far["b"].physical_offset]
    assert queues_of(root) == queues and index_of(root) == index


def test_an_open_that_looks_fills_no_more_gaps_than_the_log_explains(tmp_path: Path) -> None:
    made = MadeStore(tmp_path / "s")
    for topic in ("a", "b", "c"):
        made.put(topic)
        made.put(topic, queue_offset=4200)
    open_small(made.root).close()
    for filled, left in (("b", ["c"]), ("c", [])):
        with open_small(made.root, check_queues=True) as store:
            assert [one.topic for one in store.recovery.refilled_queues] == [filled]
            assert [one.topic for one in store.recovery.unplaced_messages] == left


def test_parts_whose_gaps_are_too_many_together(tmp_path: Path, root: Path) -> None:
    """Each part may fill its gap; one store may not fill both."""
    made = MadeStore(root)
    for topic, end in (("a", 8192), ("b", 16384)):
        made.put(topic)
        made.put(topic, queue_offset=4500)
        while made.end < end:
            made.put("other", body=bytes(500))
    queues, index = made_by_the_store(root, tmp_path / "copy", **SMALL)
    report = tools.rebuild(root, workers=2, **SMALL)
    assert report.parts == 2 and "more than the log can have lost" in report.odd
    assert queues_of(root) == queues and index_of(root) == index
