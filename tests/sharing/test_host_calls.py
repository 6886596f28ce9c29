"""Calls of a guest that says what none says: an error of a known class for it alone, and nothing changes."""

from __future__ import annotations

import datetime
import json
import os
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import GroupClaimedError, Retention, Store
from rocketstore._native.append.put_result import restore_put_result
from rocketstore.errors import BackpressureError, RocketStoreError
from rocketstore.services.transactions.commit_records import record_text
from rocketstore.sharing import host_commits
from rocketstore.sharing.host_calls import CALLS
from rocketstore.sharing.messages import FORMS, error_fields, meant, told
from tests.sharing.guest_tools import State
from tests.support.small_store import engine_of

HOUR = datetime.timedelta(hours=1)
NAME = "0123456789abcdef"
ROW = ("orders", 0, 0, 0, 1_000, b"RS_TRANSACTION\x010123456789abcdef.0\x02", b"body")
CLAIM = {"claim": 1, "topic": "orders", "group": "g", "queue_ids": None}
READ: list[Any] = [CLAIM, {}, {0: 0}, {0: 1}, {0: 0}, {0: 0}]
RESULT = restore_put_result(0, 0, 0, 0, 0, 1, 0, b"", None)
#: A sound call of each name.
SOUND: dict[str, tuple[dict[str, Any], bytes]] = {
    "claim": ({**CLAIM, "queue_ids": [0, 1]}, b""),
    "release": ({"claim": 1}, b""),
    "commit": ({**CLAIM, "offsets": {0: 1}, "sync": True}, b""),
    "stored": ({"key": "orders@g"}, b""),
    "transaction": (
        {
            "transaction_id": NAME,
            "durability": "os",
            "claims": [],
            "offsets": [READ],
            "changes": [],
            "wanted": {1: 1},
        },
        record_text(NAME, [ROW]),
    ),
    "changing": ({"changes": [["U", None, 0]], "name": "n.c"}, b""),
    "Transactions.prepare": (
        {
            "topic": "orders",
            "group": "g",
            "queue_id": 0,
            "tags": "t",
            "keys": ["k"],
            "properties": {"a": "b"},
            "flag": 0,
            "born_time": 5,
            "durability": "os",
        },
        b"half",
    ),
    "Transactions.commit": ({"transaction_id": 0, "durability": None}, b""),
    "Transactions.rollback": ({"transaction_id": 0, "durability": None}, b""),
    "Transactions.open": ({}, b""),
    "Transactions.errors": ({}, b""),
    "Delayed.cancel": ({"message": "U"}, b""),
    "Delayed.reschedule": ({"message": RESULT, "when": HOUR}, b""),
    "Delayed.repeat": (
        {
            "topic": "beats",
            "every": HOUR,
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
    "sink_commit": (
        {},
        b'{"writer": "w", "version": 0, "files": [], "reuse": "fail", "wait_ms": 1000}',
    ),
    "sink_offsets": ({}, b'{"group": "g", "offsets": {"orders": {"0": 1}}}'),
    "StoreRetention.rule": ({}, b""),
    "StoreRetention.last_error": ({}, b""),
    "StoreRetention.plan": ({"rule": Retention(max_bytes=1 << 40)}, b""),
    "StoreRetention.run": ({"rule": Retention(max_bytes=1 << 40)}, b""),
    "StoreRetention.hold": ({"name": "h", "offset": 0}, b""),
    "StoreRetention.release": ({"name": "h"}, b""),
}
PUT: list[Any] = [0, 0, 0, 0, 0, 1, 0, {"bytes": ""}, None, None, None, False, 0, [1]]
#: What JSON may have in the place of any value.
WRONG: tuple[object, ...] = (
    *(None, True, -1, 2**63, 10**30, 1.5, float("1e300"), "", "x", "\ud800", "a/../b", "\0"),
    *([], [None], [[]], [-1], [2**64], ["a", "b", "c"], {}, {"a": 1}, {"0": -1}, {"-1": 0}),
    *({"٣": 1}, {"99999999999999": 0}, {"0": "1"}, [[1, 2, 3]], [["U", "no", 0]], [{}], "1" * 5000),
    *({"dict": [[0, -1]]}, {"dict": [[[], 1]]}, {"dict": 5}, {"dict": [["0", 1]]}, {"dict": [[0]]}),
    *({"span": 0}, {"span": -(10**18)}, {"span": 10**30}, {"span": "x"}, {"span": 1e300}),
    *({"time": "9999-12-31T00:00:00+00:00"}, {"time": "0001-01-01"}, {"time": 5}, {"set": [[]]}),
    *({"put": [2**63, *PUT[1:]]}, {"put": []}, {"put": [-1, 0, 0, -1, *PUT[4:]]}, {"put": PUT}),
    *({"bytes": "zz"}, {"bytes": "00"}, {"error": {}}, {"error": 5}, {"prepared": [1, 2]}),
    *({"Retention": [None] * 9}, {"Retention": []}, {"Retention": ["x"] * 9}, {"none": 1}),
    *({"RetentionPlan": [None] * 8}, {"HeldLog": 7}, {"cancelled": "cancelled"}, {"cancelled": 1}),
)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Store]:
    with rocketstore.open(tmp_path / "s", durability="os") as store:
        store.writer("orders").put(b"a")
        yield store


def given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Values as a guest sends them."""
    found: dict[str, Any] = json.loads(
        json.dumps({name: told(one) for name, one in fields.items()})
    )
    return found


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
    answer = tried(host, name, given(fields), blob)
    if name in (
        "Transactions.commit",
        "Transactions.rollback",
        "Delayed.reschedule",
    ):  # there is nothing of that name
        assert isinstance(answer, RocketStoreError)
    else:
        assert isinstance(answer, list), answer
        assert answer[1] == host.visible_offset


@pytest.mark.parametrize("name", SOUND)
def test_a_field_that_means_nothing_is_an_error_of_that_call(host: Store, name: str) -> None:
    fields, blob = given(SOUND[name][0]), SOUND[name][1]
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
    ("claim", {"more": 1}),
    ("claim", {"engine": 1}),
    ("claim", {"state": 1}),
    ("commit", {"offsets": {0: 2}}),
    ("commit", {"offsets": {0: 2**63}}),
    ("commit", {"offsets": {"x": 1}}),
    ("commit", {"offsets": [1]}),
    ("transaction", {"transaction_id": NAME.upper()}),
    ("transaction", {"transaction_id": "a" * 16}),
    ("transaction", {"body": b"another"}),
    ("transaction", {"durability": "soon"}),
    ("transaction", {"durability": "replicas(2)"}),
    ("transaction", {"claims": [0]}),
    ("transaction", {"claims": [2]}),
    ("transaction", {"claims": [1]}),
    ("transaction", {"wanted": {1: 0}}),
    ("transaction", {"offsets": [[*READ[:3], {0: 1, 1: 1}, *READ[4:]]]}),
    ("transaction", {"offsets": [[CLAIM, {}, {0: 1}, *READ[3:]]]}),
    ("transaction", {"changes": [["none", None, 0]]}),
    ("Transactions.prepare", {"properties": {"DELAY": "1"}}),
    ("Transactions.prepare", {"group": ""}),
    ("Transactions.prepare", {"queue_id": "0"}),
    ("Transactions.prepare", {"flag": 2**40}),
    ("Transactions.prepare", {"self": 0}),
    ("Delayed.repeat", {"every": 0}),
    ("Delayed.repeat", {"every": "never"}),
    ("configure", {"changes": {"index_enabled": False}}),
    ("configure", {"changes": {"no": 1}}),
    ("configure", {"changes": {"flush_interval_ms": "1"}}),
    ("trim", {"before_ms": 5}),
    ("trim", {"before_offset": 10**12}),
    ("trim", {"over_holds": True}),
    ("StoreRetention.plan", {"rule": {"max_bytes": 1}}),
    ("StoreRetention.run", {"rule": None}),
    ("StoreRetention.hold", {"offset": -1}),
    ("StoreRetention.hold", {"name": ""}),
]


@pytest.mark.parametrize("name", sorted({name for name, _ in REFUSED}))
def test_what_is_refused_changes_nothing(host: Store, name: str) -> None:
    fields, blob = SOUND[name]
    before = host.end_offset, host.groups(), host.config, host.retention.holds
    for changed in [one for called, one in REFUSED if called == name]:
        values = {**fields, **({"wanted": {}} if name == "transaction" else {}), **changed}
        answer = tried(host, name, given(values), blob)
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
    answer = tried(host, "transaction", given({**fields, "wanted": {}}), ROWS[kind])
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
    fields, blob = given(SOUND["transaction"][0]), SOUND["transaction"][1]
    one, two = (CALLS["transaction"](engine, state, fields, blob)[0] for _ in range(2))
    assert isinstance(one, list)
    assert one == two
    assert one[0][2] is None
    assert [bytes(m.body) for m in host.consumer("orders")] == [b"a", b"body"]


RULES = [
    Retention(max_bytes=5),
    Retention(max_age=5, hours={1, 2}, check_every=0.5),
    Retention(max_age=1.5, keep_unconsumed_by="all", keep_unshipped=True),
    Retention(disk_watermarks=(0.1, 0.2), emergency_watermark=0.9, keep_latest_of=["a", "b"]),
]


@pytest.mark.parametrize("rule", RULES, ids=range(len(RULES)))
def test_a_rule_comes_back_as_it_was(rule: Retention) -> None:
    assert meant(json.loads(json.dumps(told(rule)))) == rule


def test_no_rule_is_an_error() -> None:
    good: Any = told(Retention(max_bytes=5))
    parts: list[Any] = good["Retention"]
    wrong: tuple[Any, ...] = ([], "all", 5, None, {}, parts[1:], [None, 0, *parts[2:]])
    for given_ones in wrong:
        with pytest.raises((TypeError, ValueError)):
            meant({"Retention": given_ones}, given=True)


def anything(source: random.Random, depth: int = 3) -> object:
    kind = source.randrange(9 if depth else 6)
    if kind == 6:
        return [anything(source, depth - 1) for _ in range(source.randrange(4))]
    if kind == 7:
        return {str(source.choice((0, "a", "id", *FORMS))): anything(source, depth - 1)}
    if kind == 8:
        return {"dict": [[source.choice((0, 1, "a")), anything(source, depth - 1)]]}
    return source.choice((*WRONG, source.randrange(-5, 5), source.getrandbits(70), "orders"))


def test_calls_of_anything(host: Store) -> None:
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"SEED={seed}")
    source = random.Random(seed)
    sound_ones = {name: (given(fields), blob) for name, (fields, blob) in SOUND.items()}
    for _ in range(3_000):
        name = source.choice([*SOUND])
        fields, blob = sound_ones[name]
        values = {
            key: anything(source) if source.random() < 0.5 else value
            for key, value in fields.items()
        }
        if source.random() < 0.2:
            blob = source.randbytes(source.randrange(200))
        elif source.random() < 0.2 and blob:
            at = source.randrange(len(blob))
            blob = blob[:at] + source.randbytes(1) + blob[at + 1 :]
        tried(host, name, values, blob)
    sound(host)
