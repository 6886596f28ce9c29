"""The programs of bench run and say what they measured; no test looks at a speed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bench import group_commit


def test_a_busy_thread_is_measured_beside_each_way_to_put(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    interval_s = sys.getswitchinterval()
    words = ["--busy", "--rounds", "1", "--seconds", "0.02", "--directory", str(tmp_path)]
    assert group_commit.main(words) == 0
    table = capsys.readouterr().out
    assert "| quiet, 5 ms | busy, 5 ms | × | quiet, 0.2 ms | busy, 0.2 ms | × |" in table
    assert sys.getswitchinterval() == interval_s
    (saved,) = tmp_path.iterdir()
    found = json.loads(saved.read_text())["results"]["100"]
    assert set(found) == {
        "put, 1 thread",
        "submit, 64 in flight",
        "put, 64 threads",
        "put, 64 asyncio tasks",
    }
    for row in found.values():
        assert set(row) == {"5", "0.2"}
        for side in row.values():
            assert len(side["rates"]["busy"]) == len(side["rates"]["quiet"]) == 1
            assert side["quiet"] > 0 < side["busy"]


def test_a_side_that_fails_leaves_no_busy_thread() -> None:
    with pytest.raises(ZeroDivisionError), group_commit.busy_thread():
        raise ZeroDivisionError
