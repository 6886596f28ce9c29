"""Filters of a query, answered by the source: called as Spark calls it, without a JVM."""

from __future__ import annotations

import datetime
import operator
import pickle
import random
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.source.options import ReadOptions
from tests.spark.reading import make_store
from tests.support.made_store import MadeStore

pytest.importorskip("pyarrow", reason="needs pyarrow: make spark")
filters = pytest.importorskip("pyspark.sql.datasource", reason="needs pyspark: make spark")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

FIRST_MS = 1_700_000_000_000
DAY_MS = 86_400_000
ORDERS = {
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
}
Row = dict[str, Any]


def moment(ms: int, us: int = 0) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(ms // 1000, datetime.UTC) + datetime.timedelta(
        milliseconds=ms % 1000, microseconds=us
    )


def fulfils(row: Row, found: Any) -> bool:
    """What Spark means by a filter, spelled out."""
    name = type(found).__name__
    if name == "Not":
        return row[found.child.attribute[0]] is not None and not fulfils(row, found.child)
    value = row[found.attribute[0]]
    if name in ("IsNull", "IsNotNull"):
        return (value is None) is (name == "IsNull")
    if value is None:
        return False
    if name == "In":
        return value in [v for v in found.value if v is not None]
    if name in ORDERS:
        return bool(ORDERS[name](value, found.value))
    if name.startswith("String"):
        return bool(value.startswith(found.value))
    return bool(value == found.value)


def asked(root: Path, given: list[Any], **options: str) -> tuple[list[Row], list[Any], list[Any]]:
    """Rows of a read with filters in the source; the filters that it leaves to Spark; its scans."""
    from rocketstore.spark.source.conditions import conditions_text
    from rocketstore.spark.source.plan import plan_batch, read
    from rocketstore.spark.source.pushdown import conditions_of

    fields = ReadOptions.parse({"path": "p", **options}).fields
    understood = [conditions_of(one, fields) for one in given]
    left = [one for one, known in zip(given, understood, strict=True) if known is None]
    text = conditions_text(condition for known in understood if known for condition in known)
    parsed = ReadOptions.parse({"path": str(root), "conditions": text, **options}, stream=False)
    scans, bounds = pickle.loads(pickle.dumps(plan_batch(parsed)))
    rows = [row for s in scans for batch in read(s, parsed, bounds) for row in batch.to_pylist()]
    return rows, left, scans


def everything(root: Path, **options: str) -> list[Row]:
    from rocketstore.spark.source.plan import plan_batch, read

    given = ReadOptions.parse({"path": str(root), **options}, stream=False)
    scans, bounds = plan_batch(given)
    return [r for s in scans for b in read(s, given, bounds) for r in b.to_pylist()]


def made(root: Path, rng: random.Random, count: int = 400) -> None:
    """A log of many days and segments, with clocks that were put back, records of odd queues and tags that
    are no UTF-8 or have blanks around them."""
    store = MadeStore(root, segment_size=8192, record_crc=False)
    time_ms = FIRST_MS
    for number in range(count):
        time_ms += rng.choice([0, 1, 7, 3_600_000, 20_000_000, -3_600_000])
        store.put(
            rng.choice(["orders", "events", "größe", "a"]),
            rng.choice([0, 0, 1, 2, -3]),
            rng.randbytes(rng.randrange(200)),
            tags=rng.choice(["", "red", "blue", " red", "grün", "*", "r\ufffd", "no text"]),
            keys=rng.choice([(), (f"k{number}",), ("a", "b")]),
            store_ms=time_ms,
        )
    for segment in (root / "commitlog").iterdir():
        segment.write_bytes(segment.read_bytes().replace(b"no text", b"r\xff text"))


NUMBERS = ("queue_id", "queue_offset", "physical_offset", "sys_flag", "flag", "reconsume_times")
TIMES = ("store_timestamp", "born_timestamp")
TEXTS = ("topic", "tags", "keys", "born_host", "msg_id")


