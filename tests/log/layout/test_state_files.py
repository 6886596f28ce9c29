"""`log.state_files`: files that are whole, owners that stay, foreign files that are read."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketstore._native.os import syscalls
from rocketstore.log.layout.ownership import (
    check_owner,
    file_model,
    inherit_owner,
    make_directories,
)
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.layout.state_files import clean_tmp, read_json, write_state_file
from rocketstore.values.bounded_json import Limits
from tests.support.small_store import open_small, store_group_offset

pytestmark = pytest.mark.quick


# ---- directories ----


def test_a_new_store_is_its_owners_alone(layout: StoreLayout) -> None:
    """D-09"""
    for directory in layout.directories:
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    write_state_file(layout, layout.store_json, "{}")
    assert stat.S_IMODE(layout.store_json.stat().st_mode) == 0o600


def test_missing_parents_are_made(tmp_path: Path) -> None:
    make_directories(StoreLayout(tmp_path / "data" / "of" / "orders"))
    assert stat.S_IMODE((tmp_path / "data" / "of" / "orders").stat().st_mode) == 0o700
    assert (tmp_path / "data" / "of" / "orders" / "rocketstore" / "tmp").is_dir()


def test_making_twice_changes_nothing(layout: StoreLayout) -> None:
    before = {str(path): path.stat().st_ino for path in layout.directories}
    make_directories(layout)
    assert {str(path): path.stat().st_ino for path in layout.directories} == before


@pytest.mark.parametrize("umask", [0o777, 0o277, 0o077, 0])
def test_a_new_store_has_its_modes_whatever_the_umask(umask: int, root: Path) -> None:
    before = os.umask(umask)
    try:
        with open_small(root) as store:
            store.writer("orders").put(b"x", keys="k")
            store_group_offset(store, "orders", 1)
    finally:
        os.umask(before)
    for found in (root, *root.rglob("*")):
        mode = stat.S_IMODE(found.stat().st_mode)
        assert mode == (0o700 if found.is_dir() else 0o600), (found, oct(mode))


def test_a_group_that_new_directories_take_stays(tmp_path: Path) -> None:
    """The bit by which directories take the group of theirs, when the umask has to be mended."""
    tmp_path.chmod(0o2700)
    before = os.umask(0o777)
    try:
        make_directories(StoreLayout(tmp_path / "store"))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "store").stat().st_mode) == 0o2700


def test_what_is_added_to_a_store_has_its_mode(tmp_path: Path) -> None:
    """D-09: whatever our umask is."""
    layout = StoreLayout(tmp_path)
    tmp_path.chmod(0o775)
    (tmp_path / "commitlog").mkdir()
    before = os.umask(0o077)
    try:
        make_directories(layout)
        write_state_file(layout, layout.consumer_offsets, "{}")
    finally:
        os.umask(before)
    assert stat.S_IMODE(layout.own.stat().st_mode) == 0o775
    assert stat.S_IMODE(layout.consumer_offsets.stat().st_mode) == 0o664


@pytest.mark.root
def test_what_root_adds_belongs_to_the_stores_owner(tmp_path: Path) -> None:
    """D-09: a repair as root must not lock the broker out."""
    os.chown(tmp_path, 1234, 5678)
    layout = StoreLayout(tmp_path)
    make_directories(layout)
    write_state_file(layout, layout.consumer_offsets, "{}")
    for path in (layout.commit_log, layout.tmp, layout.consumer_offsets):
        assert (path.stat().st_uid, path.stat().st_gid) == (1234, 5678)


@pytest.mark.root
@pytest.mark.parametrize(("user", "group"), [(1234, 5678), (4321, 5678), (1234, 8765)])
def test_who_cannot_give_files_to_the_owner_is_refused(
    tmp_path: Path, in_child: Any, user: int, group: int
) -> None:
    """D-09: before anything is made."""
    root = Path("/tmp") / tmp_path.name  # every directory above must be open to other users
    root.mkdir(mode=0o777)
    root.chmod(0o777)
    os.chown(root, 1234, 5678)

    def child() -> None:
        os.setgroups([])
        os.setgid(group)
        os.setuid(user)
        if (user, group) == (1234, 5678):
            check_owner(StoreLayout(root))
            return
        with pytest.raises(PermissionError, match=r"user 1234|group 5678"):
            make_directories(StoreLayout(root))

    try:
        in_child(child)
        assert os.listdir(root) == []
    finally:
        root.rmdir()


def test_a_file_in_place_of_the_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "store").touch()
    with pytest.raises(NotADirectoryError):
        make_directories(StoreLayout(tmp_path / "store"))


def test_a_new_file_is_modelled_on_the_last_segment(tmp_path: Path) -> None:
    """D-09"""
    tmp_path.chmod(0o700)
    assert file_model(tmp_path).st_ino == tmp_path.stat().st_ino
    for name in ("00000000000000000000", "00000000000000004096", "readme", "99999"):
        (tmp_path / name).touch()
    (tmp_path / "00000000000000004096").chmod(0o640)
    assert file_model(tmp_path).st_ino == (tmp_path / "00000000000000004096").stat().st_ino


def test_inherited_files_cannot_be_executed(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    fd = os.open(tmp_path / "file", os.O_CREAT | os.O_RDWR, 0o600)
    inherit_owner(fd, tmp_path.stat())
    os.close(fd)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o644


# ---- replacing ----


def test_a_state_file_is_replaced_whole(layout: StoreLayout) -> None:
    path = layout.consumer_offsets
    write_state_file(layout, path, "old and longer")
    before = path.stat().st_ino
    with open(path) as reader:
        write_state_file(layout, path, "größer")
        assert reader.read() == "old and longer"
    assert path.read_text() == "größer"
    assert path.stat().st_ino != before
    assert os.listdir(layout.tmp) == []
    assert os.listdir(layout.config) == [path.name]


def test_a_replaced_file_keeps_its_mode(layout: StoreLayout) -> None:
    """D-09"""
    layout.consumer_offsets.touch()
    layout.consumer_offsets.chmod(0o640)
    write_state_file(layout, layout.consumer_offsets, "{}")
    assert stat.S_IMODE(layout.consumer_offsets.stat().st_mode) == 0o640


def test_a_link_is_replaced_not_followed(layout: StoreLayout, tmp_path: Path) -> None:
    """D-09"""
    (tmp_path / "elsewhere").write_text("untouched")
    layout.consumer_offsets.symlink_to(tmp_path / "elsewhere")
    write_state_file(layout, layout.consumer_offsets, "{}")
    assert (tmp_path / "elsewhere").read_text() == "untouched"
    assert not layout.consumer_offsets.is_symlink()


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("pwrite", errno.ENOSPC),
        ("fsync", errno.EIO),
        ("renameat2", errno.EROFS),
        ("open", errno.EMFILE),
    ],
)
def test_a_failed_replacement_leaves_the_old_file(
    layout: StoreLayout, probe: Any, call: str, error: int
) -> None:
    write_state_file(layout, layout.store_json, "old")
    descriptors = len(os.listdir("/proc/self/fd"))
    probe.fail(call, error)
    with pytest.raises(OSError, match=rf"\[Errno {error}\]"):
        write_state_file(layout, layout.store_json, "new")
    assert layout.store_json.read_text() == "old"
    assert os.listdir(layout.tmp) == []
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_a_state_file_is_synced_before_and_its_directory_after_the_rename(
    layout: StoreLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    for name in ("pwrite", "fsync", "rename", "sync_directory"):
        real = getattr(syscalls, name)

        def call(*arguments: Any, name: str = name, real: Any = real) -> Any:
            calls.append(name)
            return real(*arguments)

        monkeypatch.setattr(syscalls, name, call)
    write_state_file(layout, layout.store_json, "{}")
    assert calls == ["pwrite", "fsync", "rename", "sync_directory"]


def test_a_directory_on_another_disk_has_its_own_temporary_file(
    disk_path: Path, layout: StoreLayout
) -> None:
    memory = Path("/dev/shm")
    here = layout.tmp.stat().st_dev
    others = [p for p in (disk_path, memory) if p.is_dir() and p.stat().st_dev != here]
    if not others:
        pytest.skip("needs a second file system")
    with tempfile.TemporaryDirectory(dir=others[0]) as other:
        layout.config.rmdir()
        layout.config.symlink_to(other)
        write_state_file(layout, layout.consumer_offsets, "{}")
        assert os.listdir(other) == ["consumerOffset.json"]


def test_leftovers_of_a_crash_are_removed(layout: StoreLayout) -> None:
    (layout.tmp / "store.json.4711.0").touch()
    (layout.tmp / "link").symlink_to("/nowhere")
    (layout.tmp / "directory").mkdir()
    clean_tmp(layout)
    assert os.listdir(layout.tmp) == ["directory"]


# ---- reading ----


@pytest.mark.parametrize(
    ("text", "document"),
    [
        ('{\n\t"offsetTable":{1:3,2:0\n\t}\n}', {"offsetTable": {"1": 3, "2": 0}}),
        ('{\n\t"offsetTable":{}\n}', {"offsetTable": {}}),
        ('{"t@g":{0:5,"1":7, -2 : 9}}', {"t@g": {"0": 5, "1": 7, "-2": 9}}),
        ('{"a{1:2,":"{3:4}","b\\"{5:6":[7,8]}', {"a{1:2,": "{3:4}", 'b"{5:6': [7, 8]}),
        # RocketMQ 5.4 and later: each entry of a map on its own line.
        (
            '{\n\t"offsetTable":{\n\t\t"t@g":{\n\t\t\t0:5,\n\t\t\t1:-7\n\t\t}\n\t}\n}',
            {"offsetTable": {"t@g": {"0": 5, "1": -7}}},
        ),
        ("[1,2,[3]]", [1, 2, [3]]),
        ('"text"', "text"),
    ],
)
def test_json_as_rocketmq_writes_it(tmp_path: Path, text: str, document: object) -> None:
    """format.md 1.4"""
    (tmp_path / "file.json").write_text(text)
    assert read_json(tmp_path / "file.json", Limits(1000, 100, 4)) == document


@pytest.mark.parametrize(
    "content",
    [b"", b"  \n", b"{", b'{"a":', b'{"a":1}}', b"\xff\xfe", b'"\\', b'{"a":NaN}', b"\0" * 100,
     b"[" * 50_000, b'"\\"' * 50_000, b"{1:" * 20_000, b"9" * 10_000],
)  # fmt: skip
def test_what_is_no_json_is_none(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file.json").write_bytes(content)
    assert read_json(tmp_path / "file.json", Limits(1 << 20, 100_000)) is None
    assert bool(caplog.records) == bool(content.strip())


@given(st.binary(max_size=200))
def test_reading_never_fails_on_what_the_bytes_are(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "file.json"
        path.write_bytes(content)
        read_json(path, Limits(100, 100, 3))


def test_limits_of_size_and_depth(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text('{"a":[1]}')
    assert read_json(path, Limits(9, 100, 2)) == {"a": [1]}
    assert read_json(path, Limits(8, 100, 2)) is None
    assert read_json(path, Limits(9, 100, 1)) is None


@pytest.mark.parametrize("content", [None, b"", b"{torn"])
def test_the_backup_counts_when_the_file_is_no_use(tmp_path: Path, content: bytes | None) -> None:
    """format.md 1.4: absent, empty or unparsable."""
    path = tmp_path / "file.json"
    if content is not None:
        path.write_bytes(content)
    assert read_json(path, Limits(100, 100, 3)) is None
    path.with_name("file.json.bak").write_text('{"from":"backup"}')
    assert read_json(path, Limits(100, 100, 3)) == {"from": "backup"}


def test_a_good_file_comes_before_its_backup(tmp_path: Path) -> None:
    (tmp_path / "file.json").write_text("[]")
    (tmp_path / "file.json.bak").write_text("[1]")
    assert read_json(tmp_path / "file.json", Limits(100, 100, 3)) == []


def test_a_file_that_may_not_be_read_is_an_error(tmp_path: Path) -> None:
    """Taking it for empty would lose what it says at the next write."""
    (tmp_path / "link.json").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        read_json(tmp_path / "link.json", Limits(100, 100, 3))


def test_a_fifo_in_place_of_a_file_is_no_use(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "file.json")
    assert read_json(tmp_path / "file.json", Limits(100, 100, 3)) is None
