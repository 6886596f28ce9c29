"""Our own JSON says nothing else after one bit of it has changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketstore.archive import shipped
from rocketstore.log.damage import Damage
from rocketstore.log.layout import store_json
from rocketstore.log.layout.log_place import LogPlace
from rocketstore.log.layout.named_holds import save_holds
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.layout.state_files import read_json_file, write_own_json
from rocketstore.log.recovery import progress as recovery
from rocketstore.replication.role import state as replication
from rocketstore.services.delay import progress as delays
from rocketstore.services.retention.events import EventLog, RetentionEvent
from rocketstore.values.bounded_json import LIMITS

pytestmark = pytest.mark.quick

#: printf '{"at":4096,"version":1}' | gzip -c | tail -c8 | od -An -tu4 -N4
CUT_CRC = 2994471395


def save_store(layout: StoreLayout) -> None:
    state = store_json.new_store_state(created_ms=1_700_000_000_000, record_crc=True)
    store_json.save_store_state(layout, state.with_foreign(0, 4096).with_fall(8192))


def save_recovery(layout: StoreLayout) -> None:
    found = recovery.RecoveryProgress(
        mode="unclean", clean=False, start=0, end=9000, dispatch_start=100,
        damage=(Damage(10, 400, "no record begins here", ("orders", "später")),),
    )  # fmt: skip
    recovery.save_progress(layout, found)


def save_shipped(layout: StoreLayout) -> None:
    shipped._write(layout, {"s3://lake/orders": [(4096, 9000, 77), (9500, 9900, None)]})


def save_retention(layout: StoreLayout) -> None:
    EventLog(layout).add(RetentionEvent(1, 0, 4096, 0.96, ("never shipped (from 0)",)))


def save_role(layout: StoreLayout) -> None:
    master = replication.as_master(None, begin=0, end=4096)
    replication.save_state(layout, replication.fenced(master, 3))


def save_compacted(layout: StoreLayout) -> None:
    document = {"version": 1, "topics": ["orders"], "source": [4096, 7], "made": [8192, 9]}
    write_own_json(layout, layout.compacted, document)


def save_delays(layout: StoreLayout) -> None:
    found = delays.Progress(
        {0: 5, 2: 17}, {2: [3, 4]}, 4096, LogPlace(4096, 99), rest={"dataVersion": {"counter": 3}}
    )
    delays.save(layout, found)


FILES: dict[str, tuple[Callable[[StoreLayout], None], Callable[[StoreLayout], Path]]] = {
    "store.json": (save_store, lambda layout: layout.store_json),
    "recovery.json": (save_recovery, lambda layout: layout.recovery),
    "shipped.json": (save_shipped, lambda layout: layout.shipped),
    "holds.json": (
        lambda layout: save_holds(layout, {"snapshot": 4096, "Prüfung": 9000}),
        lambda layout: layout.holds,
    ),
    "retention.json": (save_retention, lambda layout: layout.retention),
    "replication.json": (save_role, lambda layout: layout.replication),
    "compacted.json": (save_compacted, lambda layout: layout.compacted),
    "cut.json": (lambda layout: recovery.order_cut(layout, 4096), lambda layout: layout.cut),
    "delayOffset.json": (save_delays, lambda layout: layout.delay_offsets),
}


def test_each_json_of_ours_has_a_row() -> None:
    """What is missing has a checksum elsewhere (timers, offsets of groups, transactions), or does not
    outlive its process."""
    ours = {name for name in LIMITS if name.endswith(".json")}
    others = {"consumerOffset.json", "topics.json", "subscriptionGroup.json"}
    assert set(FILES) == ours - others


@pytest.mark.parametrize("name", FILES)
def test_one_changed_bit_is_noticed_or_changes_nothing(layout: StoreLayout, name: str) -> None:
    save, path_in = FILES[name]
    save(layout)
    path = path_in(layout)
    content, said = path.read_bytes(), read_json_file(path, LIMITS[name])
    assert isinstance(said, dict)
    assert "crc" not in said
    noticed = 0
    for at in range(8 * len(content)):
        changed = bytearray(content)
        changed[at // 8] ^= 1 << at % 8
        path.write_bytes(changed)
        try:
            found = read_json_file(path, LIMITS[name])
        except ValueError:
            noticed += 1
            continue
        assert isinstance(found, dict)
        # The name of the checksum itself, or a blank, may be another one.
        unknown = {key for key in found if key not in said}
        assert len(unknown) <= 1, (at, found)
        assert {key: value for key, value in found.items() if key in said} == said, (at, found)
    assert noticed > 4 * len(content)


def test_an_older_release_leaves_a_checksum_that_counts_for_nothing(layout: StoreLayout) -> None:
    """It writes what it does not know at the front, as it was."""
    save_store(layout)
    content = json.loads(layout.store_json.read_text())
    crc = content.pop("crc")
    content["foreign"] = [[0, 8192]]
    layout.store_json.write_text(json.dumps({"crc": crc, **content}))
    state = store_json.load_store_state(layout)
    assert state is not None
    assert (state.foreign, state.extra) == (((0, 8192),), {})
    store_json.save_store_state(layout, state)
    assert list(json.loads(layout.store_json.read_text()))[-1] == "crc"
    assert store_json.load_store_state(layout) == state


def test_the_checksum_is_as_the_format_says(layout: StoreLayout) -> None:
    """`docs/format/own.md` 20.19, by a number that another program made: crc32 of gzip."""
    recovery.order_cut(layout, 4096)
    assert json.loads(layout.cut.read_text()) == {"version": 1, "at": 4096, "crc": CUT_CRC}
