"""What a read says it leaves out, or has no use for."""

from __future__ import annotations

import random
from pathlib import Path
from unittest import mock

import pytest

from tests.spark.reading import make_store
from tests.spark.source.test_source import numbers, read_all, warnings

pytest.importorskip("pyarrow", reason="needs pyarrow: make spark")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def test_a_long_list_of_damage_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    from rocketstore.log.read.column_reader import ScanReport
    from rocketstore.scanning.scan import Scan
    from rocketstore.spark.source.plan import left_out_logged

    report = ScanReport()
    for start in range(0, 240, 20):
        report.lose(start, start + 10, "body CRC")
    scan = mock.Mock(spec=Scan, path="s", begin_offset=0, end_offset=240, on_damage="skip")
    scan.report = report
    with left_out_logged(scan):
        pass
    assert caplog.messages[0].endswith("[180, 190) body CRC; 2 more")


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_offsets_of_a_topic_that_is_not_read_are_told(
    tmp_path: Path, rng: random.Random, caplog: pytest.LogCaptureFixture, option: str
) -> None:
    """They were ignored in silence: a mistyped topic read another one's whole backlog."""
    root = tmp_path / "s"
    make_store(root, rng, 60)
    wanted = numbers(read_all(root, topic="orders"))
    assert warnings(caplog) == []
    offsets = {option: '{"events": {"0": 1}}'}
    assert numbers(read_all(root, topic="orders", **offsets)) == wanted
    [told] = warnings(caplog)
    assert told.startswith(f"{option} names topic 'events', which is not among those")
    assert numbers(read_all(root, topicPattern=".*", **offsets)) != wanted
    assert len(warnings(caplog)) == 1
