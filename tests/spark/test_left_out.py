"""What a read says it leaves out, or has no use for."""

from __future__ import annotations

from unittest import mock

import pytest

pytest.importorskip("pyarrow", reason="needs pyarrow: make spark")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def test_a_long_list_of_damage_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    from rocketstore.column_scan import Scan
    from rocketstore.log.column_walk import ScanReport
    from rocketstore.spark.planning import told_lost

    report = ScanReport()
    for start in range(0, 240, 20):
        report.lose(start, start + 10, "body CRC")
    scan = mock.Mock(spec=Scan, path="s", begin_offset=0, end_offset=240, on_damage="skip")
    scan.report = report
    with told_lost(scan):
        pass
    assert caplog.messages[0].endswith("[180, 190) body CRC; 2 more")
