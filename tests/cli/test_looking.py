"""tail, get, query and stat on a store at rest, and `--where` of the commands that read messages."""

from __future__ import annotations

import io
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import rocketstore
from rocketstore.cli import output
from tests.cli.conftest import SMALL, Invoke
from tests.support.batch_store import TOPIC, BatchStore
from tests.support.made_store import MadeStore


def test_tail_shows_the_newest_of_all_queues_in_log_order(invoke, store_path: Path) -> None:
    result = invoke("tail", store_path, "orders", "-n", 4, "--format", "%p %o %s")
    assert result.output.splitlines() == [
        "1 8 second 8",
        "0 18 first 18",
        "0 19 first 19",
        "1 9 second 9",
    ]


def test_tail_of_one_queue(invoke, store_path: Path) -> None:
    result = invoke("tail", store_path, "orders", "--queue-id", 1, "-n", 2, "--format", "%s")
    assert result.output == "second 8\nsecond 9\n"


def test_tail_with_a_tag_steps_back_until_there_are_enough(invoke, store_path: Path) -> None:
    result = invoke("tail", store_path, "orders", "--tag", "odd", "-n", 6, "--format", "%s")
    assert result.output.splitlines() == [f"first {n}" for n in (9, 11, 13, 15, 17, 19)]


def test_tail_of_messages_of_a_batch_keeps_their_order(invoke, tmp_path: Path) -> None:
    """They share a physical offset."""
    made = BatchStore(tmp_path / "batches")
    made.fill_batches(4)
    for count in (2, 5, 6, 10):
        result = invoke("tail", made.root, TOPIC, "-n", count, "--format", "%s")
        assert result.output.encode().splitlines() == made.bodies[-count:]


def test_tail_of_nothing_is_empty_and_of_an_unknown_topic_an_error(
    invoke, store_path: Path
) -> None:
    assert invoke("tail", store_path, "orders", "-n", 0).output == ""
    result = invoke("tail", store_path, "unknown")
    assert result.exit_code == 1
    assert "unknown" in result.stderr


def test_tail_of_an_unknown_queue_is_an_error(invoke, store_path: Path) -> None:
    result = invoke("tail", store_path, "orders", "--queue-id", 5)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "rocketstore: topic 'orders' has no queue 5; its queues: 0, 1\n"


def test_tail_as_json_lines(invoke, store_path: Path) -> None:
    result = invoke("tail", store_path, "orders", "-n", 1, "--queue-id", 0, "--format", "json")
    found = json.loads(result.output)
    assert found["topic"] == "orders"
    assert (found["queue_id"], found["queue_offset"]) == (0, 19)
    assert (found["body"], found["tags"], found["keys"]) == ("first 19", "odd", ["o-19"])


def test_a_body_that_is_no_text_goes_through_unchanged(invoke, store_path: Path) -> None:
    result = invoke("tail", store_path, "other", "--format", "%s")
    assert result.stdout_bytes == b"\x1b[31mred\xff\n"
    found = json.loads(invoke("tail", store_path, "other", "--format", "json").output)
    assert found["body_base64"] == "G1szMW1yZWT/"
    assert "body" not in found


def test_get_by_physical_offset(invoke, store_path: Path) -> None:
    with rocketstore.open(store_path, "r") as store:
        wanted = store.query("orders", "o-7")[0]
    result = invoke("get", store_path, wanted.physical_offset, "--format", "%t %o %k %s")
    assert result.output == "orders 7 o-7 first 7\n"
    details = invoke("get", store_path, wanted.physical_offset).output
    assert f"message id       {wanted.message_id}" in details
    assert f"\nbody             {len(wanted.body)} bytes\n" in details


def test_tail_of_a_topic_with_a_queue_that_was_cut(invoke, tmp_path: Path) -> None:
    with rocketstore.open(tmp_path, commit_log_file_size_bytes=1 << 20) as store:
        for n in range(6):
            store.writer("t", queue_id=n % 3).put(b"%d" % n)
    (file,) = (tmp_path / "consumequeue" / "t" / "1").iterdir()
    os.truncate(file, 0)
    result = invoke("tail", tmp_path, "t", "--format", "%s")
    assert (result.exit_code, result.stdout.split()) == (0, list("012345"))  # made from the log


