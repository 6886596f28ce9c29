"""Names of queues that RocketMQ has and no put may use: light queues of lite topics, other alphabets."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rocketstore import InvalidTopicError, tools
from rocketstore._native.format.codec import tags_code
from tests.support.made_store import MadeStore
from tests.support.small_store import everything, open_small

LITE = "%LMQ%$TopicA$user0"
TOPICS = ("订单", "größe", "a b", "a.b", LITE)


@pytest.fixture
def made(tmp_path: Path) -> MadeStore:
    """Three messages of each topic; those of the lite topic are messages of its parent."""
    made = MadeStore(tmp_path / "made")
    for n in range(3):
        for topic in TOPICS[:-1]:
            made.put(topic, body=f"{topic} {n}".encode())
        light = {"INNER_MULTI_DISPATCH": LITE, "INNER_MULTI_QUEUE_OFFSET": str(n)}
        record = made.put("TopicA", body=f"{LITE} {n}".encode(), properties=light)
        unit = record.physical_offset.to_bytes(8) + record.size.to_bytes(4)
        made.write_unit(LITE, 0, n, unit + tags_code("").to_bytes(8))
    made.dispatch()
    return made


def bodies(root: Path, mode: str) -> dict[str, list[str]]:
    with open_small(root, mode) as store:
        return {
            t: [m.body.decode() for m in everything(store, t)] for t in store.topics(system=True)
        }


EXPECTED = {topic: [f"{topic} {n}" for n in range(3)] for topic in TOPICS}
EXPECTED["TopicA"] = EXPECTED[LITE]


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("mode", ["r", "rw"])
def test_each_of_them_is_listed_and_served(mode: str, lost: bool, made: MadeStore) -> None:
    if lost:
        shutil.rmtree(made.root / "consumequeue")
    assert bodies(made.root, mode) == EXPECTED
    if mode == "rw":
        assert bodies(made.root, "r") == EXPECTED
        assert not tools.verify(made.root, index_slots=16, index_entries=64).faults


def test_no_put_goes_to_such_a_topic(made: MadeStore) -> None:
    with open_small(made.root) as store:
        for topic in TOPICS:
            with pytest.raises(InvalidTopicError):
                store.put_message(topic, b"x")


def test_a_put_may_list_a_light_queue_of_a_lite_topic(tmp_path: Path) -> None:
    options = {"multi_dispatch_enabled": True, "light_queue_enabled": True}
    with open_small(tmp_path, **options) as store:
        for n in range(3):
            store.put_message("TopicA", b"%d" % n, properties={"INNER_MULTI_DISPATCH": LITE})
        assert [message.body for message in everything(store, LITE)] == [b"0", b"1", b"2"]
    assert bodies(tmp_path, "r")[LITE] == ["0", "1", "2"]


def test_names_that_lead_elsewhere_or_cannot_be_shown_get_no_queue(tmp_path: Path) -> None:
    made = MadeStore(tmp_path / "made")
    for topic in ("..", ".", "a/b", "a\nb", "\x1b[2J", "a\x7f"):
        made.put(topic)
    good = made.put("orders")
    with open_small(made.root) as store:
        assert store.topics() == ["orders"]
        assert store.get(made.records[0].physical_offset).topic == ".."
        assert [m.physical_offset for m in everything(store)] == [good.physical_offset]
    assert sorted(p.name for p in (made.root / "consumequeue").iterdir()) == ["orders"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["made"]
