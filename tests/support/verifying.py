"""Calls of `verify` as its tests want them."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

from rocketstore.tools import VerifyReport, verify
from tests.support.made_store import VECTORS, MadeStore

#: Names of stores that RocketMQ wrote.
STORES = sorted(path.name.removesuffix(".tar.xz") for path in (VECTORS / "stores").glob("*.xz"))


def check(root: Path) -> VerifyReport:
    """The stores of the vectors have index files of this shape."""
    return verify(root, index_slots=64, index_entries=300)


def made_by_us(root: Path) -> MadeStore:
    """A store in which no other program may have left a stale record checksum."""
    made = MadeStore(root)
    (root / "rocketstore").mkdir()
    state = {
        "version": 1,
        "uuid": str(uuid.uuid4()),
        "created_ms": 1_700_000_000_000,
        "record_crc": True,
        "foreign": [],
    }
    (root / "rocketstore" / "store.json").write_text(json.dumps(state))
    return made


def faults(report: VerifyReport) -> list[tuple[str, int, str]]:
    assert report.fault_count == len(report.faults)
    assert report.ok is (not report.faults)
    return [
        (fault.file[len(report.path) + 1 :], fault.position, fault.reason)
        for fault in report.faults
    ]
