"""Names and stored offsets that no writer of ours gives to anything, and what they look like."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.progress import Progress

import rocketstore
from rocketstore.cli import exit_codes, output
from tests.cli.conftest import Invoke

GROUPS = {
    ".": ".",
    "..": "..",
    "of:key:three": "of:key:three",
    "a b": "a b",
    "[bold]b[/bold]": "[bold]b[/bold]",
    "[/x]": "[/x]",
    "a\nb": "a\\nb",
    "\x1b[31mred": "\\x1b[31mred",
    "\ud800": "\\ud800",
    "组": "组",
    "g" * 300: "g" * 300,
}


@pytest.fixture
def odd_path(store_path: Path) -> Path:
    """Groups as a broker stores them that checks no names."""
    offsets = {"offsetTable": {f"orders@{group}": {"0": 15} for group in GROUPS}}
    (store_path / "config").mkdir(exist_ok=True)
    (store_path / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
    return store_path


def test_stat_shows_every_group_in_a_line_of_its_own(invoke, odd_path: Path) -> None:
    result = invoke("stat", odd_path)
    assert (result.exit_code, result.stderr) == (0, "")
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    for shown in GROUPS.values():
        assert [line for line in lines if line.startswith(f"{shown} ") and "orders" in line]
    found = json.loads(invoke("stat", odd_path, "--json").output)
    assert {row["group"]: row["lag"] for row in found["groups"]} == dict.fromkeys(GROUPS, 15)


def test_stat_names_an_entry_without_a_group(invoke, odd_path: Path) -> None:
    (odd_path / "config" / "consumerOffset.json").write_text('{"offsetTable":{"orders@":{"0":15}}}')
    result = invoke("stat", odd_path)
    assert result.exit_code == 3
    assert "orders@" in result.stderr


def test_verify_names_each_fault_in_a_line(invoke, odd_path: Path) -> None:
    for group, shown in GROUPS.items():
        offsets = {"offsetTable": {f"orders@{group}": {"0": 99}}}
        (odd_path / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
        lines = invoke("verify", odd_path).stderr.splitlines()
        assert sum(f": group {shown} stored 99 for orders/0" in line for line in lines) == 1


@pytest.mark.parametrize("group", [group for group in GROUPS if group != "\ud800"])
def test_stat_of_one_group(invoke, odd_path: Path, group: str) -> None:
    result = invoke("stat", odd_path, "--group", group)
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"\ngroup {GROUPS[group]} " in result.stdout


def test_a_directory_with_signs_of_markup(invoke, odd_path: Path) -> None:
    moved = odd_path.rename(odd_path.with_name("[bold] :key: \x1b[31m"))
    result = invoke("stat", moved)
    assert result.stdout.splitlines()[0] == f"{moved.parent}/[bold] :key: \\x1b[31m"


def test_a_bar_with_signs_of_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    for bar in (output.steps, output.bytes_progress):
        with bar() as progress:
            progress.add_task("[/x] :key:", total=1)
            assert isinstance(progress, Progress)
            progress.console.file = io.StringIO()
            progress.console.print(progress.get_renderable())
            assert "[/x] :key:" in progress.console.file.getvalue()


def test_an_error_does_not_steer_the_terminal() -> None:
    error = FileNotFoundError(2, "No such file or directory", "a\x1b[2J\nb")
    assert exit_codes.in_one_line(error) == "a\\x1b[2J\\nb: No such file or directory"


def test_a_topic_out_of_a_damaged_record_steers_no_terminal(invoke, store_path: Path) -> None:
    (log,) = (store_path / "commitlog").iterdir()
    content = log.read_bytes()
    at = content.index(b"first 7")
    content = content[:at] + b"wrong" + content[at + 5 :]
    at = content.index(b"orders", at)
    log.write_bytes(content[:at] + b"\x1b[31mX" + content[at + 6 :])
    (store_path / "lock").write_bytes(b"")  # as after another program: all is looked at
    shape = ("--index-slots", 100, "--index-entries", 1000)
    for words in (("stat",), ("recover", *shape)):
        result = invoke(words[0], store_path, *words[1:])
        assert result.exit_code == exit_codes.DAMAGED, result.output
        assert "\x1b" not in result.output
        (line,) = [line for line in result.output.splitlines() if line.startswith("damage: ")]
        assert line.endswith(": body crc, topics \\x1b[31mX")
    assert any(line.startswith("\\x1b[31mX ") for line in result.output.splitlines())


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
