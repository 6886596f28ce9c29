"""Calls of a guest that says what none says: an error of a known class for it alone, and nothing changes."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import GroupClaimedError, Retention, Store
from rocketstore.errors import BackpressureError, ConfigError, RocketStoreError
from rocketstore.services.transactions.commit_records import record_text
from rocketstore.sharing import host_commits
from rocketstore.sharing.call_values import rule_fields, rule_of
from rocketstore.sharing.host_calls import CALLS
from rocketstore.sharing.messages import error_fields
from tests.sharing.guest_tools import State
from tests.support.small_store import engine_of

NAME = "0123456789abcdef"
ROW = ("orders", 0, 0, 0, 1_000, b"RS_TRANSACTION\x010123456789abcdef.0\x02", b"body")
CLAIM = {"claim": 1, "topic": "orders", "group": "g", "queue_ids": None}
READ = {**CLAIM, "begins": {"0": 0}, "ends": {"0": 1}, "began": {"0": 0}, "reset": {"0": 0}}
#: A sound call of each name.
SOUND: dict[str, tuple[dict[str, Any], bytes]] = {
    "claim": ({**CLAIM, "queue_ids": [0, 1]}, b""),
    "release": ({"claim": 1}, b""),
    "commit": ({**CLAIM, "offsets": {"0": 1}, "sync": True}, b""),
    "stored": ({"key": "orders@g"}, b""),
    "transaction": (
        {
            "id": NAME,
            "durability": "os",
            "claims": [],
            "offsets": [READ],
            "changes": [],
            "wanted": {"1": 1},
        },
        record_text(NAME, [ROW]),
    ),
    "changing": ({"changes": [["U", None, 0]], "name": "n.c"}, b""),
    "prepare": (
        {
            "topic": "orders",
            "group": "g",
            "queue_id": 0,
            "properties": {"a": "b"},
            "flag": 0,
            "born_ms": 5,
            "durability": "os",
        },
        b"half",
    ),
    "settle": ({"id": 0, "want": "commit", "durability": None}, b""),
    "open_transactions": ({}, b""),
    "cancel": ({"unique_id": "U"}, b""),
    "reschedule": ({"at": 0, "place": 0, "when": [5]}, b""),
    "repeat": (
        {
            "topic": "beats",
            "every": [3_600_000_000],
            "unique_id": "B",
            "start": None,
            "timezone": "UTC",
            "queue_id": 0,
            "properties": {},
        },
        b"beat",
    ),
    "configure": ({"changes": {"flush_interval_ms": 500}}, b""),
    "trim": ({"before_offset": 0, "before_ms": None}, b""),
    "flush": ({"limit_ms": 1000}, b""),
    "figures": ({}, b""),
    "retention": (
        {"asked": "plan", "rule": rule_fields(Retention(max_bytes=1 << 40)), "name": "h"},
        b"",
    ),
    "sink_commit": (
        {},
        b'{"writer": "w", "version": 0, "files": [], "reuse": "fail", "wait_ms": 1000}',
    ),
    "sink_offsets": ({}, b'{"group": "g", "offsets": {"orders": {"0": 1}}}'),
}
#: What JSON may have in the place of any value.
WRONG: tuple[object, ...] = (
    *(None, True, -1, 2**63, 10**30, 1.5, float("1e300"), "", "x", "\ud800", "a/../b", "\0"),
    *([], [None], [[]], [-1], [2**64], ["a", "b", "c"], {}, {"a": 1}, {"0": -1}, {"-1": 0}),
    *({"٣": 1}, {"99999999999999": 0}, {"0": "1"}, [[1, 2, 3]], [["U", "no", 0]], [{}], "1" * 5000),
)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Store]:
    with rocketstore.open(tmp_path / "s", durability="os") as store:
        store.writer("orders").put(b"a")
        yield store


def tried(store: Store, name: str, fields: Mapping[str, Any], blob: bytes) -> object:
    """What a call gives, or its error, which is of a class that goes over the socket."""
    state = State()
    try:
        value, data = CALLS[name](engine_of(store), state, fields, blob)
    except (RocketStoreError, TypeError, ValueError) as error:
        json.dumps(error_fields(error))
        return error
    json.dumps(value)
    assert isinstance(data, bytes)
    return value


def test_each_call_has_a_sound_one_here() -> None:
    assert SOUND.keys() == CALLS.keys()


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_call_is_answered(host: Store, name: str) -> None:
    fields, blob = SOUND[name]
    answer = tried(host, name, json.loads(json.dumps(fields)), blob)
    if name in ("settle", "reschedule"):  # there is nothing of that name
        assert isinstance(answer, RocketStoreError)
    else:
        assert isinstance(answer, list), answer
        assert answer[1] == host.visible_offset


@pytest.mark.parametrize("name", SOUND)
def test_a_field_that_means_nothing_is_an_error_of_that_call(host: Store, name: str) -> None:
    fields, blob = SOUND[name]
    for field in fields:
        tried(host, name, {n: value for n, value in fields.items() if n != field}, blob)
        for wrong in WRONG:
            tried(host, name, {**fields, field: wrong}, blob)
    sound(host)


def sound(host: Store) -> None:
    """Puts, groups and transactions go on."""
    host.writer("orders").put(b"z", durability="disk")
    with host.transaction() as tx:
        tx.put("others", b"t")
    with host.consumer("others", group="mine") as consumer:
        consumer.poll(1)
        consumer.commit()
    assert engine_of(host).commit_log.failure is None


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("claim", {"claim": "1"}),
    ("claim", {"claim": True}),
    ("claim", {"claim": -1}),
    ("claim", {"topic": 5}),
    ("claim", {"group": "a b"}),
    ("claim", {"queue_ids": [-1]}),
    ("claim", {"queue_ids": list(range(70_000))}),
    ("commit", {"offsets": {"0": 2}}),
    ("commit", {"offsets": {"0": 2**63}}),
    ("commit", {"offsets": {"x": 1}}),
    ("commit", {"offsets": [1]}),
    ("transaction", {"id": NAME.upper()}),
    ("transaction", {"id": "a" * 16}),
    ("transaction", {"durability": "soon"}),
    ("transaction", {"durability": "replicas(2)"}),
    ("transaction", {"claims": [0]}),
    ("transaction", {"claims": [2]}),
    ("transaction", {"claims": [1]}),
    ("transaction", {"wanted": {"1": 0}}),
    ("transaction", {"offsets": [{**READ, "ends": {"0": 1, "1": 1}}]}),
    ("transaction", {"offsets": [{**READ, "begins": {"0": 1}}]}),
    ("transaction", {"changes": [["none", None, 0]]}),
    ("prepare", {"properties": {"DELAY": "1"}}),
    ("prepare", {"group": ""}),
    ("prepare", {"queue_id": "0"}),
    ("prepare", {"flag": 2**40}),
    ("repeat", {"every": [0]}),
    ("repeat", {"every": "never"}),
    ("configure", {"changes": {"index_enabled": False}}),
    ("configure", {"changes": {"no": 1}}),
    ("configure", {"changes": {"flush_interval_ms": "1"}}),
    ("trim", {"before_ms": 5}),
    ("trim", {"before_offset": 10**12}),
    ("retention", {"rule": {"max_bytes": 0}}),
    ("retention", {"rule": {"none": 0}}),
    ("retention", {"asked": "hold", "offset": -1, "rule": None}),
    ("retention", {"asked": "hold", "offset": 0, "name": "", "rule": None}),
]


@pytest.mark.parametrize("name", sorted({name for name, _ in REFUSED}))
def test_what_is_refused_changes_nothing(host: Store, name: str) -> None:
    fields, blob = SOUND[name]
    before = host.end_offset, host.groups(), host.config, host.retention.holds
    for changed in [one for called, one in REFUSED if called == name]:
        given = {**fields, **({"wanted": {}} if name == "transaction" else {}), **changed}
        answer = tried(host, name, given, blob)
        assert isinstance(answer, Exception), (changed, answer)
        assert (host.end_offset, host.groups(), host.config, host.retention.holds) == before
    sound(host)


ROWS: dict[str, bytes] = {
    "nothing": b"",
    "cut": record_text(NAME, [ROW])[:-1],
    "more": record_text(NAME, [ROW]) + b"x",
    "of another transaction": record_text("f" * 16, [ROW]),
    "of another number": record_text(NAME, [ROW, ROW]),
    "a system topic": record_text(NAME, [("rmq_sys_rocketstore_transactions", *ROW[1:])]),
    "a topic that there cannot be": record_text(NAME, [("a/b", *ROW[1:])]),
    "flags of a batch": record_text(NAME, [(*ROW[:3], 0x80, *ROW[4:])]),
    "a queue beyond all": record_text(NAME, [("orders", 2**31, *ROW[2:])]),
    "properties that are none": record_text(NAME, [(*ROW[:5], b"\xff" * 40, b"")]),
}


@pytest.mark.parametrize("kind", ROWS)
def test_rows_of_a_transaction_that_are_none(host: Store, kind: str) -> None:
    fields, _ = SOUND["transaction"]
    end = host.end_offset
    answer = tried(host, "transaction", {**fields, "wanted": {}}, ROWS[kind])
    assert isinstance(answer, RocketStoreError | ValueError | TypeError), answer
    assert host.end_offset == end
    sound(host)


def test_a_claim_number_is_of_one_group(host: Store) -> None:
    engine, state = engine_of(host), State()
    CALLS["claim"](engine, state, CLAIM, b"")
    with pytest.raises(ValueError, match="claim = 1"):
        CALLS["claim"](engine, state, {**CLAIM, "group": "h"}, b"")
    with pytest.raises(GroupClaimedError):
        CALLS["claim"](engine, state, {**CLAIM, "claim": 2}, b"")
    assert list(state.claims) == [1]
    CALLS["release"](engine, state, {"claim": 1}, b"")
    CALLS["release"](engine, state, {"claim": 1}, b"")
    host.consumer("orders", group="g").close()


def test_a_guest_has_so_many_claims(host: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_commits, "MOST_CLAIMS", 2)
    engine, state = engine_of(host), State()
    for number in range(2):
        CALLS["claim"](engine, state, {**CLAIM, "claim": number, "group": f"g{number}"}, b"")
    with pytest.raises(BackpressureError, match="2 consumers"):
        CALLS["claim"](engine, state, {**CLAIM, "claim": 2, "group": "g2"}, b"")


def test_a_transaction_that_is_sent_twice_counts_once(host: Store) -> None:
    engine, state = engine_of(host), State()
    fields, blob = SOUND["transaction"]
    one, two = (CALLS["transaction"](engine, state, fields, blob)[0] for _ in range(2))
    assert isinstance(one, list)
    assert isinstance(two, list)
    assert (one[0]["number"], one[0]["end"]) == (two[0]["number"], two[0]["end"])
    assert [bytes(m.body) for m in host.consumer("orders")] == [b"a", b"body"]


RULES = [
    Retention(max_bytes=5),
    Retention(max_age=5, hours={1, 2}, check_every=0.5),
    Retention(max_age=1.5, keep_unconsumed_by="all", keep_unshipped=True),
    Retention(disk_watermarks=(0.1, 0.2), emergency_watermark=0.9, keep_latest_of=["a", "b"]),
]


@pytest.mark.parametrize("rule", RULES, ids=range(len(RULES)))
def test_a_rule_comes_back_as_it_was(rule: Retention) -> None:
    assert rule_of(json.loads(json.dumps(rule_fields(rule)))) == rule


def test_no_rule_is_an_error() -> None:
    wrong: tuple[object, ...] = (None, [], "all", {"max_age": [None], "x": 1})
    for given in wrong:
        with pytest.raises((TypeError, ValueError)):
            rule_of(given)
    with pytest.raises(ConfigError):
        rule_of({"max_bytes": 0})


def anything(source: random.Random, depth: int = 3) -> object:
    kind = source.randrange(9 if depth else 6)
    if kind == 6:
        return [anything(source, depth - 1) for _ in range(source.randrange(4))]
    if kind == 7:
        return {str(source.choice((0, "a", "id"))): anything(source, depth - 1) for _ in range(2)}
    return source.choice((*WRONG, source.randrange(-5, 5), source.getrandbits(70), "orders"))


def test_calls_of_anything(host: Store) -> None:
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"SEED={seed}")
    source = random.Random(seed)
    for _ in range(3_000):
        name = source.choice([*SOUND])
        fields, blob = SOUND[name]
        given = {
            key: anything(source) if source.random() < 0.5 else value
            for key, value in fields.items()
        }
        if source.random() < 0.2:
            blob = source.randbytes(source.randrange(200))
        elif source.random() < 0.2 and blob:
            at = source.randrange(len(blob))
            blob = blob[:at] + source.randbytes(1) + blob[at + 1 :]
        tried(host, name, given, blob)
    sound(host)
