"""The sink's options, without Spark."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import rocketstore
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.sink.commit import commit
from rocketstore.spark.sink.options import WriteOptions
from rocketstore.spark.source.options import LATEST, ReadOptions
from tests.spark.staged import stage_bodies
from tests.spark.writing import writer_of


def test_kafkas_own_options_are_left_aside(tmp_path: Path) -> None:
    given = {"path": str(tmp_path), "topic": "t", "kafka.bootstrap.servers": "h:9092"}
    assert WriteOptions.parse(given).topic == "t"
    with pytest.raises(SparkFaceError, match=r"RS_UNKNOWN_OPTION.*kafkaesque"):
        WriteOptions.parse({**given, "kafkaesque": "1"})


def test_the_librarys_names_of_options_are_taken(tmp_path: Path) -> None:
    given = {"path": str(tmp_path), "topic": "t", "create_store": "false", "shards": "auto"}
    wanted = {"commit_log_file_size_bytes": "4m", "max_message_size_bytes": "1k", "TXN_APP_ID": "a"}
    options = WriteOptions.parse({**given, **wanted})
    assert not options.create_store
    assert (options.segment_bytes, options.max_body_bytes, options.app_id) == (4 << 20, 1024, "a")
    assert WriteOptions.parse({**given, "segment_bytes": "1m"}).segment_bytes == 1 << 20
    read = ReadOptions.parse(
        {"path": str(tmp_path), "fail_on_data_loss": "false", "starting_offsets": "latest"},
        stream=True,
    )
    assert (read.fail_on_data_loss, read.starting) == (False, LATEST)
    for twice in ({"createStore": "true"}, {"segment_bytes": "1m", "segmentBytes": "2m"}):
        with pytest.raises(SparkFaceError, match=r"RS_BAD_OPTION.*not together with [cs]\w+e"):
            WriteOptions.parse({**given, **twice})
    with pytest.raises(SparkFaceError, match=r"RS_UNKNOWN_OPTION.*create__stores"):
        WriteOptions.parse({**given, "create__stores": "true"})


def test_a_file_uri_names_the_path_that_it_encodes(tmp_path: Path) -> None:
    """As it does for an archive: a sink made a store beside the one that was meant."""
    uri, path = f"file://{tmp_path}/a%20b%25", tmp_path / "a b%"
    assert WriteOptions.parse({"path": uri, "topic": "t"}).path == str(path)
    assert ReadOptions.parse({"path": uri}, stream=False).path == str(path)
    literal = tmp_path / "a%20b"
    assert ReadOptions.parse({"path": str(literal)}, stream=False).path == str(literal)


def test_staging_is_found_from_any_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer finishes a commit that died; it may work elsewhere."""
    monkeypatch.chdir(tmp_path)
    options = WriteOptions.parse({"path": "s", "topic": "t", "stagingPath": "staged"})
    assert options.staging == str(tmp_path / "staged")


