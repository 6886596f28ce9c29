"""A log in several directories, or outside of its store: read as RocketMQ reads it, never taken for less."""

from __future__ import annotations

import logging
from itertools import cycle
from pathlib import Path

import pytest

import rocketstore
from rocketstore import ConfigError, MissingSegmentsError, StoreConfig
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.tools import verify
from tests.support.live_writer import java_writer
from tests.support.made_store import MadeStore
from tests.support.small_store import everything, open_small, segments

COUNT = 90


@pytest.fixture
def made(tmp_path: Path) -> MadeStore:
    """Another program's store, stopped cleanly: its log lies in `commitlog`, `more` and `old` in turns."""
    made = MadeStore(tmp_path / "store")
    made.fill(COUNT)
    assert len(segments(made.root)) >= 5
    for name, file in zip(cycle(("commitlog", "more", "old")), segments(made.root), strict=False):
        (made.root / name).mkdir(exist_ok=True)
        file.rename(made.root / name / file.name)
    return made


def settings(made: MadeStore) -> dict[str, str]:
    return {
        "storePathRootDir": str(made.root),
        "storePathCommitLog": f"{made.root / 'commitlog'},{made.root / 'more'}",
        "readOnlyCommitLogStorePaths": str(made.root / "old"),
    }


def wanted(made: MadeStore) -> list[tuple[int, bytes]]:
    return [(record.physical_offset, record.body) for record in made.records]


def found(store: rocketstore.Store) -> list[tuple[int, bytes]]:
    return [(message.physical_offset, message.body) for message in everything(store)]


def image(root: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in sorted(root.rglob("*")) if file.is_file()}