def random_filter(rng: random.Random, rows: list[Row]) -> Any:
    """A filter about a value of some row, or near it, or of none."""
    name = rng.choice([*NUMBERS, *TIMES, *TEXTS, "topic", "tags", "queue_id", "store_timestamp"])

    def value() -> Any:
        found = rng.choice(rows)[name]
        if name in NUMBERS:
            return found + rng.choice([0, 0, 0, 1, -1, 2**31, -(2**31)])
        if name in TIMES:
            return found + datetime.timedelta(microseconds=rng.choice([0, 0, 1, -1, 999, 10**9]))
        return rng.choice([found or "", found or "x", "red", "orders", "*", "none of them"])

    kind = rng.choice(
        ["EqualTo", "EqualNullSafe", "In", "In", *ORDERS, "IsNull", "IsNotNull", "Not", "String"]
    )
    if kind in ("IsNull", "IsNotNull"):
        return getattr(filters, kind)((name,))
    if kind == "In":
        return filters.In(
            (name,), [*(value() for _ in range(rng.randrange(4))), *[None] * rng.randrange(2)]
        )
    if kind == "Not":
        return filters.Not(filters.EqualTo((name,), value()))
    if kind == "String":
        return filters.StringStartsWith(("topic",), "o")
    return getattr(filters, kind)((name,), value())


def test_no_filter_changes_what_is_found(tmp_path: Path, rng: random.Random) -> None:
    """Whatever is asked, in whatever combination with options: rows that the source gives, filtered by what
    it left to Spark, are all rows, filtered by everything."""
    made(tmp_path / "s", rng)
    choices: list[dict[str, str]] = [
        {}, {}, {"topic": "orders,größe", "failOnDataLoss": "false"},  # no queue has this name
        {"topicPattern": "e.*|o.*|größe"}, {"topicPattern": "e.*|o.*"}, {"queues": "0,2"},
        {"queues": '{"orders": [0, 1], "a": [2]}'}, {"tags": "red || blue"}, {"tags": "*"},
        {"startingTimestamp": str(FIRST_MS + 5 * DAY_MS)},
        {"endingTimestamp": str(FIRST_MS + 9 * DAY_MS)},
    ]  # fmt: skip
    known = {str(options): everything(tmp_path / "s", **options) for options in choices}
    handled = nonempty = 0
    for _ in range(200):
        options = rng.choice(choices)
        rows = known[str(options)]
        given = [random_filter(rng, known["{}"]) for _ in range(rng.choice([1, 1, 2, 3]))]
        found, left, _ = asked(tmp_path / "s", given, splitBytes="20k", **options)
        wanted = [row for row in rows if all(fulfils(row, one) for one in given)]
        assert [row for row in found if all(fulfils(row, one) for one in left)] == wanted, given
        handled += len(given) - len(left)
        nonempty += bool(wanted) and len(left) < len(given)
    assert handled > 100 and nonempty > 20


@pytest.mark.parametrize(
    "given",
    [
        filters.EqualTo(("topic",), "orders"),
        filters.In(("topic",), ["orders", "events", None]),
        filters.LessThan(("topic",), "f"),
        filters.IsNotNull(("topic",)),
        filters.EqualTo(("queue_id",), 2),
        filters.EqualNullSafe(("queue_id",), 2),
        filters.In(("queue_id",), [1, -3]),
        filters.GreaterThan(("queue_offset",), 10),
        filters.LessThanOrEqual(("physical_offset",), 30_000),
        filters.GreaterThanOrEqual(("physical_offset",), 30_001),
        filters.LessThan(("store_timestamp",), moment(FIRST_MS + 3 * DAY_MS, 1)),
        filters.EqualTo(("born_timestamp",), moment(FIRST_MS - 1)),
        filters.EqualTo(("tags",), "red"),
        filters.In(("tags",), ["red", "grün"]),
        filters.IsNull(("tags",)),
        filters.IsNotNull(("keys",)),
    ],
    ids=str,
)
def test_what_is_answered_by_the_source(tmp_path: Path, rng: random.Random, given: Any) -> None:
    """And exactly: nothing is left to Spark, and the rows are right without it."""
    made(tmp_path / "s", rng)
    rows = everything(tmp_path / "s")
    found, left, _ = asked(tmp_path / "s", [given])
    assert left == []
    assert found == [row for row in rows if fulfils(row, given)]


