"""One bad part of a store never takes the whole: each face serves the rest, and names the part."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
import rocketstore.aio
from tests.support.small_store import SMALL, open_small

COUNT = 40
TOPICS = ("a", "b", "c")
SHAPE = [f"--index-{n}={SMALL[f'index_{n}']}" for n in ("slots", "entries")]
Damage = Callable[[Path], None]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 messages of each of three topics in one queue; `b` is the one that is harmed."""
    path = tmp_path_factory.mktemp("whole") / "s"
    with open_small(path) as store:
        for number in range(COUNT):
            for topic in TOPICS:
                store.writer(topic).put(b"%s-%03d" % (topic.encode(), number), keys=f"k{number}")
    return path


def body(root: Path) -> None:
    for file in (root / "commitlog").iterdir():
        file.write_bytes(file.read_bytes().replace(b"b-010", b"b-0#0"))


def directory(part: str, number: int) -> Damage:
    """A directory in place of a file, which nobody can read."""

    def change(root: Path) -> None:
        file = sorted((root / part).iterdir())[number]
        file.unlink()
        file.mkdir()

    return change


def cut(part: str, number: int) -> Damage:
    def change(root: Path) -> None:
        file = sorted((root / part).iterdir())[number]
        os.truncate(file, file.stat().st_size // 2)

    return change


def file(part: str) -> Damage:
    """A file in place of a directory."""

    def change(root: Path) -> None:
        shutil.rmtree(root / part)
        (root / part).write_bytes(b"x")

    return change


#: Of derived files, which the log makes again: nothing may be missing anywhere.
DERIVED: dict[str, Damage] = {
    "queue-directory": directory("consumequeue/b/0", 0),
    "queue-cut": cut("consumequeue/b/0", 0),
    "topic-file": file("consumequeue/b"),
    "queue-file": file("consumequeue/b/0"),
    "index-directory": directory("index", 0),
    "index-cut": cut("index", 0),
}
#: Of the log: the rest is served, and what is gone is named.
LOG: dict[str, Damage] = {
    "body": body,
    "segment-directory": directory("commitlog", 1),
    "segment-cut": cut("commitlog", 1),
}


@pytest.fixture
def root(request: pytest.FixtureRequest, sound: Path, tmp_path: Path) -> Path:
    path = tmp_path / "s"
    shutil.copytree(sound, path)
    {**DERIVED, **LOG}[request.param](path)
    return path


def polled(root: Path, topic: str) -> tuple[int, int]:
    """Messages and errors of a consumer that steps over what it cannot have."""
    found = errors = 0
    with rocketstore.open(root, "r") as store, store.consumer(topic, reset="earliest") as consumer:
        while True:
            try:
                batch = consumer.poll(100)
            except rocketstore.CorruptRecordError as error:
                errors += 1
                place = error.topic, error.queue_id, error.queue_offset
                assert place == (topic, 0, consumer.positions[0])
                consumer.seek(consumer.positions[0] + 1, queue_id=0)
                continue
            if not batch:
                return found, errors
            found += len(batch)


def polled_async(root: Path, topic: str) -> tuple[int, int]:
    async def run() -> tuple[int, int]:
        found = errors = 0
        async with (
            rocketstore.aio.open(root, "r") as store,
            store.consumer(topic, reset="earliest") as consumer,
        ):
            while True:
                try:
                    batch = await consumer.poll(100)
                except rocketstore.CorruptRecordError as error:
                    errors += 1
                    place = error.topic, error.queue_id, error.queue_offset
                    assert place == (topic, 0, consumer.positions[0])
                    await consumer.seek(consumer.positions[0] + 1, queue_id=0)
                    continue
                if not batch:
                    return found, errors
                found += len(batch)

    return asyncio.run(run())


def scanned(root: Path, topic: str) -> tuple[int, int]:
    scan = rocketstore.scan(root, topics=[topic], on_damage="skip")
    rows = sum(columns.rows for columns in scan)
    return rows, scan.report.damage_count


def as_arrow(root: Path, topic: str) -> tuple[int, int]:
    pytest.importorskip("pyarrow")
    scan = rocketstore.scan(root, topics=[topic], on_damage="skip")
    return scan.to_arrow().read_all().num_rows, scan.report.damage_count


FACES = (polled, polled_async, scanned, as_arrow)


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("root", DERIVED, indirect=True)
def test_a_derived_file_takes_nothing(root: Path, face: Callable[..., tuple[int, int]]) -> None:
    assert [face(root, topic) for topic in TOPICS] == [(COUNT, 0)] * len(TOPICS)


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("root", LOG, indirect=True)
def test_a_part_of_the_log_takes_itself(root: Path, face: Callable[..., tuple[int, int]]) -> None:
    found = [face(root, topic) for topic in TOPICS]
    assert found[1][0] < COUNT
    assert found[1][1] > 0
    for rows, errors in found if face in (polled, polled_async) else ():
        assert rows + errors == COUNT
    assert all(rows > COUNT // 2 for rows, _ in found)


@pytest.mark.parametrize("root", {**DERIVED, **LOG}, indirect=True)
def test_commands_serve_the_rest_and_name_the_part(
    root: Path, invoke: Callable[..., object], request: pytest.FixtureRequest
) -> None:
    name = request.node.callspec.params["root"]
    of_log = name in LOG
    results = {
        "tail": invoke("tail", root, "b", "-n", "1000"),
        "other": invoke("tail", root, "c", "-n", "1000"),
        "stat": invoke("stat", root),
        "query": invoke("query", root, "c", f"k{COUNT - 1}"),
        "query-bad": invoke("query", root, "b", "k10"),
        "verify": invoke("verify", root, *SHAPE),
    }
    codes = {what: result.exit_code for what, result in results.items()}
    segment = name.startswith("segment")
    assert codes == {
        "tail": 3 if of_log else 0,
        "other": 3 if segment else 0,
        "stat": 3 if segment else 0,
        "query": 3 if segment else 0,
        "query-bad": 3 if of_log else 0,
        "verify": 3,
    }
    shown = len(results["tail"].stdout.splitlines())
    assert (COUNT // 2 < shown < COUNT) if of_log else shown == COUNT
    if name == "body":
        assert "left out: the index has an entry for" in results["query-bad"].stderr
        assert "is damaged: record at physical offset" in results["query-bad"].stderr
        assert "record at physical offset" in results["tail"].stderr


@pytest.mark.parametrize("root", {**DERIVED, **LOG}, indirect=True)
def test_a_shipment_takes_the_rest_and_names_the_part(
    root: Path, invoke: Callable[..., Any], request: pytest.FixtureRequest
) -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow: make arrow")
    of_log = request.node.callspec.params["root"] in LOG
    result = invoke("ship", root, f"{root}-archive")
    assert result.exit_code == (3 if of_log else 0)
    assert ("not shipped: " in result.stderr) == of_log
    archived = {path.name for path in Path(f"{root}-archive").iterdir()} - {"manifest.json"}
    assert len(archived) == len(list((root / "commitlog").iterdir())) - 1 - of_log


BLOCKING = ("topic-file", "queue-file")


@pytest.mark.parametrize("name", BLOCKING)
def test_a_queue_without_a_directory_is_behind_alone(
    name: str, sound: Path, tmp_path: Path, invoke: Callable[..., Any]
) -> None:
    """Of a writer, of readers beside it, and of what they show; the next open makes it good."""
    path = tmp_path / "s"
    shutil.copytree(sound, path)
    DERIVED[name](path)
    with open_small(path) as store:
        store.writer("a").put(b"a-more", keys="more")
        store.writer("new").put(b"new")
        [(part, why)] = store.flags.behind
        assert part == "consume queue b/0"
        assert "a file in place of a topic's" in why
        with pytest.raises(rocketstore.StoreBehindError, match="b/0"):
            store.writer("b").put(b"b-more")
        with rocketstore.open(path, "r") as reader:
            for opened in (store, reader):
                found = [message.body for message in taken(opened, "a")]
                assert (len(found), found[-1]) == (COUNT + 1, b"a-more")
                assert [message.body for message in taken(opened, "new")] == [b"new"]
                assert [m.body for m in opened.query("a", "more")] == [b"a-more"]
                assert "b" in opened.topics(system=True)
                assert 0 in opened.queues("b")
                for ask in (
                    lambda opened=opened: opened.max_queue_offset("b", 0),
                    lambda opened=opened: taken(opened, "b"),
                    lambda opened=opened: opened.offset_at("b", 0, 0),
                ):
                    with pytest.raises(rocketstore.StoreBehindError, match="close the store"):
                        ask()
        shown = invoke("stat", path)
        assert shown.exit_code == 1
        assert "not in the consume queue b/0" in shown.stderr
        assert [line for line in shown.stdout.splitlines() if line.startswith("new ")]
        found = invoke("verify", path, *SHAPE)
        assert found.exit_code == 3
        assert "HIDDEN" in found.stdout
    file = path / "consumequeue" / "b"
    (file if name == "topic-file" else file / "0").unlink()
    with open_small(path) as store:
        assert store.flags.behind == ()
        assert len(taken(store, "b")) == COUNT
        assert store.writer("b").put(b"b-more").queue_offset == COUNT
    assert invoke("verify", path, *SHAPE).exit_code == 0
    assert not (path / "rocketstore" / "blocked_queues").exists()


def test_a_file_that_stays_is_met_again(sound: Path, tmp_path: Path) -> None:
    path = tmp_path / "s"
    shutil.copytree(sound, path)
    DERIVED["topic-file"](path)
    for number in range(3):
        with open_small(path) as store:
            assert store.writer("a").put(b"x").queue_offset == COUNT + number
            assert [part for part, _ in store.flags.behind] == ["consume queue b/0"]
    assert polled(path, "b") == (COUNT, 0)  # nobody writes: a reader makes the units in memory


def test_metrics_show_the_queue_that_is_behind(sound: Path, tmp_path: Path) -> None:
    metrics = pytest.importorskip("rocketstore.metrics")
    path = tmp_path / "s"
    shutil.copytree(sound, path)
    DERIVED["topic-file"](path)
    with open_small(path) as store:
        samples = [
            (sample.name, sample.labels)
            for family in metrics.StoreCollector({"s": store}).collect()
            for sample in family.samples
        ]
    assert any(
        name.endswith("_behind") and labels.get("part") == "consume queue b/0"
        for name, labels in samples
    )
    assert any(
        name.endswith("_unreadable") and labels.get("topic") == "b" for name, labels in samples
    )


def taken(store: rocketstore.Store, topic: str) -> list[rocketstore.Message]:
    with store.consumer(topic, reset="earliest") as consumer:
        found: list[rocketstore.Message] = []
        while batch := consumer.poll(100):
            found += batch
        return found


def test_a_file_in_place_of_the_log_is_no_empty_store(sound: Path, tmp_path: Path) -> None:
    path = tmp_path / "s"
    shutil.copytree(sound, path)
    file("commitlog")(path)
    with pytest.raises(NotADirectoryError, match="commitlog"):
        rocketstore.open(path, "r")


@pytest.mark.parametrize("gone", ["before", "behind"])
def test_a_queue_that_loses_its_place_beside_readers(gone: str, tmp_path: Path) -> None:
    """The file comes while the store is open, before the first message of its topic, and goes
    before or behind the close."""
    path = tmp_path / "s"
    with open_small(path) as store, rocketstore.open(path, "r") as reader:
        store.writer("a").put(b"a")
        assert len(taken(reader, "a")) == 1
        (path / "consumequeue" / "late").write_bytes(b"x")
        store.writer("late").put(b"late")
        store.writer("a").put(b"a")
        for opened in (store, reader):
            assert len(taken(opened, "a")) == 2
            with pytest.raises(rocketstore.StoreBehindError, match="late/0"):
                taken(opened, "late")
        assert store.dispatched_offset == store.visible_offset
        if gone == "before":
            (path / "consumequeue" / "late").unlink()
            with pytest.raises(rocketstore.StoreBehindError, match="late/0"):
                taken(reader, "late")
    (path / "consumequeue" / "late").unlink(missing_ok=True)
    with open_small(path) as store:
        assert [message.body for message in taken(store, "late")] == [b"late"]


def test_a_directory_in_place_of_the_next_file_of_a_queue(tmp_path: Path) -> None:
    """It goes before the close: nothing but the close itself can tell the next open."""
    path = tmp_path / "s"
    units = SMALL["consume_queue_file_size_bytes"] // 20
    place = path / "consumequeue" / "b" / "0" / f"{20 * units:020d}"
    with open_small(path) as store:
        for number in range(units):
            store.writer("b").put(b"%d" % number)
        assert len(taken(store, "b")) == units  # so that its directory is there
        place.mkdir()
        for number in range(3):
            store.writer("b").put(b"more %d" % number)
            store.writer("a").put(b"a")
        assert len(taken(store, "a")) == 3
        with pytest.raises(rocketstore.StoreBehindError, match="b/0"):
            store.max_queue_offset("b", 0)
        place.rmdir()
    with open_small(path) as store:
        assert [message.body for message in taken(store, "b")][units:] == [
            b"more 0", b"more 1", b"more 2"
        ]  # fmt: skip