@pytest.mark.parametrize("crashed", [False, True])
def test_all_of_it_is_read(crashed: bool, made: MadeStore) -> None:
    if crashed:
        (made.root / "abort").touch()
    before = image(made.root)
    config = StoreConfig.from_rocketmq(settings(made))
    with rocketstore.open(made.root, "r", config=config) as store:
        assert found(store) == wanted(made)
        assert (store.begin_offset, store.end_offset) == (0, made.end)
        assert store.recovery.missing == ()
        for record in made.records[:: COUNT // 8]:
            assert store.get(record.physical_offset).body == record.body
    assert image(made.root) == before


def test_a_log_beside_a_live_rocketmq(made: MadeStore) -> None:
    """New files are found in whatever directory they come."""
    config = StoreConfig.from_rocketmq(settings(made))
    layout = StoreLayout(made.root)
    layout.lock.touch()
    with java_writer(layout), rocketstore.open(made.root, "r", config=config) as store:
        assert store.recovery.notes == ()
        assert found(store) == wanted(made)
        for file in (made.root / "old").iterdir():
            file.rename(made.root / "commitlog" / file.name)
        known = segments(made.root)
        made.fill(60)  # goes on in the last file
        new = [file for file in segments(made.root) if file not in known]
        assert len(new) >= 2
        for file in new[::2]:
            file.rename(made.root / "more" / file.name)
        assert found(store) == wanted(made)


def test_a_copy_does_not_lead_to_the_log_of_its_model(made: MadeStore, tmp_path: Path) -> None:
    config = StoreConfig.from_rocketmq(settings(made))
    assert config.commit_log_dir == "commitlog,more"
    assert config.read_only_commit_log_dirs == "old"
    made.root.rename(tmp_path / "copy")
    with rocketstore.open(tmp_path / "copy", "r", config=config) as store:
        assert found(store) == wanted(made)


@pytest.mark.parametrize("mode", ["rw", "r+"])
def test_it_is_not_written(mode: rocketstore.Mode, made: MadeStore) -> None:
    """Which directory a new file belongs to depends on which ones are full."""
    before = image(made.root)
    with pytest.raises(ConfigError, match="mode='r'") as caught:
        open_small(made.root, mode, commit_log_dir="commitlog,more,old")
    assert caught.value.field == "commit_log_dir"
    with pytest.raises(ConfigError, match="mode='r'") as caught:
        open_small(made.root, mode, read_only_commit_log_dirs="old")
    assert caught.value.field == "read_only_commit_log_dirs"
    assert image(made.root) == before


def test_its_own_directory_by_any_name_is_no_other(tmp_path: Path) -> None:
    config = {"storePathCommitLog": str(tmp_path / "store/commitlog")}
    for _ in range(2):
        with open_small(
            tmp_path / "store",
            config=StoreConfig.from_rocketmq(config, commit_log_file_size_bytes=4096),
        ) as store:
            store.writer("orders").put(b"x")
    (tmp_path / "store/commitlog").rename(tmp_path / "disk")
    (tmp_path / "store/commitlog").symlink_to(tmp_path / "disk")
    for name in ("", "commitlog", str(tmp_path / "disk"), f"commitlog,{tmp_path / 'disk'}"):
        with open_small(tmp_path / "store", commit_log_dir=name) as store:
            assert len(everything(store)) == 2


def test_one_directory_elsewhere(made: MadeStore, tmp_path: Path) -> None:
    for name in ("more", "old"):
        for file in (made.root / name).iterdir():
            file.rename(made.root / "commitlog" / file.name)
    (made.root / "commitlog").rename(tmp_path / "disk")
    config = StoreConfig.from_rocketmq({"storePathCommitLog": str(tmp_path / "disk")})
    with rocketstore.open(made.root, "r", config=config) as store:
        assert found(store) == wanted(made)
    with pytest.raises(ConfigError, match="mode='r'"):
        rocketstore.open(made.root, config=config)
    for mode in ("r", "rw"):
        with pytest.raises(rocketstore.MissingSegmentsError, match="commit_log_dir"):
            open_small(made.root, mode)
    assert verify(made.root, commit_log_dir=str(tmp_path / "disk")).ok


def test_verify_looks_at_all_of_it(made: MadeStore) -> None:
    report = verify(made.root, commit_log_dir="commitlog,more,old")
    assert report.ok, report.faults
    assert report.counts.records == COUNT
    assert not verify(made.root).ok


# ---- without its settings ----


@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize(
    "kept", [slice(0, 1), slice(0, 2), slice(1, -1), slice(0, 5, 2), slice(0, 0)]
)
def test_a_part_is_never_taken_for_the_whole(
    kept: slice, crashed: bool, made: MadeStore, caplog: pytest.LogCaptureFixture
) -> None:
    """D-25: with settings that name one of its directories, the first files, the last or those between can
    be missing. After a crash, too, nothing is cut. A reader is refused as a writer is, or told."""
    files = sorted(
        (file for name in ("commitlog", "more", "old") for file in (made.root / name).iterdir()),
        key=lambda file: file.name,
    )
    stay = files[kept]
    for file in files:
        file.rename(made.root / ("commitlog" if file in stay else "old") / file.name)
    if crashed:
        (made.root / "abort").touch()
    queues = image(made.root / "consumequeue")
    log = image(made.root / "commitlog")
    for _ in range(2):
        with pytest.raises(MissingSegmentsError, match="commit_log_dir"):
            open_small(made.root)
        with pytest.raises(MissingSegmentsError, match=r"commit_log_dir.*force=True reads what"):
            open_small(made.root, "r")
    with open_small(made.root, "r", force=True) as store:
        assert "commit_log_dir" in str(store.recovery)
    assert "segments of the commit log are missing" in caplog.text
    assert image(made.root / "consumequeue") == queues
    assert image(made.root / "commitlog") == log
    with rocketstore.open(
        made.root, "r", config=StoreConfig.from_rocketmq(settings(made))
    ) as store:
        assert found(store) == wanted(made)


def test_a_part_beside_a_live_rocketmq(made: MadeStore, caplog: pytest.LogCaptureFixture) -> None:
    layout = StoreLayout(made.root)
    layout.lock.touch()
    with java_writer(layout), open_small(made.root, "r", force=True) as store:
        (between, *_) = store.recovery.missing
        assert "between 4096 and 12288" in between
        assert "commit_log_dir" in between
    assert between in caplog.text


def test_the_first_files_beside_a_live_rocketmq(made: MadeStore) -> None:
    for file in (made.root / "old").iterdir():
        file.rename(made.root / "more" / file.name)
    (made.root / "commitlog" / f"{3 * 4096:020d}").rename(made.root / "more" / f"{3 * 4096:020d}")
    layout = StoreLayout(made.root)
    layout.lock.touch()
    with java_writer(layout), open_small(made.root, "r", force=True) as store:
        (note,) = store.recovery.missing
        assert f"the log ends at 4096, but the queues point up to {made.end}" in note
        for file in (made.root / "commitlog").iterdir():
            file.rename(made.root / "more" / file.name)
        with open_small(made.root, "r", force=True) as other:
            assert "there is no log" in str(other.recovery.missing)


def test_what_looks_trimmed_is_told(made: MadeStore, caplog: pytest.LogCaptureFixture) -> None:
    """The last files alone look like those of a log that was trimmed."""
    caplog.set_level(logging.ERROR)
    for name in ("more", "old"):
        for file in (made.root / name).iterdir():
            file.rename(made.root / "commitlog" / file.name)
    for file in segments(made.root)[:3]:
        file.rename(made.root / "old" / file.name)
    with open_small(made.root, "r") as store:
        (note,) = store.recovery.notes
        assert "begins at 12288" in note
        assert "commit_log_dir" in note
        assert store.begin_offset == store.get(12288).physical_offset == 12288
    assert not caplog.records
