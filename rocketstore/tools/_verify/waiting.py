"""Which records may have no unit and no entry yet: the next open, or the writer, makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rocketstore._native.format.message import Message
from rocketstore.config import StoreConfig
from rocketstore.engine.open import planned_recovery
from rocketstore.engine.open_options import Options
from rocketstore.errors import RocketStoreError
from rocketstore.log.commitlog.checkpoint import SAFETY_MS, RocketmqCheckpoint
from rocketstore.log.follow.writer_monitor import WriterMonitor
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.tools._verify.holes import OFFSET_MAX
from rocketstore.tools.report import Findings
from rocketstore.values.plural import counted

__all__ = ["Waiting", "waiting_records"]


class Waiting(NamedTuple):
    """`unit`: whether a record may have no unit. Records from `index_from` on, and with
    `index_from_ms` those stored then or later, may have no entry in the index."""

    unit: Callable[[Message], bool]
    index_from: int = OFFSET_MAX
    index_from_ms: int | None = None


def waiting_records(
    layout: StoreLayout, config: StoreConfig, writer: str, watch: WriterMonitor, findings: Findings
) -> Waiting:
    """`writer`: what has the store open, as `watch` sees it."""
    if writer == "recovering":
        return Waiting(lambda message: True, 0)
    if writer == "java":
        # What was stored before these times was on the disk with its unit, or its entries.
        times = RocketmqCheckpoint(layout.checkpoint).load()
        synced_ms = times.logics_ms - SAFETY_MS
        unit = lambda message: message.store_timestamp_ms >= synced_ms  # noqa: E731
        return Waiting(unit, index_from_ms=times.index_ms - SAFETY_MS)
    if writer == "live":  # one of ours says how far it has dispatched
        indexed = 0 if watch.page is None else watch.page.positions.indexed
        return Waiting(lambda message: False, indexed)
    if not layout.abort.exists():
        return Waiting(lambda message: False)
    try:
        planned, dispatched = planned_recovery(str(layout.root), Options(config))
    except (RocketStoreError, OSError) as error:
        text = f"it is not known what the next open makes: {error}"
        findings.notice("derived", str(layout.root), text)
        return Waiting(lambda message: False)
    findings.counts.cut_bytes = planned.cut[1] - planned.cut[0] if planned.cut else 0
    if planned.cut is not None and planned.cut_records:
        cut = f"[{planned.cut[0]}, {planned.cut[1]})"
        count = counted(planned.cut_records, "whole record")
        text = f"the next open for writing, as recover, cuts off {cut} with {count}"
        findings.notice("log", str(layout.root), text, code="cut")
    # Units that were there, by the checkpoint, are missed though the next open makes them again.
    return Waiting(lambda message: message.physical_offset >= dispatched, planned.index_start)
