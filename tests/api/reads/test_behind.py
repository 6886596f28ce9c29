"""Queues or the key index that lack messages of the log: a typed error, never a short answer (K-58)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketstore import Store, StoreBehindError, tools
from rocketstore.cli import exit_codes
from rocketstore.log.commitlog.checkpoint import RocketmqCheckpoint
from rocketstore.log.dispatch import dispatcher, index_filler
from rocketstore.log.follow import catching_up
from rocketstore.log.index import segment
from rocketstore.log.index.store import IndexStore
from rocketstore.log.queues import queue_files
from tests.cli.conftest import Invoke, invoke
from tests.support.disk_calls import Blocks
from tests.support.small_store import dispatched, engine_of, open_small, parts
from tests.support.waiting import wait_until

__all__ = ["invoke"]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Blocks]:
    made = Blocks()
    monkeypatch.setattr(dispatcher, "RETRY_S", 0.02)
    monkeypatch.setattr(catching_up, "STALLED_S", 0.02)
    yield made
    made.full = False


@pytest.fixture
def index_disk(disk: Blocks, monkeypatch: pytest.MonkeyPatch) -> Blocks:
    monkeypatch.setattr(segment, "allocate_blocks", disk.allocate)
    return disk


@pytest.fixture
def queue_disk(disk: Blocks, monkeypatch: pytest.MonkeyPatch) -> Blocks:
    monkeypatch.setattr(queue_files, "allocate_blocks", disk.allocate)
    return disk


def lost(store: Store, keys: list[str]) -> list[str]:
    return [key for key in keys if len(store.query("T", key)) != 1]


def answers(store: Store, key: str) -> bool:
    try:
        return len(store.query("T", key)) == 1
    except StoreBehindError:
        return False


def test_an_index_without_room_goes_on_where_it_stood(
    tmp_path: Path, index_disk: Blocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_filler, "STEP_BYTES", 500)  # and records that are longer
    with open_small(tmp_path / "s", durability="os") as store:
        writer = store.writer("T")
        keys = [f"k{number}" for number in range(200)]
        for key in keys[:20]:
            writer.put(b"x" * 40, keys=key)
        assert lost(dispatched(store), keys[:20]) == []
        assert store.flags.behind == () and str(store.flags) == "running"
        index_disk.full = True
        for number, key in enumerate(keys[20:]):
            writer.put(b"x" * (900 if number % 30 == 0 else 40), keys=(key, f"{key}b"))
        assert engine_of(store).positions.indexed < dispatched(store).end_offset
        with pytest.raises(StoreBehindError, match="not in the key index: .* No space") as caught:
            store.query("T", keys[0])
        assert (caught.value.part, caught.value.path) == ("key index", str(tmp_path / "s"))
        assert store.flags.behind == (("key index", caught.value.reason),)
        assert f"key index behind the log: {caught.value.reason}" in str(store.flags)
        with open_small(tmp_path / "s", "r") as reader:
            with pytest.raises(StoreBehindError, match="stands at physical offset"):
                reader.query("T", keys[0])
            index_disk.full = False
            wait_until(lambda: answers(store, keys[-1]))
            assert lost(reader, keys) == []
        assert lost(store, keys) == lost(store, [f"{key}b" for key in keys[20:]]) == []
        writer.put(b"y", keys="later")
        assert lost(store, ["later"]) == [] and str(store.flags) == "running"
        # The thread that dispatches stores this position behind the one that the query waits for.
        wait_until(lambda: engine_of(store).positions.indexed == store.end_offset)
    with open_small(tmp_path / "s") as store:
        assert store.recovery.mode == "clean"
        assert lost(store, [*keys, "later"]) == []
    assert tools.verify(tmp_path / "s").ok


def test_a_step_that_ends_in_a_blank_passes_the_blank(
    monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    """The next one would begin in the middle of it, where no record is, and get nowhere for ever."""
    writer = store.writer("T")
    ends = [writer.put(b"x" * 150, keys=f"k{n}").end_offset for n in range(60)]
    dispatched(store)
    log = parts(store).commit_log.queue
    border = log.files[0].end_offset
    blank = max(end for end in ends if end <= border)
    assert blank + 8 < border < ends[-1]
    monkeypatch.setattr(index_filler, "STEP_BYTES", blank + 2)
    index = parts(store).index
    assert isinstance(index, IndexStore)
    filler = index_filler.IndexFiller(log.find, lambda offset: offset, index)
    assert filler.step(0, store.end_offset) == border
    assert filler.step(border, store.end_offset) > border


def test_a_queue_without_room_ends_no_read_early(
    queue_disk: Blocks, invoke: Invoke, root: Path
) -> None:
    with open_small(root, durability="os") as store:
        for number in range(5):
            store.writer("T").put(b"%d" % number, keys=f"k{number}")
        assert len(store.consumer("T").poll(9)) == 5
        queue_disk.full = True
        store.writer("U").put(b"hidden", keys="u")
        reader = open_small(root, "r")
        for opened in (store, reader):
            assert [m.body for m in opened.consumer("T").poll(9)] == [b"0", b"1", b"2", b"3", b"4"]
            for ask in (
                lambda opened=opened: opened.consumer("U").poll(),
                lambda opened=opened: opened.consumer("T", offset=5, queue_id=0).poll(),
                lambda opened=opened: opened.consumer("U").poll_columns(),
                lambda opened=opened: list(opened.consumer("U")),
                lambda opened=opened: opened.max_queue_offset("U", 0),
                lambda opened=opened: opened.query("U", "u"),
            ):
                with pytest.raises(StoreBehindError, match="not in the consume queues"):
                    ask()
        [(part, why)] = store.flags.behind
        assert part == "consume queues" and "No space left" in why
        shown = invoke("stat", root)
        assert shown.exit_code == exit_codes.FAILED, shown.stderr
        assert "consume queues" in shown.stderr
        assert store.dispatched_offset == reader.dispatched_offset < reader.visible_offset
        queue_disk.full = False
        wait_until(lambda: store.dispatched_offset == store.visible_offset)
        for opened in (store, reader):
            assert [m.body for m in opened.consumer("U").poll()] == [b"hidden"]
        assert store.flags.behind == ()
        reader.close()


def test_metrics_show_what_is_behind(tmp_path: Path, queue_disk: Blocks) -> None:
    metrics = pytest.importorskip("rocketstore.metrics")
    with open_small(tmp_path / "s", durability="os") as store:
        queue_disk.full = True
        store.writer("U").put(b"hidden")
        wait_until(lambda: bool(store.flags.behind))
        samples = {
            (sample.name, sample.labels.get("part")): sample.value
            for family in metrics.StoreCollector({"a": store}).collect()
            for sample in family.samples
        }
        assert samples["rocketstore_behind", "consume queues"] == 1
        assert samples["rocketstore_open", None] == 1


def test_rocketmqs_checkpoint_has_its_blocks_at_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full within the first second failed the store for good."""
    monkeypatch.setattr(RocketmqCheckpoint, "store", lambda *_: None)
    with open_small(tmp_path / "s"):
        assert (tmp_path / "s" / "checkpoint").read_bytes() == bytes(4096)