def test_one_byte_is_no_bytes(invoke, tmp_path: Path) -> None:
    with rocketstore.open(tmp_path, commit_log_file_size_bytes=1 << 20) as store:
        store.writer("t").put(b"x")
    assert "\nbody             1 byte\n" in invoke("get", tmp_path, 0).output


def test_get_of_exactly_a_body(invoke, store_path: Path) -> None:
    with rocketstore.open(store_path, "r") as store:
        (wanted,) = store.consumer("other")
    result = invoke("get", store_path, wanted.physical_offset, "--format", "%s\\c")
    assert result.stdout_bytes == b"\x1b[31mred\xff"


@pytest.mark.parametrize("offset", [1, 10**12])
def test_get_where_no_record_begins_is_an_error(invoke, store_path: Path, offset: int) -> None:
    result = invoke("get", store_path, offset)
    assert result.exit_code in (1, 3)
    assert len(result.stderr.splitlines()) == 1


def test_query_by_key_newest_first(invoke, store_path: Path) -> None:
    words = ("query", store_path, "orders", "second", "--format", "%s")
    result = invoke(*words)
    assert result.output.splitlines() == [f"second {n}" for n in range(9, -1, -1)]
    result = invoke(*words, "--limit", 2)
    assert result.stdout.splitlines() == ["second 9", "second 8"]
    assert "rocketstore: 8 more have this key: --below " in result.stderr
    below = result.stderr.split("--below ")[1].split()[0]
    again = invoke(*words, "--below", below, "--limit", 8)
    assert again.output.splitlines() == [f"second {n}" for n in range(7, -1, -1)]
    oldest = invoke(*words, "--order", "oldest", "--limit", 3)
    assert oldest.stdout.splitlines() == ["second 0", "second 1", "second 2"]
    assert "7 more have this key: --above " in oldest.stderr
    assert len(invoke(*words, "--all").output.splitlines()) == 10
    for wrong in (["--all", "--limit", 3], ["--below", 5, "--above", 5], ["--below", -1]):
        assert invoke(*words, *wrong).exit_code == 2


def test_query_of_an_unknown_topic_is_an_error(invoke, store_path: Path) -> None:
    result = invoke("query", store_path, "unknown", "o-7")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"rocketstore: {store_path} has no topic 'unknown'\n"


def test_query_between_times(invoke, store_path: Path) -> None:
    words = ("query", store_path, "orders", "second", "--format", "%s")
    assert invoke(*words, "--end", "1000").exit_code == 1
    assert invoke(*words, "--begin", "2020-01-01T00:00:00Z").exit_code == 0
    result = invoke(*words, "--begin", "2990-01-01T00:00:00+01:00")
    assert (result.exit_code, result.output) == (1, result.stderr)
    assert "no message of orders has the key 'second'" in result.stderr


def test_stat_shows_positions_queues_sizes_and_recovery(invoke, store_path: Path) -> None:
    found = json.loads(invoke("stat", store_path, "--json").output)
    positions = found["positions"]
    assert positions["begin"] == 0 < positions["end"]
    assert positions["dispatched"] == positions["visible"] == positions["end"]
    assert found["lag_bytes"] == {"flush": 0, "dispatch": 0}
    queues = {(q["topic"], q["queue_id"]): q["messages"] for q in found["queues"]}
    assert queues == {("orders", 0): 20, ("orders", 1): 10, ("other", 0): 1}
    assert found["files"]["commitlog"]["bytes"] >= found["segment_bytes"] == 1 << 20
    text = invoke("stat", store_path).output
    assert "dispatched" in text
    assert "orders" in text
    assert "open: log [0, " in text


def test_stat_shows_how_far_a_group_is_behind(invoke, store_path: Path) -> None:
    with (
        rocketstore.open(store_path, "r+") as store,
        store.consumer("orders", group="billing") as consumer,
    ):
        assert len(consumer.poll(12)) == 12
        consumer.commit()
    found = json.loads(invoke("stat", store_path, "--group", "billing", "--json").output)
    assert found["group"]["name"] == "billing"
    assert found["group"]["lag"]["orders"] == 18