def test_a_version_far_behind_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A stream with a fixed txnAppId and a new checkpoint counts from 0 again."""
    rocketstore.open(tmp_path / "s").close()
    assert commit(str(tmp_path / "s"), "etl", 4, [stage_bodies(tmp_path / "s", "a", [b"a"])])
    with caplog.at_level(logging.WARNING, "rocketstore.spark.sink.commit"):
        for version in (4, 3):
            files = [stage_bodies(tmp_path / "s", "b", [b"b"])]
            assert not commit(str(tmp_path / "s"), "etl", version, files)
    [warned] = [r.getMessage() for r in caplog.records if r.name.endswith("spark.sink.commit")]
    assert "version 3 of etl" in warned and "version 4" in warned and "txnAppId" in warned


def test_a_store_that_cannot_be_opened_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rocketstore.open(tmp_path / "s").close()
    files = [stage_bodies(tmp_path / "s", "a", [b"a"])]

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(rocketstore, "open", refuse)
    with pytest.raises(SparkFaceError, match=rf"RS_WRITE_FAILED\] host=\S+ path={tmp_path}/s: "):
        commit(str(tmp_path / "s"), "etl", 4, files)


def test_options_are_named_as_they_are_written(tmp_path: Path) -> None:
    """Spark hands them over in lower case, and so they came back."""
    for parse, given, said in (
        (WriteOptions.parse, {"locktimeouts": "soon"}, r"lockTimeoutS = 'soon': a whole number"),
        (
            WriteOptions.parse,
            {"stagingdir": "x"},
            r"no option stagingdir; perhaps stagingPath is meant; known: .*stagingPath",
        ),
        (ReadOptions.parse, {"splitbytes": "1.5g"}, r"splitBytes = '1\.5g': a whole number"),
        (ReadOptions.parse, {"failondataloss": "no"}, r"failOnDataLoss = 'no': true or false"),
        (
            ReadOptions.parse,
            {"startingoffsets": "7"},
            r"startingOffsets = '7': earliest, latest, or",
        ),
        (ReadOptions.parse, {"topicpattern": "("}, r"topicPattern = '\(': a regular"),
        (ReadOptions.parse, {"queues": "9" * 5000}, r"queues = '9+': queue ids"),
        (ReadOptions.parse, {"splitbytes": "9" * 5000}, r"splitBytes = '9+': a whole number"),
        (ReadOptions.parse, {"startingtimestamp": "9" * 5000}, r"startingTimestamp = '9+': millis"),
        (ReadOptions.parse, {"assign": "[" * 100_000}, r"assign = '\[+': JSON of topics"),
        (WriteOptions.parse, {"locktimeouts": "9" * 5000}, r"lockTimeoutS = '9+': a whole number"),
        (
            ReadOptions.parse,
            {"subscribe": "a", "topicpattern": "b"},
            r"topicPattern = 'b': not tog",
        ),
        (ReadOptions.parse, {"fetchsize": "1"}, r"no option fetchsize; known: .*startingTimestamp"),
    ):
        with pytest.raises(SparkFaceError, match=said):
            parse({"path": str(tmp_path), **given})  # type: ignore[operator]
    given = {
        "path": str(tmp_path),
        "minoffsetspertrigger": "1",
        "maxtriggerdelay": "9" * 5000 + "s",
    }
    with pytest.raises(SparkFaceError, match=r"maxTriggerDelay = '9+s': a number and ms, s"):
        ReadOptions.parse(given, stream=True)
    for stream, name in ((False, "maxOffsetsPerTrigger"), (True, "endingTimestamp")):
        with pytest.raises(SparkFaceError, match=rf"{name} = '9': only in a"):
            ReadOptions.parse({"path": str(tmp_path), name.lower(): "9"}, stream=stream)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"startingoffsets": "first"}, r"'first': earliest, latest, or JSON like \{\"topic\": \{"),
        ({"startingoffsets": "{7"}, r"'\{7': JSON of topics \("),
        ({"endingoffsets": "earliest"}, "'earliest': latest, or JSON like"),
        ({"path": ""}, "RS_NO_PATH.* CREATE TEMPORARY VIEW"),
    ],
    ids=["word", "JSON", "end", "path"],
)
def test_what_an_option_may_be_is_said(tmp_path: Path, given: dict[str, str], said: str) -> None:
    with pytest.raises(SparkFaceError, match=said):
        ReadOptions.parse({"path": str(tmp_path), **given})


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("5m", ""),
        ("2026-11-25", "; 1795564800000 is 2026-11-25T00:00:00+00:00"),
        (" 2026-11-25 10:00+01:00", "; 1795597200000 is 2026-11-25T10:00:00+01:00"),
        ("1969-12-31", ""),
        ("yesterday", ""),
        ("-1", ""),
    ],
    ids=["size", "date", "zone", "before 1970", "word", "negative"],
)
def test_a_date_is_answered_with_its_milliseconds(tmp_path: Path, text: str, meant: str) -> None:
    for name in ("startingTimestamp", "endingTimestamp"):
        with pytest.raises(SparkFaceError) as failed:
            ReadOptions.parse({"path": str(tmp_path), name: text})
        said = f"{name} = {text!r}: milliseconds since 1970, a whole number{meant}"
        assert str(failed.value) == f"[RS_BAD_OPTION] {said}"


@pytest.mark.parametrize("name", [{}, {"txnAppId": ""}], ids=["none", "empty"])
def test_a_version_is_of_a_name(tmp_path: Path, name: dict[str, str]) -> None:
    """Without one each write is a first one, however often its version was written."""
    with pytest.raises(SparkFaceError, match=r"RS_BAD_OPTION\] txnVersion = '3': needs txnAppId"):
        WriteOptions.parse({"path": str(tmp_path), "txnVersion": "3", **name})


def test_small_shards_name_the_option_that_they_need(tmp_path: Path) -> None:
    """It was named as the configuration of a store has it: the sink has no such option."""
    pytest.importorskip("pyspark", reason="needs pyspark: make spark")
    with pytest.raises(SparkFaceError, match=r"segmentBytes: maxMessageSizeBytes = 4194304: must"):
        writer_of(tmp_path / "s", shards="2", segmentBytes="1m")
    writer_of(tmp_path / "s", shards="2", segmentBytes="1m", maxMessageSizeBytes="512k")


def test_what_is_no_size_takes_no_unit(tmp_path: Path) -> None:
    for name in ("lockTimeoutS", "queues", "queueId", "shards"):
        with pytest.raises(SparkFaceError, match=rf"RS_BAD_OPTION\] {name} = '1k': a whole number"):
            WriteOptions.parse({"path": str(tmp_path), name: "1k"})
    for name in ("minPartitions", "maxOffsetsPerTrigger"):
        stream = name.startswith("max")
        with pytest.raises(SparkFaceError, match=rf"RS_BAD_OPTION\] {name} = '1k': a whole number"):
            ReadOptions.parse({"path": str(tmp_path), name: "1k"}, stream=stream)
    assert WriteOptions.parse({"path": str(tmp_path), "lockTimeoutS": " 7 "}).lock_timeout_s == 7
    assert ReadOptions.parse({"path": str(tmp_path), "splitBytes": "1 kB"}).split_bytes == 1024


def test_bounds_of_time_are_begin_and_end(tmp_path: Path) -> None:
    """Kafka's names mean the same, in milliseconds; ours take a date with its zone as well."""

    def wanted(**given: str) -> dict[str, object]:
        return ReadOptions.parse({"path": str(tmp_path), **given}).wanted

    kafka = wanted(startingTimestamp="1795564800000", endingTimestamp="1795597200000")
    assert kafka == {"begin": 1795564800000, "end": 1795597200000, "system_topics": False}
    assert wanted(begin="1795564800000", end="1795597200000") == kafka
    assert wanted(begin="2026-11-25T00:00:00Z", end="2026-11-25T10:00+01:00") == kafka
    for given, said in (
        ({"begin": "2026-11-25"}, r"begin = '2026-11-25': milliseconds .* with a time zone; 1795"),
        ({"begin": "9", "startingTimestamp": "9"}, "startingTimestamp = '9': not together with b"),
        ({"begin": "9", "end": "8"}, "end = '8': not before begin, 9"),
    ):
        with pytest.raises(SparkFaceError, match=said):
            wanted(**given)


