"""A broker's settings: what they become here, and what is said about the rest."""

from __future__ import annotations

import dataclasses
import logging
import pickle
from pathlib import Path

import pytest

import rocketstore
from rocketstore.config import StoreConfig
from rocketstore.config.rocketmq import PROPERTIES_BYTES_MAX, read_properties
from rocketstore.config.rocketmq_options import OPTIONS
from rocketstore.errors import ConfigError

FIELDS = {item.name for item in dataclasses.fields(StoreConfig) if item.init}


def test_the_table_knows_every_option_of_ours_and_names_no_other() -> None:
    ours = [option.name for option in OPTIONS if option.name]
    # Options that RocketMQ has no word for.
    own = {
        "allow_network_file_system",
        "deliver_delayed",
        "index_tags",
        "max_undispatched_bytes",
        "max_unflushed_bytes",
        "populate_window_bytes",
        "prewrite",
        "write_buffer_bytes",
    }
    assert len(ours) == len(set(ours))
    assert set(ours) | own == FIELDS
    names = [java for option in OPTIONS for java in option.rocketmq]
    assert len(names) == len(set(names))
    assert all(option.note for option in OPTIONS if option.name is None)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le-mark"])
def test_the_encodings_of_a_settings_file(tmp_path: Path, encoding: str) -> None:
    """The first name is known, too: a broker that says SYNC_FLUSH keeps that promise."""
    path = tmp_path / "broker.conf"
    text = "flushDiskType = SYNC_FLUSH\r\nbrokerName = Größe\r\n"
    data = ("\ufeff" + text).encode("utf-16-be") if "mark" in encoding else text.encode(encoding)
    path.write_bytes(data)
    assert read_properties(path) == {"flushDiskType": "SYNC_FLUSH", "brokerName": "Größe"}
    assert StoreConfig.from_rocketmq(path).durability == "disk"


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32"])
def test_a_settings_file_that_is_no_utf_8_is_refused(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "broker.conf"
    path.write_bytes("flushDiskType=SYNC_FLUSH\n".encode(encoding))
    with pytest.raises(ConfigError, match="is no text in UTF-8: save it as UTF-8"):
        StoreConfig.from_rocketmq(path)


def test_a_name_in_other_letters_is_told_loudly(caplog: pytest.LogCaptureFixture) -> None:
    """RocketMQ passes over it, too; but who wrote it wants more than the default promises."""
    config = StoreConfig.from_rocketmq({"flushDisktype": "SYNC_FLUSH", "brokerrole": "SLAVE"})
    [one] = [each for each in config.ignored if each.name == "flushDisktype"]
    assert one.matters
    assert "which has flushDiskType and takes its default" in one.reason
    assert "flushDisktype = SYNC_FLUSH: no option of RocketMQ" in caplog.text


def test_a_broker_keeps_its_own_promises() -> None:
    """Importing must not make a broker's store slower or its records larger than they were."""
    config = StoreConfig.from_rocketmq({})
    assert config.durability == "os"
    assert not config.record_crc
    assert config.ignored == ()


@pytest.mark.parametrize(
    ("mode", "pool", "durability"),
    [
        ("ASYNC_FLUSH", "false", "os"),
        ("ASYNC_FLUSH", "true", "memory"),
        ("SYNC_FLUSH", "false", "disk"),
        ("SYNC_FLUSH", "TRUE", "disk"),
    ],
)
def test_flush_disk_type_and_pool_make_one_promise(mode: str, pool: str, durability: str) -> None:
    """S002-01: ASYNC_FLUSH and SYNC_FLUSH, by the option flushDiskType."""
    config = StoreConfig.from_rocketmq({"flushDiskType": mode, "transientStorePoolEnable": pool})
    assert config.durability == durability


def test_the_write_buffer_holds_the_largest_message_of_the_broker(tmp_path: Path) -> None:
    """RocketMQ has no such option, and takes any maxMessageSize that fits a file."""
    broker = {"flushDiskType": "SYNC_FLUSH", "maxMessageSize": str(16 << 20)}
    config = StoreConfig.from_rocketmq(broker)
    assert config.write_buffer_bytes == config.record_limit_bytes == (16 << 20) + (64 << 10)
    with rocketstore.open(tmp_path, config=config) as store:
        store.writer("orders").put(bytes(16 << 20))
    assert (
        StoreConfig.from_rocketmq(broker, write_buffer_bytes=1 << 25).write_buffer_bytes == 1 << 25
    )
    with pytest.raises(ConfigError, match="write_buffer_bytes = 8388608: must hold"):
        StoreConfig.from_rocketmq(broker, write_buffer_bytes=8 << 20)
    assert "write_buffer_bytes" not in StoreConfig.from_rocketmq({}).given


def test_every_generation_of_names_is_known_and_the_newest_wins() -> None:
    old = {"mapedFileSizeCommitLog": "1048576", "mapedFileSizeConsumeQueue": "100"}
    config = StoreConfig.from_rocketmq(old)
    assert config.commit_log_file_size_bytes == 1 << 20
    assert config.consume_queue_file_size_bytes == 100
    for both in (
        {**old, "mappedFileSizeCommitLog": "4096"},
        {"mappedFileSizeCommitLog": "4096", **old},
    ):
        assert StoreConfig.from_rocketmq(both).commit_log_file_size_bytes == 4096


def test_values_are_carried_over() -> None:
    config = StoreConfig.from_rocketmq(
        {
            "flushIntervalCommitLog": " 123 ",
            "flushCommitLogTimed": "false",
            "messageDelayLevel": "1s 2s",
            "enabledAppendPropCRC": "true",
            "readUnCommitted": "true",
            "flushDiskType": "SYNC_FLUSH",
            "brokerIP1": "10.0.0.7",
            "listenPort": "9",
        }
    )
    assert (config.flush_interval_ms, config.flush_timed) == (123, False)
    assert config.delay_level_ms == (1000, 2000)
    assert config.record_crc
    assert not config.visible_is_flushed
    assert config.store_host == "10.0.0.7:9"


def test_what_has_no_effect_is_listed_with_its_reason() -> None:
    config = StoreConfig.from_rocketmq(
        {"fileReservedTime": "48", "brokerName": "a", "brokerRole": "SYNC_MASTER"}
    )
    assert [(item.name, item.value) for item in config.ignored] == [
        ("brokerName", "a"),
        ("brokerRole", "SYNC_MASTER"),
        ("fileReservedTime", "48"),
    ]
    reasons = {item.name: item.reason for item in config.ignored}
    assert "not an option" in reasons["brokerName"]
    assert "replication" in reasons["brokerRole"]
    assert "retention" in reasons["fileReservedTime"]
    assert pickle.loads(pickle.dumps(config)).ignored == config.ignored
    assert config.replace(index_slots=3).ignored == config.ignored


#: With these settings RocketMQ keeps something where rocketstore does not look, or looks for it.
SERIOUS = {
    "storeType": "defaultRocksDB",
    "rocksdbCQDoubleWriteEnable": "true",
    "useSeparateStorePathForRocksdbCQ": "TRUE",
    "combineAssignOffsetCQType": "defaultRocksDB",
    "combineCQPreferCQType": "defaultRocksDB",
    "writeWithoutMmap": "true",
    "enableAcceleratedRecovery": "true",
    "indexRocksDBEnable": "true",
    "transRocksDBEnable": "true",
    "timerRocksDBEnable": "true",
    "enableDLegerCommitLog": "true",
}


@pytest.mark.parametrize("name", SERIOUS)
def test_what_rocketmq_keeps_elsewhere_is_a_warning(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    value = SERIOUS[name]
    plain = "false" if value.lower() == "true" else "default"
    with caplog.at_level(logging.WARNING, "rocketstore"):
        (item,) = StoreConfig.from_rocketmq({name: f" {plain.title()} "}).ignored
        assert not item.matters
        assert caplog.messages == []
        (item,) = StoreConfig.from_rocketmq({name: value}).ignored
    assert item.matters
    assert caplog.messages == [f"{name} = {value}: {item.reason}"]


def test_options_of_5_4_and_later_are_known() -> None:
    """They have no effect here, and are no reason for a word."""
    given = {"commitLogRecoverMaxNum": "1000", "timerWheelSnapshotFlush": "true"}
    given |= {"transWriteOriginTransHalfEnable": "true", "indexFileReadEnable": "true"}
    for item in StoreConfig.from_rocketmq(given).ignored:
        assert not item.matters
        assert "not an option" not in item.reason


@pytest.mark.parametrize("index", ["", "true", "false"])
@pytest.mark.parametrize("files", ["", "true", "false"])
def test_index_files_are_written_where_both_settings_say_so(index: str, files: str) -> None:
    """`indexFileWriteEnable=false`: keys lie in RocksDB, or nowhere."""
    given = {"messageIndexEnable": index, "indexFileWriteEnable": files}
    config = StoreConfig.from_rocketmq({name: value for name, value in given.items() if value})
    assert config.index_enabled is ("false" not in (index, files))
    assert config.ignored == ()
    assert ("index_enabled" in config.given) is bool(index or files)


@pytest.mark.parametrize(
    ("root", "paths", "own"),
    [
        ("", "/a,/b", "/a,/b"),
        ("/a", "/a/log, /ab/log ", "log, /ab/log"),
        ("/a/", "/a/../b,/a", "/a/../b,."),
        ("store", "store/commitlog,/store/x", "commitlog,/store/x"),
        ("/a", " ", ""),
    ],
)
def test_directories_of_a_log(root: str, paths: str, own: str) -> None:
    """What lies under the broker's root is told from there; blanks beside a comma belong to the name."""
    config = StoreConfig.from_rocketmq(
        {
            "storePathRootDir": root,
            "storePathCommitLog": paths,
            "readOnlyCommitLogStorePaths": paths,
        }
    )
    assert (config.commit_log_dir, config.read_only_commit_log_dirs) == (own, own)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("maxMessageSize", "4M"),
        ("flushDiskType", "sync"),
        ("maxIndexNum", ""),
        ("maxIndexNum", "0x10"),
    ],
)
def test_a_value_that_rocketmq_could_not_read_is_refused_by_its_name(name: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        StoreConfig.from_rocketmq({name: value})
    assert caught.value.field == name


def test_options_given_beside_the_broker_win() -> None:
    config = StoreConfig.from_rocketmq({"maxHashSlotNum": "7"}, index_slots=9, durability="disk")
    assert (config.index_slots, config.durability) == (9, "disk")


def test_a_broker_conf_is_read_as_java_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(
        "# comment\n"
        "  ! another\n"
        "\n"
        "flushDiskType = SYNC_FLUSH\r\n"
        "flushIntervalCommitLog:77\n"
        "maxHashSlotNum 11\n"
        "messageDelayLevel=1s \\\n"
        "    2s\n"
        "key\\ with\\=odd = caf\\u00e9\\tx\\\\\n"
        "empty\n"
        "storePathRootDir=C:\\\\store\n"
    )
    assert read_properties(path) == {
        "flushDiskType": "SYNC_FLUSH",
        "flushIntervalCommitLog": "77",
        "maxHashSlotNum": "11",
        "messageDelayLevel": "1s 2s",
        "key with=odd": "café\tx\\",
        "empty": "",
        "storePathRootDir": "C:\\store",
    }
    config = StoreConfig.from_rocketmq(str(path))
    assert (config.flush_interval_ms, config.index_slots) == (77, 11)
    assert config.durability == "disk"
    assert config.delay_level_ms == (1000, 2000)


def test_a_line_of_very_many_lines(tmp_path: Path) -> None:
    """4 MiB, the most that a file has: a copy of the whole at each line would take minutes."""
    path = tmp_path / "broker.conf"
    path.write_text("a\\\n" * (PROPERTIES_BYTES_MAX // 3 - 1) + "b")
    assert read_properties(path) == {"a" * (PROPERTIES_BYTES_MAX // 3 - 1) + "b": ""}
    path.write_text("a=\\\\\\\n \\\\\\\n\\\n\nb=\\\n")
    assert read_properties(path) == {"a": "\\\\", "b": ""}