@pytest.mark.parametrize(
    "given",
    [
        filters.EqualTo(("tags",), " red"),  # a scan takes tags without the blanks around them
        filters.EqualTo(("tags",), "*"),
        filters.EqualTo(("tags",), ""),
        filters.EqualTo(("tags",), "r\ufffd"),  # also shown for bytes that are no text
        filters.LessThan(("tags",), "red"),
        filters.EqualTo(("keys",), "a b"),
        filters.EqualTo(("body",), b"x"),
        filters.EqualTo(("queue_id",), True),
        filters.EqualTo(("queue_id",), 1.0),
        filters.EqualTo(("queue_offset",), None),
        filters.LessThan(("store_timestamp",), datetime.datetime(2026, 1, 1)),  # of which zone?
        filters.IsNull(("topic",)),
        filters.Not(filters.EqualTo(("queue_id",), 1)),
        filters.StringStartsWith(("topic",), "o"),
        filters.EqualTo(("properties", "key"), "x"),
        filters.EqualTo(("nothing",), 1),
    ],
    ids=str,
)
def test_what_is_left_to_spark(tmp_path: Path, rng: random.Random, given: Any) -> None:
    from rocketstore.spark.source.pushdown import conditions_of

    assert conditions_of(given, ReadOptions.parse({"path": "p"}).fields) is None


def looked_at(scans: list[Any]) -> tuple[int, int]:
    """(records, rows) of scans: what was read, and what was taken of it."""
    for scan in scans:
        for _ in scan:
            pass
    return sum(s.report.records for s in scans), sum(s.report.rows for s in scans)


