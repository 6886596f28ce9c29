"""`log.file_system`: what may be written where (D-39)."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketstore._native.os import syscalls
from rocketstore.log.layout.file_system import FileSystem, file_system

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("magic", "expected"),
    [
        (0xEF53, FileSystem("ext4")),
        (0x58465342, FileSystem("xfs")),
        (0x9123683E, FileSystem("btrfs", mapped_writes=False)),
        (0x65735546, FileSystem("fuse", mapped_writes=False)),
        (0x01021997, FileSystem("9p", mapped_writes=False)),
        (0x6969, FileSystem("nfs", mapped_writes=False, network=True)),
        (0xFE534D42, FileSystem("smb2", mapped_writes=False, network=True)),
        (0x1234, FileSystem("0x1234")),
    ],
)
def test_kinds(monkeypatch: pytest.MonkeyPatch, magic: int, expected: FileSystem) -> None:
    """D-39"""
    monkeypatch.setattr(syscalls, "file_system_type", lambda path: magic)
    assert file_system(Path("/")) == expected


def test_the_kernel_is_asked_about_the_path() -> None:
    assert file_system(Path("/proc")) == FileSystem("0x9fa0")


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        file_system(tmp_path / "missing")
