"""Extension units: found by address, never believed beyond their file."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from rocketstore.log.queues.extension_units import ExtensionUnit, ExtensionUnits, is_address
from tests.support.made_store import vectors

FILE = 128
FIRST = -(1 << 63)


def units(directory: Path, *files: bytes) -> ExtensionUnits:
    directory.mkdir(parents=True)
    for number, content in enumerate(files):
        (directory / f"{number * FILE:020d}").write_bytes(content.ljust(FILE, b"\0"))
    return ExtensionUnits(directory)


def packed(tags_code: int, store_ms: int, bit_map: bytes = b"") -> bytes:
    return struct.pack(">hqqh", 20 + len(bit_map), tags_code, store_ms, len(bit_map)) + bit_map


def test_rocketmqs_unit(tmp_path: Path) -> None:
    vector = vectors()["queue"]["extension_unit"]
    found = units(tmp_path / "q", bytes.fromhex(vector["hex"])).unit(vector["address"])
    assert found == ExtensionUnit(2598919, 1_700_000_000_000, bytes(range(8)))


def test_units_of_several_files(tmp_path: Path) -> None:
    """The rest of a file that a unit did not fit into is marked with two bytes of ones."""
    first = packed(-5, 1, b"x" * 40) + packed(7, 2)
    extension = units(tmp_path / "q", first + b"\xff\xff", packed(8, 3, b"y"))
    assert extension.unit(FIRST) == (-5, 1, b"x" * 40)
    assert extension.unit(FIRST + 60) == (7, 2, b"")
    assert extension.unit(FIRST + FILE) == (8, 3, b"y")
    assert extension.unit(FIRST + len(first)) is None
    extension.close()
    assert extension.unit(FIRST + FILE) == (8, 3, b"y")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xff",
        packed(1, 2)[:2].ljust(FILE, b"\xff"),
        struct.pack(">hqqh", 19, 1, 2, -1),
        struct.pack(">hqqh", 28, 1, 2, 7),
        struct.pack(">hqqh", 20 + 109, 1, 2, 109),
        struct.pack(">hqqh", -32748, 1, 2, 12768),
    ],
)
def test_what_is_no_unit(content: bytes, tmp_path: Path) -> None:
    assert units(tmp_path / "q", content).unit(FIRST) is None


def test_addresses_that_lead_nowhere(tmp_path: Path) -> None:
    extension = units(tmp_path / "q", packed(1, 2))
    for offset in (FILE - 19, FILE - 1, FILE, 5 * FILE, (1 << 63) - (1 << 31) - 1):
        assert is_address(FIRST + offset)
        assert extension.unit(FIRST + offset) is None
    assert ExtensionUnits(tmp_path / "none").unit(FIRST) is None


def test_a_file_that_is_cut_while_it_is_there(tmp_path: Path) -> None:
    extension = units(tmp_path / "q", packed(1, 2), packed(3, 4))
    (tmp_path / "q" / f"{FILE:020d}").write_bytes(packed(3, 4))
    assert extension.unit(FIRST) == (1, 2, b"")
    assert extension.unit(FIRST + FILE) is None


def test_a_first_file_that_was_cut_hides_no_other(tmp_path: Path) -> None:
    extension = units(tmp_path / "q", packed(1, 2), packed(3, 4), packed(5, 6))
    (tmp_path / "q" / f"{0:020d}").write_bytes(packed(1, 2))
    assert extension.unit(FIRST + FILE) == (3, 4, b"")
    assert extension.unit(FIRST + 2 * FILE) == (5, 6, b"")
    assert extension.unit(FIRST) is None


def test_addresses_end_below_the_hashes() -> None:
    assert is_address(-(1 << 31) - 1)
    assert not is_address(-(1 << 31))
