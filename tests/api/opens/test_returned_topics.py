"""A topic that a broker deleted comes back with the next open, which says so (K-95)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import rocketstore
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.tools import verify
from tests.support.small_store import SMALL, open_small

NOTE = "topic gone: it had no queue and is not in topics.json"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """As a broker leaves a store that deleted the topic `gone`, and stopped."""
    root = tmp_path / "s"
    with open_small(root) as store:
        for topic in ("kept", "gone", "kept"):
            for number in range(5):
                store.writer(topic).put(b"%d" % number)
    shutil.rmtree(root / "consumequeue" / "gone")
    table = {"topicConfigTable": {"kept": {"topicName": "kept"}}, "dataVersion": {}}
    (root / "config" / "topics.json").write_text(json.dumps(table))
    return root


@pytest.mark.parametrize("stopped", ["cleanly", "killed"])
@pytest.mark.parametrize("mode", ["r", "rw"])
def test_it_comes_back_and_the_open_names_it(root: Path, mode: str, stopped: str) -> None:
    if stopped == "killed":
        StoreLayout(root).abort.touch()
    store = rocketstore.open(root, "r") if mode == "r" else open_small(root)
    with store:
        assert store.queues("gone") == [0]
        assert store.max_queue_offset("gone", 0) == 5
        assert [note for note in store.recovery.notes if note.startswith(NOTE)]
        assert NOTE in str(store.recovery)
        assert not [note for note in store.recovery.notes if "topic kept" in note]
    with open_small(root) as again:
        told = [note for note in again.recovery.notes if note.startswith(NOTE)]
        assert bool(told) == (mode == "r")  # a writer has made the queue: it is no news


def test_verify_says_that_it_may_be_deleted(root: Path) -> None:
    report = verify(root, index_slots=SMALL["index_slots"], index_entries=SMALL["index_entries"])
    [hidden] = report.hidden_messages
    assert (hidden.topic, hidden.count) == ("gone", 5)
    assert any("topics.json lacks the topic" in fault.reason for fault in report.faults)


def test_a_lost_queue_of_a_topic_that_is_known_gets_no_note(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "kept")
    with open_small(root) as store:
        assert [note.split(":")[0] for note in store.recovery.notes] == ["topic gone"]


def test_without_a_broker_no_topic_is_deleted(root: Path) -> None:
    (root / "config" / "topics.json").unlink()
    with open_small(root) as store:
        assert store.recovery.notes == ()