def test_stat_lists_the_groups_that_have_stored_offsets(invoke, store_path: Path) -> None:
    assert json.loads(invoke("stat", store_path, "--json").output)["groups"] == []
    with rocketstore.open(store_path, "r+") as store:
        for group, count in (("billing", 12), ("audit", 0), ("audit", 30)):
            with store.consumer("orders", group=group) as consumer:
                while count > 0:
                    count -= len(consumer.poll(count))
                consumer.commit()
        with store.consumer("orders", queue_id=1, group="half") as consumer:
            consumer.poll(4)
            consumer.commit()
    found = json.loads(invoke("stat", store_path, "--json").output)
    assert "group" not in found
    lags = {(row["group"], row["topic"]): row["lag"] for row in found["groups"]}
    assert lags == {("audit", "orders"): 0, ("billing", "orders"): 18, ("half", "orders"): 26}
    rows = [line.split() for line in invoke("stat", store_path).output.splitlines()]
    assert ["billing", "orders", "18"] in rows


def test_stat_of_a_group_that_never_committed_says_so(invoke, store_path: Path) -> None:
    text = invoke("stat", store_path, "--group", "nobody").output
    assert "group nobody has no stored offsets here" in text
    found = json.loads(invoke("stat", store_path, "--group", "nobody", "--json").output)
    assert found["group"]["committed"] == []
    with (
        rocketstore.open(store_path, "r+") as store,
        store.consumer("orders", group="billing") as consumer,
    ):
        consumer.poll(3)
        consumer.commit()
    text = invoke("stat", store_path, "--group", "billing").output
    rows = [line.split() for line in text.splitlines()]
    assert ["orders", "27"] in rows
    assert ["other", "1", "nothing", "committed"] in rows
    found = json.loads(invoke("stat", store_path, "--group", "billing", "--json").output)
    assert found["group"]["committed"] == ["orders"]


@pytest.mark.parametrize("text", ['{"offsetTable":{"orders@g":{0:1', "[]", '{"offsetTable":[]}'])
def test_stat_says_that_stored_offsets_cannot_be_read(invoke, store_path: Path, text: str) -> None:
    """And not that nobody ever committed."""
    path = store_path / "config" / "consumerOffset.json"
    assert json.loads(invoke("stat", store_path, "--json").stdout)["offsets_fault"] == ""
    path.write_text(text)
    result = invoke("stat", store_path, "--group", "billing")
    assert f"{path}: holds no offsets, nor does its .bak" in result.stderr
    assert "billing has no stored offsets here: their file cannot be read" in result.stdout
    found = json.loads(invoke("stat", store_path, "--json").stdout)
    assert found["offsets_fault"].startswith("holds no offsets")
    assert f"{path} at " in invoke("verify", store_path).stderr


def test_stat_asks_once_for_each_queue(invoke, store_path: Path, monkeypatch) -> None:
    """There may be many thousands, and each is looked up in its files."""
    asked, bounds = [], rocketstore.Store._bounds

    def counted(store: rocketstore.Store, topic: str, queue_id: int, **ask: bool) -> Any:
        asked.append((topic, queue_id))
        return bounds(store, topic, queue_id, **ask)

    monkeypatch.setattr(rocketstore.Store, "_bounds", counted)
    found = json.loads(invoke("stat", store_path, "--json").output)["queues"]
    # The first one asks whether the queues lack what the log has.
    assert asked[1:] == [(row["topic"], row["queue_id"]) for row in found]


@pytest.mark.parametrize("width", [40, 20, 9])
@pytest.mark.parametrize("count", [0, 3])
def test_rows_are_printed_as_rich_prints_a_table(width: int, count: int) -> None:
    """Which takes too long over many; and where lines are too short it does print them."""
    rows = [["orders", "a", "1"], ["表", "[bold]", "1,234"], ["", "bc", "12"]][:count]
    drawn = [Console(width=width, markup=False, file=io.StringIO()) for _ in range(2)]
    made = output.table("topic", "x", numbers=["lag"])
    for row in rows:
        made.add_row(*row)
    drawn[0].print(made)
    output.print_rows(drawn[1], ["topic", "x"], ["lag"], rows)
    assert drawn[0].file.getvalue() == drawn[1].file.getvalue()


def test_looking_changes_no_file(invoke, store_path: Path) -> None:
    def fingerprint() -> dict[str, tuple[int, bytes]]:
        return {
            str(path): (path.stat().st_mtime_ns, path.read_bytes())
            for path in sorted(store_path.rglob("*"))
            if path.is_file()
        }

    before = fingerprint()
    for words in (("stat",), ("tail", "orders"), ("query", "orders", "second"), ("verify",)):
        assert invoke(words[0], store_path, *words[1:]).exception is None or words == ("verify",)
    assert fingerprint() == before


