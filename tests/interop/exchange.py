"""The same messages put by either side, read by the other."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import rocketstore
from rocketstore.tools import verify
from tests.interop.messages import SMALL, Sent, config_of, oracle_batch
from tests.interop.oracle import Oracle, OracleStore
from tests.interop.views import Tally, View, expected, of_oracle, of_ours

__all__ = ["Steps", "assert_sound", "put_ours", "put_theirs", "served", "they_write", "we_write"]

#: Messages, and the parts of batches.
Steps = Sequence[Sent | list[Sent]]


def they_write(
    oracle: Oracle,
    tally: Tally,
    path: Path,
    steps: Steps,
    settings: dict[str, Any] = SMALL,
    **options: Any,
) -> View:
    """RocketMQ writes and stops; we read it as it was and after a recovery for writing."""
    with oracle.open(path, settings) as theirs:
        acked = put_theirs(theirs, steps)
        theirs.settle()
        view = of_oracle(theirs.dump())
        served(tally, acked, view)
    for mode in ("r", "rw"):
        with rocketstore.open(path, mode, config=config_of(settings, **options)) as ours:
            tally.same(view, of_ours(ours))
    return view


def we_write(
    oracle: Oracle,
    tally: Tally,
    path: Path,
    steps: Steps,
    settings: dict[str, Any] = SMALL,
    **options: Any,
) -> View:
    """We write and stop; RocketMQ reads it."""
    with rocketstore.open(path, config=config_of(settings, **options)) as ours:
        acked = put_ours(ours, steps)
    with rocketstore.open(path, "r", config=config_of(settings, **options)) as ours:
        view = of_ours(ours)
        served(tally, acked, view)
    with oracle.open(path, settings) as theirs:
        tally.same(of_oracle(theirs.dump()), view)
    return view


def put_theirs(store: OracleStore, steps: Steps) -> list[tuple[Sent, dict[str, Any]]]:
    """Every message with the fields that the put decided."""
    acked = []
    for batch, group in itertools.groupby(steps, lambda step: isinstance(step, list)):
        if not batch:
            singles = [step for step in group if isinstance(step, Sent)]
            results = store.put([sent.for_oracle() for sent in singles])
            for sent, result in zip(singles, results, strict=True):
                assert result["status"] == "PUT_OK", result
                acked.append((sent, result))
            continue
        for parts in group:
            assert isinstance(parts, list)
            result = store.put_batch(oracle_batch(parts))
            assert (result["status"], result["count"]) == ("PUT_OK", len(parts))
            for number, sent in enumerate(parts):
                acked.append((sent, {"queue_offset": result["queue_offset"] + number}))
    return acked


def put_ours(store: rocketstore.Store, steps: Steps) -> list[tuple[Sent, dict[str, Any]]]:
    """The same with us; the parts of a batch one by one, since their properties differ."""
    acked = []
    for step in steps:
        for sent in step if isinstance(step, list) else [step]:
            result = sent.put(store)
            names = ("physical_offset", "queue_offset", "size", "store_timestamp_ms", "message_id")
            acked.append((sent, {name: getattr(result, name) for name in names}))
    return acked


def assert_sound(path: Path, settings: dict[str, Any] = SMALL) -> None:
    """`rocketstore verify` finds no fault."""
    shape = {"index_slots": settings["maxHashSlotNum"], "index_entries": settings["maxIndexNum"]}
    report = verify(path, **shape)
    assert report.ok, str(report)


def served(tally: Tally, acked: Sequence[tuple[Sent, dict[str, Any]]], view: View) -> None:
    """All that was acknowledged is there as it was sent, and nothing else."""
    queued = 0
    for sent, result in acked:
        if sent.sys_flag & 0xC in (0x4, 0xC):  # prepared and rolled back: in no queue
            continue
        queued += 1
        found = view.queues[sent.topic, sent.queue_id][result["queue_offset"]]
        wanted = {name: value for name, value in result.items() if name in found}
        tally.same_message({**expected(sent), **wanted}, found, str(result))
    assert queued == sum(map(len, view.queues.values()))
