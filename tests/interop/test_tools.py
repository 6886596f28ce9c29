"""What our commands and a compaction write, of a store with a broker's own sizes: RocketMQ opens it, and serves it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

import rocketstore
from rocketstore.cli.app import cli
from tests.interop.crashes import copy
from tests.interop.exchange import assert_sound, put_ours, put_theirs
from tests.interop.messages import SMALL, Sent, config_of
from tests.interop.oracle import Oracle, since
from tests.interop.test_marks import image, plain
from tests.interop.test_repair import messages_of
from tests.interop.views import Tally, View, of_oracle, of_ours

pytestmark = pytest.mark.java


#: 20 units a queue file, index files of 50 slots and 200 entries: no size of these is a default.
OWN: dict[str, Any] = {
    **SMALL,
    "mappedFileSizeConsumeQueue": 400,
    "maxHashSlotNum": 50,
    "maxIndexNum": 200,
}
INDEX_BYTES = 40 + 4 * 50 + 20 * 200
MESSAGES = 150
STEPS = [
    Sent(
        queue_id=n % 2,
        body=b"%03d" % n + bytes(300),
        properties=(("KEYS", f"k{n} all"), ("TAGS", "abc"[n % 3]), ("UNIQ_KEY", f"{n:032X}")),
    )
    for n in range(MESSAGES)
]
MORE = [
    Sent(queue_id=2, body=b"%d" % n, properties=(("KEYS", f"more{n}"), ("TAGS", "abc"[n % 3])))
    for n in range(9)
]


class Written(NamedTuple):
    """A store of RocketMQ's, stopped and as a crash leaves it."""

    clean: Path
    crashed: Path
    view: View
    #: What RocketMQ warns of when it opens the clean one.
    warnings: list[str]


@pytest.fixture(scope="module")
def reader(version: str) -> Iterator[Oracle]:
    """Its stores are not shut down, which takes seconds each: they go with the JVM."""
    with Oracle(version) as started:
        yield started


@pytest.fixture(scope="module")
def written(version: str, reader: Oracle, tmp_path_factory: pytest.TempPathFactory) -> Written:
    path = tmp_path_factory.mktemp("own") / "store"
    with reader.open(path, OWN) as theirs:
        put_theirs(theirs, STEPS)
        theirs.settle()
        view = of_oracle(theirs.dump())
        crashed = copy(path, "crashed")
    again = copy(path, "again")
    reader.warnings()
    reader.start(again, OWN)
    return Written(path, crashed, view, plain(reader.warnings(), again))


def run(*words: object, code: int = 0) -> None:
    result = CliRunner().invoke(cli, [str(word) for word in words])
    assert result.exit_code == code, result.output


def recover(path: Path, rng: random.Random) -> set[int]:
    run("recover", path)
    return set()


def rebuild(path: Path, rng: random.Random) -> set[int]:
    run("rebuild", path)
    return set()


def rebuild_what_is_lost(path: Path, rng: random.Random) -> set[int]:
    """Nothing in the store says the sizes."""
    shutil.rmtree(path / "consumequeue")
    shutil.rmtree(path / "index")
    conf = path.with_name("broker.conf")
    conf.write_text("".join(f"{name}={value}\n" for name, value in OWN.items()))
    run("rebuild", path, "--config", conf)
    return set()


def repair(path: Path, rng: random.Random) -> set[int]:
    """A body in the middle is hurt, and is gone then."""
    with rocketstore.open(path, "r", config=config_of(OWN)) as store:
        places = sorted(of_ours(store).messages())
    lost = rng.choice(places[5:-5])
    size = int(OWN["mappedFileSizeCommitLog"])
    with open(path / "commitlog" / f"{lost // size * size:020d}", "r+b") as file:
        file.seek(lost % size + 100)
        file.write(b"\xff" * 7)
    run("repair", path)
    return {lost}


def put(path: Path, rng: random.Random) -> set[int]:
    """No sizes of ours: those of the files that are there."""
    with rocketstore.open(path, durability="os", record_crc=False) as store:
        put_ours(store, MORE)
    return set()


Tool = Callable[[Path, random.Random], set[int]]
TOOLS: tuple[Tool, ...] = (recover, rebuild, rebuild_what_is_lost, repair, put)


