"""Entries of the file of offsets that are none: verify, stat and a consumer that begins say so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import rocketstore
from rocketstore.cli import exit_codes
from tests.cli.conftest import Invoke

SHAPE = ("--index-slots", 100, "--index-entries", 1000)


def write(path: Path, table: dict[str, object], name: str = "consumerOffset.json") -> None:
    (path / "config").mkdir(exist_ok=True)
    (path / "config" / name).write_text(json.dumps({"offsetTable": table}))


@pytest.mark.parametrize(
    ("key", "row", "said"),
    [
        ("orders@billing", {"0": -5}, "orders@billing: queue '0' = -5"),
        ("orders@billing", {"0": 1, "1": "x"}, "orders@billing: queue '1' = 'x'"),
        ("orders@billing", {"0": 1.5}, "orders@billing: queue '0' = 1.5"),
        ("orders@billing", {"0": 1 << 63}, f"orders@billing: queue '0' = {1 << 63}"),
        ("orders@billing", {"-1": 1}, "orders@billing: queue '-1' = 1"),
        ("orders@billing", 7, "orders@billing = 7 is no object"),
        ("orders", {"0": 1}, "'orders' is no topic@group"),
    ],
)
def test_an_entry_that_is_no_offset_is_a_fault(
    invoke: Invoke,
    store_path: Path,
    caplog: pytest.LogCaptureFixture,
    key: str,
    row: object,
    said: str,
) -> None:
    write(store_path, {key: row, "orders@other": {"0": 1}})
    result = invoke("verify", store_path, *SHAPE)
    assert result.exit_code == exit_codes.DAMAGED
    assert "config: " in result.stderr
    assert "consumerOffset.json at 0: entries that are no offsets" in result.stderr
    assert said in result.stderr
    assert "restore the files below config/ from a copy" in result.stderr
    stat = invoke("stat", store_path)
    assert stat.exit_code == exit_codes.DAMAGED
    assert said in stat.stderr
    with rocketstore.open(store_path, "r") as store:
        with store.consumer("orders", group="other"):
            assert "no offset;" not in caplog.text
        if key == "orders@billing":
            with store.consumer("orders", group="billing"):
                assert f"{said}: no offset; group billing starts there" in caplog.text


def test_a_file_that_lost_its_groups_is_noticed(invoke: Invoke, store_path: Path) -> None:
    write(store_path, {})
    assert "once held" not in invoke("verify", store_path, *SHAPE).stderr
    write(store_path, {"orders@billing": {"0": 1}}, "consumerOffset.json.bak")
    result = invoke("verify", store_path, *SHAPE)
    assert result.exit_code == 0
    assert "notice: " in result.stderr
    assert "once held those of orders@billing: they start over" in result.stderr
