"""The faults that the proofs plant: each still finds the line that it changes. Told here in a second, since the
proofs come to it after half an hour."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.seeded_faults import (
    test_planted_attacks,
    test_planted_crash,
    test_planted_delays,
    test_planted_disks,
    test_planted_failures,
    test_planted_faults,
    test_planted_hidden,
    test_planted_interop,
    test_planted_readers,
    test_planted_replication,
    test_planted_retention,
    test_planted_services,
    test_planted_timers,
    test_planted_verdicts,
)
from tests.seeded_faults.planting import ROOT, Fault, edited

pytestmark = pytest.mark.quick


def faults() -> Iterator[Fault]:
    for planted_with in (
        test_planted_attacks,
        test_planted_crash,
        test_planted_delays,
        test_planted_readers,
        test_planted_replication,
        test_planted_retention,
        test_planted_services,
        test_planted_timers,
        test_planted_verdicts,
    ):
        yield from (fault for fault, _ in planted_with.FAULTS)
    yield from (planted.fault for planted in test_planted_disks.PLANTED)
    for module in (
        test_planted_failures,
        test_planted_faults,
        test_planted_hidden,
        test_planted_interop,
    ):
        yield from module.FAULTS


@pytest.mark.parametrize("fault", list(faults()), ids=lambda fault: fault.id)
def test_a_fault_finds_its_line(fault: Fault) -> None:
    before = (ROOT / fault.path).read_text()
    assert edited(fault, before) != before


@pytest.mark.parametrize(("fault", "site"), [*test_planted_failures.SITES.items()])
def test_a_site_of_a_fault_is_in_the_code(fault: str, site: str) -> None:
    """Otherwise no call would be tried, and nothing caught."""
    files = [*(ROOT / "rocketstore").rglob("*.py")]
    assert any(path.stem == site or f"def {site}" in path.read_text() for path in files), fault