@pytest.mark.parametrize(
    ("words", "scanned"),
    [(("stat",), 0), (("tail", "orders"), 0), (("get", 0), 0), (("query", "orders", "o-7"), 31)],
)
def test_an_index_that_is_gone_is_missed_by_who_looks_up_keys(
    invoke,
    store_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[object, ...],
    scanned: int,
) -> None:
    shutil.rmtree(store_path / "index")
    found = []
    real = rocketstore.open

    def noted(*places: Any, **named: Any) -> rocketstore.Store:
        store = real(*places, **named)
        found.append(store.recovery.scanned_records)
        return store

    monkeypatch.setattr(rocketstore, "open", noted)
    assert invoke(words[0], store_path, *words[1:]).exit_code == 0
    assert found == [scanned]


def test_long_names_are_whole_on_a_narrow_terminal(
    invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that begin alike must not look the same."""
    names = ["a" * 100 + "b", "a" * 100 + "c"]
    with rocketstore.open(
        tmp_path / "s", durability="os", commit_log_file_size_bytes=1 << 20
    ) as store:
        for name in names:
            store.writer(name).put(b"")
    monkeypatch.setattr(output, "PLAIN_WIDTH", 60)
    text = invoke("stat", tmp_path / "s").output
    shown = [line.split(" ")[0] for line in text.splitlines() if line.startswith("a")]
    assert "".join(shown) == "".join(names)
    assert any(
        line.startswith("clean open: ") and " checked from " in line for line in text.splitlines()
    )


@pytest.mark.parametrize("topic", ["\u8ba2\u5355", "a.b", "caf\xe9 x"])
def test_topics_of_others_are_read_by_their_names(invoke, tmp_path: Path, topic: str) -> None:
    """RocketMQ's clients cannot make them, other programs can; no path is made from them."""
    made = MadeStore(tmp_path / "store", segment_size=1 << 20)
    made.put(topic, keys=["k"])
    before = sorted(made.root.rglob("*"))
    with rocketstore.open(made.root, "r") as store:
        assert store.topics() == [topic]
        assert len(list(store.consumer(topic))) == len(store.query(topic, "k")) == 1
        assert sum(part.rows for part in rocketstore.scan(store, topics=topic)) == 1
    assert topic in invoke("stat", made.root).output
    assert invoke("tail", made.root, topic).exit_code == 0
    assert invoke("query", made.root, topic, "k").exit_code == 0
    assert sorted(made.root.rglob("*")) == before
    for name in ("../evil", "..", "a/b", "", "a\x1bb"):
        assert invoke("tail", made.root, name).exit_code == 2


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with rocketstore.open(tmp_path / "store", **SMALL) as store:
        writer = store.writer("t", queues=2)
        for n in range(200):
            writer.put(b"%d" % n, keys="k", tags="ab"[n % 2], properties={"n": str(n)})
    return tmp_path / "store"


def test_tail_steps_back_until_there_are_enough(invoke: Invoke, root: Path) -> None:
    result = invoke("tail", root, "t", "--where", "n < 20", "-n", 3, "--format", "%s")
    assert (result.exit_code, result.output.split()) == (0, ["17", "18", "19"])
    result = invoke("tail", root, "t", "--where", "n < 20", "--tag", "a", "--format", "%s")
    assert result.output.split() == [str(n) for n in range(0, 20, 2)]
    result = invoke("tail", root, "t", "--where", "n > 500", "--format", "%s")
    assert (result.exit_code, result.output) == (0, "")


def test_query(invoke: Invoke, root: Path) -> None:
    words = ("query", root, "t", "k", "--where", "n BETWEEN 5 AND 8", "--format", "%s")
    assert invoke(*words).output.split() == ["8", "7", "6", "5"]
    result = invoke(*words, "--limit", 3)
    assert "1 more have this key" in result.output
    assert result.output.split()[:3] == ["8", "7", "6"]
    assert invoke("query", root, "t", "k", "--where", "n = 500").exit_code == 1


@pytest.mark.parametrize("command", [("tail",), ("query",)])
def test_a_wrong_expression_is_wrong_use(command: tuple[str], invoke: Invoke, root: Path) -> None:
    key = () if command == ("tail",) else ("k",)
    result = invoke(*command, root, "t", *key, "--where", "n != 5")
    assert result.exit_code == 2
    assert "at position 2" in result.output
    assert "unequal is <>" in " ".join(result.output.split())