@pytest.mark.parametrize("crashed", [False, True], ids=["clean", "crashed"])
@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.__name__)
def test_rocketmq_opens_what_a_command_wrote(
    version: str,
    reader: Oracle,
    written: Written,
    tally: Tally,
    rng: random.Random,
    tmp_path: Path,
    tool: Tool,
    crashed: bool,
) -> None:
    """With its own sizes: every record, unit and key is there, entries of tags where it writes such; no byte
    is changed, and nothing warned of."""
    path = tmp_path / "store"
    shutil.copytree(written.crashed if crashed else written.clean, path)
    lost = tool(path, rng)
    queues = {f.stat().st_size for f in (path / "consumequeue").rglob("*") if f.is_file()}
    indexes = {f.stat().st_size for f in (path / "index").iterdir()}
    assert (queues, indexes) == ({400}, {INDEX_BYTES})
    with rocketstore.open(path, "r") as ours:
        view = of_ours(ours)
    assert set(view.messages()) >= set(written.view.messages()) - lost
    before = image(path)
    reader.warnings()
    theirs = reader.start(path, OWN)
    assert plain(reader.warnings(), path) == written.warnings
    after = image(path)
    assert {name: after.get(name) for name in before} == before
    if not lost:  # what stands for a lost message is one of another topic to RocketMQ
        tally.same(of_oracle(theirs.dump()), view)
    for at, message in view.messages().items():
        for key in message["properties"].get("KEYS", "").split()[:1]:
            found = theirs.query(message["topic"], key, 0, 2**62)
            assert [m["physical_offset"] for m in found] == [at], key
    everything = theirs.query("Orders", "all", 0, 2**62)
    assert {m["physical_offset"] for m in everything} == set(written.view.messages()) - lost
    for tag in "abc":  # RocketMQ compares no keys: it answers with entries of tags
        found = theirs.query("Orders", f"T#{tag}", 0, 2**62)
        wanted = {at for at, m in view.messages().items() if m["properties"].get("TAGS") == tag}
        assert {m["physical_offset"] for m in found} == (wanted if since(version, "5.4") else set())
    assert_sound(path, OWN)


@pytest.mark.parametrize("keep_offsets", [True, False])
@pytest.mark.parametrize("crashed", [False, True])
def test_rocketmq_reads_a_compacted_store(
    oracle: Oracle,
    version: str,
    tally: Tally,
    tmp_path: Path,
    rng: random.Random,
    crashed: bool,
    keep_offsets: bool,
) -> None:
    """RocketMQ 5 looks for the minimum of a queue by halving, which gaps mislead: it hides the first
    messages of a queue, in its first file."""
    into = tmp_path / "into"
    with rocketstore.open(tmp_path / "store", config=config_of(SMALL)) as store:
        for number in range(300):
            properties = (("KEYS", f"k{rng.randrange(150)}"), ("TAGS", "a"))
            body = rng.randbytes(rng.randrange(40, 600)) if number % 9 else b""
            Sent(body=body, properties=properties, queue_id=number % 3).put(store)
        store.wait_flushed(store.end_offset)
        [topic] = store.topics(system=True)
        report = store.compact(topic, into=into, grace=timedelta(0), keep_offsets=keep_offsets)
    assert 0 < report.tombstones_dropped < report.kept < 150
    assert bool(report.skipped_offsets) == keep_offsets
    if crashed:
        (into / "abort").touch()
        (into / "checkpoint").unlink()
    with rocketstore.open(into, "r", config=config_of(SMALL)) as ours:
        end = ours.end_offset
        seen = of_ours(ours)
    expected = {
        at: (topic, one["queue_id"], one["queue_offset"]) for at, one in seen.messages().items()
    }
    assert len(expected) == report.kept
    for _ in range(2):
        with oracle.open(into, SMALL) as theirs:
            dump = theirs.dump()
        assert dump["max_offset"] == end
        found = {at: one[:3] for at, one in messages_of(dump).items()}
        if keep_offsets and not version.startswith("4."):
            first = {q["queue_id"]: q["min"] for q in dump["queues"]}
            hidden = {at: one for at, one in expected.items() if one[2] < first[one[1]]}
            assert found == {at: one for at, one in expected.items() if at not in hidden}
            continue
        assert found == expected
    tally.scenarios += 1
    tally.messages += len(expected)