def test_what_cannot_be_asked_for_is_not_read(tmp_path: Path, rng: random.Random) -> None:
    """Offsets and times leave segments out; topics, queues and tags leave records out of the scan."""
    made(tmp_path / "s", rng)
    rows = everything(tmp_path / "s")
    whole = len(rows)
    middle = rows[whole // 2]["physical_offset"]
    _, _, scans = asked(tmp_path / "s", [filters.GreaterThanOrEqual(("physical_offset",), middle)])
    assert looked_at(scans) == (whole - whole // 2, whole - whole // 2)
    _, _, scans = asked(tmp_path / "s", [filters.EqualTo(("physical_offset",), middle)])
    assert looked_at(scans) == (1, 1)
    late = moment(rows[-1]["store_timestamp"].timestamp().__floor__() * 1000 - 3 * DAY_MS)
    found, _, scans = asked(tmp_path / "s", [filters.GreaterThan(("store_timestamp",), late)])
    records, taken = looked_at(scans)
    assert 0 < len(found) <= taken <= records < whole
    for one in (
        filters.EqualTo(("topic",), "orders"),
        filters.EqualTo(("queue_id",), 2),
        filters.EqualTo(("tags",), "red"),
    ):
        found, _, scans = asked(tmp_path / "s", [one])
        assert 0 < len(found) == looked_at(scans)[1] < whole
    for never in (
        [filters.EqualTo(("topic",), "orders"), filters.EqualTo(("topic",), "events")],
        [filters.EqualTo(("physical_offset",), 2**62)],
        [filters.In(("queue_id",), [])],
        [filters.EqualTo(("queue_id",), 2**31)],
        [filters.EqualTo(("tags",), "red"), filters.EqualTo(("tags",), "blue")],
    ):
        assert asked(tmp_path / "s", never) == ([], [], [])


def test_other_views_have_other_names(tmp_path: Path, rng: random.Random) -> None:
    messages = make_store(tmp_path / "s", rng, 200)
    wanted = [m for m in messages if m.topic == "orders" and m.queue_id == 1]
    low = wanted[len(wanted) // 2]
    for view, names in (
        ("kafka", ("topic", "partition", "offset", "timestamp")),
        ("rocketmq", ("topic", "queueId", "queueOffset", "storeTimestamp")),
    ):
        topic, queue_id, queue_offset, stored = names
        given = [
            filters.EqualTo((topic,), "orders"),
            filters.EqualTo((queue_id,), 1),
            filters.GreaterThanOrEqual((queue_offset,), low.queue_offset),
            filters.GreaterThanOrEqual((stored,), moment(low.store_timestamp_ms)),
        ]
        found, left, _ = asked(tmp_path / "s", given, view=view)
        assert left == [] and [row[queue_offset] for row in found] == [
            m.queue_offset for m in wanted if m.queue_offset >= low.queue_offset
        ]
    given = [filters.EqualTo(("key",), b"a"), filters.EqualTo(("timestampType",), 1)]
    assert asked(tmp_path / "s", given, view="kafka")[1] == given
    assert asked(tmp_path / "s", [filters.IsNotNull(("key",))], view="kafka")[1] == []


def test_bounds_and_filters_together(tmp_path: Path, rng: random.Random) -> None:
    """Queue offsets of the options hold beside the filters."""
    messages = make_store(tmp_path / "s", rng, 300)
    given = [filters.In(("queue_id",), [0, 1])]
    options = {"topic": "orders", "startingOffsets": '{"orders": {"0": 5, "1": 9, "2": 1}}'}
    found, _, _ = asked(tmp_path / "s", given, **options)
    first = {0: 5, 1: 9}
    assert [row["physical_offset"] for row in found] == [
        m.physical_offset
        for m in messages
        if m.topic == "orders" and m.queue_offset >= first.get(m.queue_id, 2**63)
    ]


def test_answers_travel_in_the_text_of_an_error(tmp_path: Path) -> None:
    """Whatever Spark writes around it; and other errors are not taken for an answer."""
    from rocketstore.spark.source.pushdown import FiltersAskedError, answer_in, conditions_of
    from rocketstore.spark.source.source import FilterAsker

    options = ReadOptions.parse({"path": "p", "askFilters": "true"}, stream=False)
    given = [
        filters.In(("topic",), ["größe", "a'b\n"]),
        filters.EqualTo(("keys",), "left to Spark"),
        filters.IsNotNull(("tags",)),
        filters.LessThan(("store_timestamp",), moment(FIRST_MS, 7)),
    ]
    with pytest.raises(FiltersAskedError) as raised:
        FilterAsker(options).pushFilters(given)
    text = answer_in(
        f"Failed to plan: Traceback …\n  FiltersAskedError: {raised.value}\n  at org.apache…"
    )
    assert text is not None
    parsed = ReadOptions.parse({"path": "p", "conditions": text}, stream=False).conditions
    known = [conditions_of(one, options.fields) for one in given]
    assert list(parsed) == [condition for some in known if some for condition in some]
    assert answer_in("[RS_NO_STORE] path = 'x'") is None


@pytest.mark.parametrize(
    "text",
    ["", "7", "[1]", '[["nothing", "in", []]]', '[["topic", "~", []]]', '[["topic", "in", [1]]]',
     '[["queue_id", "in", ["a"]]]', '[["queue_id", "in", [true]]]', '[["queue_id", "<", []]]',
     '[["queue_id", "<", [1, 2]]]', '[["keys", "in", ["a"]]]', '[["body", "given", []]]'],
)  # fmt: skip
def test_conditions_that_nobody_wrote_are_refused(text: str) -> None:
    with pytest.raises(SparkFaceError, match=r"^\[RS_BAD_OPTION\] conditions"):
        ReadOptions.parse({"path": "p", "conditions": text}, stream=False)


def test_two_threads_ask_in_turns() -> None:
    """The second would take the setting of the first for the session's own, and leave it so."""
    from rocketstore.spark.frame import PUSHDOWN, ask

    settings = {PUSHDOWN: "false"}
    seen: list[str] = []
    planned = threading.Event()

    def second_plans() -> None:
        seen.append(settings[PUSHDOWN])
        planned.set()

    def first_plans() -> None:
        second.start()
        assert not planned.wait(0.2)
        seen.append(settings[PUSHDOWN])

    conf = SimpleNamespace(get=settings.__getitem__, set=settings.__setitem__)
    session: Any = SimpleNamespace(conf=conf)
    frames: list[Any] = [SimpleNamespace(inputFiles=plans) for plans in (first_plans, second_plans)]
    second = threading.Thread(target=ask, args=(session, frames[1]))
    assert ask(session, frames[0]) is None
    second.join()
    assert seen == ["true", "true"] and settings == {PUSHDOWN: "false"}


def test_a_condition_names_no_topic_of_services(tmp_path: Path) -> None:
    """The rows are those of `load().where(…)`, which has none of theirs."""
    made = MadeStore(tmp_path)
    halves = "RMQ_SYS_TRANS_HALF_TOPIC"
    for topic in ("orders", halves, "clicks"):
        made.put(topic, body=topic.encode())
    made.dispatch()
    both = [filters.In(("topic",), (halves, "orders"))]
    for options, topics in (
        ({}, ["orders"]),
        ({"topicPattern": ".*"}, ["orders"]),
        ({"systemTopics": "true"}, ["orders", halves]),
        ({"topic": f"clicks,{halves}"}, [halves]),
        ({"queues": f'{{"{halves}": [0]}}'}, [halves]),
    ):
        rows, left, _ = asked(tmp_path, both, **options)
        assert ([row["topic"] for row in rows], left) == (topics, [])
    assert asked(tmp_path, [filters.EqualTo(("topic",), halves)])[0] == []