def test_a_name_that_is_nearly_right_brings_the_right_one(tmp_path: Path) -> None:
    said = (
        r"\[RS_UNKNOWN_OPTION\] the sink has no option locktimeout; perhaps lockTimeoutS is meant"
    )
    with pytest.raises(SparkFaceError, match=said):
        WriteOptions.parse({"path": str(tmp_path), "lockTimeout": "7"})


def test_what_chooses_among_queues() -> None:
    given = {"path": "p", "topic": "t"}
    assert WriteOptions.parse(given).by_key is None
    for word, by_key in (("key", True), ("Turns", False)):
        assert WriteOptions.parse({**given, "queues": "3", "queueBy": word}).by_key is by_key
    with pytest.raises(SparkFaceError, match="RS_BAD_OPTION.*queueBy = 'row': key or turns"):
        WriteOptions.parse({**given, "queues": "3", "queueBy": "row"})
    for other in ({}, {"queueId": "1"}):
        with pytest.raises(SparkFaceError, match="RS_BAD_OPTION.*queueBy = 'key': needs queues"):
            WriteOptions.parse({**given, **other, "queueBy": "key"})


def test_a_key_that_is_to_choose_and_is_not_there() -> None:
    pytest.importorskip("pyspark", reason="needs pyspark: make spark")
    from pyspark.sql.types import StructType

    from rocketstore.spark.sink.sink import check_schema

    options = WriteOptions.parse({"path": "p", "topic": "t", "queues": "3", "queueBy": "key"})
    check_schema(StructType().add("value", "binary").add("key", "binary"), options)
    check_schema(StructType().add("body", "binary").add("shard_key", "string"), options)
    with pytest.raises(SparkFaceError, match="RS_BAD_OPTION.*queueBy.*needs a column key, keys or"):
        check_schema(StructType().add("body", "binary").add("tags", "string"), options)


def test_null_bodies() -> None:
    given = {"path": "p", "topic": "t"}
    assert not WriteOptions.parse(given).null_is_empty
    assert WriteOptions.parse({**given, "nullBody": "Empty"}).null_is_empty
    with pytest.raises(SparkFaceError, match="RS_BAD_OPTION.*nullBody = 'skip': fail or empty"):
        WriteOptions.parse({**given, "nullBody": "skip"})


def test_a_writer_for_foreach_batch() -> None:
    from rocketstore.spark import batch_writer

    class Writer:
        def __init__(self) -> None:
            self.said: dict[str, object] = {}

        def format(self, name: str) -> Writer:
            self.said["format"] = name
            return self

        def mode(self, name: str) -> Writer:
            self.said["mode"] = name
            return self

        def options(self, **given: object) -> Writer:
            self.said |= given
            return self

        def save(self) -> None:
            self.said["saved"] = True

    class Frame:
        write = Writer()

    batch_writer("/s", app_id="job", topic="a", queues=3)(Frame(), 7)  # type: ignore[arg-type]
    assert Frame.write.said == {
        "format": "rocketstore", "mode": "append", "path": "/s", "topic": "a", "queues": 3,
        "txnAppId": "job-a", "txnVersion": 7, "saved": True,
    }  # fmt: skip
    with pytest.raises(SparkFaceError, match="RS_BAD_OPTION.*app_id = ''"):
        batch_writer("/s", app_id="")
    with pytest.raises(SparkFaceError, match="RS_BAD_OPTION.*txnVersion = 3"):
        batch_writer("/s", app_id="job", txnVersion=3)
