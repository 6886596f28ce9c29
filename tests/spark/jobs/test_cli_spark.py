"""`rocketstore spark`, each command in its own process or with a session that is handed in."""

from __future__ import annotations

import contextlib
import json
import logging
import random
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from click import ClickException
from click.testing import CliRunner, Result

import rocketstore
from rocketstore.cli import exit_codes
from rocketstore.cli.app import cli
from rocketstore.cli.commands import spark as face
from rocketstore.cli.spark_session import said, spark_session
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.jobs.writing import append, warn_left_out
from rocketstore.spark.sink.shards import shard_paths
from tests.spark.reading import everything, make_store

pytestmark = [pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def invoke(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Commands use the session of all tests instead of one of their own, which they would end."""

    @contextlib.contextmanager
    def given(master: str | None) -> Iterator[Any]:
        yield spark

    monkeypatch.setattr(face, "spark_session", given)

    def run(*words: object) -> Result:
        return CliRunner().invoke(cli, ["spark", *map(str, words)], catch_exceptions=False)

    return run


@pytest.mark.spark
def test_a_round_through_the_commands(invoke: Any, tmp_path: Path, rng: random.Random) -> None:
    there = make_store(tmp_path / "s", rng)
    found = invoke("stats", tmp_path / "s", "--json", "--topic", "orders")
    rows = [json.loads(line) for line in found.stdout.splitlines()]
    assert sum(row["messages"] for row in rows) == sum(m.topic == "orders" for m in there)
    assert "messages" in invoke("stats", tmp_path / "s").stdout
    assert invoke("audit", tmp_path / "s").exit_code == exit_codes.OK
    out = invoke("export", tmp_path / "s", tmp_path / "p", "--columns", "body, queue_id")
    assert "topic=orders" in out.stdout
    out = invoke("import", tmp_path / "p", tmp_path / "back", "--once", "load", "--version", 3)
    assert f"{len(there)} messages" in out.stdout
    out = invoke("import", tmp_path / "p", tmp_path / "many", "--shards", 2)
    assert f"{len(there)} messages" in out.stdout
    shards = shard_paths(str(tmp_path / "many"))
    assert shards is not None
    assert sum(rocketstore.scan(shard).to_arrow().read_all().num_rows for shard in shards) == len(
        there
    )
    out = invoke("replay", tmp_path / "s", tmp_path / "other", "--to-topic", "x", "--key", "k1")
    assert out.exit_code == exit_codes.OK
    assert invoke("compact", tmp_path / "s", tmp_path / "small").exit_code == exit_codes.OK


@pytest.mark.spark
def test_bodies_stay_as_they_are_stored(invoke: Any, tmp_path: Path) -> None:
    packed = zlib.compress(b"plain" * 99)
    with rocketstore.open(tmp_path / "s") as store:
        store.put_message("t", packed, sys_flag=0x301)
    for words, body in (((), b"plain" * 99), (("--as-stored",), packed)):
        name = "".join(words)
        assert invoke("replay", tmp_path / "s", tmp_path / f"copy{name}", *words).exit_code == 0
        assert invoke("export", tmp_path / "s", tmp_path / f"files{name}", *words).exit_code == 0
        assert invoke("import", tmp_path / f"files{name}", tmp_path / f"back{name}").exit_code == 0
        for copy in ("copy", "back"):
            [message] = everything(tmp_path / f"{copy}{name}")
            assert (message.body, message.sys_flag) == (body, 0x301 if words else 0)


@pytest.mark.spark
def test_no_store_is_made(invoke: Any, tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s") as store:
        store.writer("t").put(b"a")
    invoke("export", tmp_path / "s", tmp_path / "files")
    target = tmp_path / "target"
    target.mkdir()
    for words in (
        ("replay", tmp_path / "s", target),
        ("compact", tmp_path / "s", target),
        ("import", tmp_path / "files", target),
    ):
        with pytest.raises(Exception, match=r"RS_NO_STORE\] path = .*target': there is no store, "):
            invoke(*words, "--no-create")
        assert list(target.iterdir()) == []
    assert invoke("replay", tmp_path / "s", target).exit_code == exit_codes.OK
    assert invoke("compact", tmp_path / "s", target, "--no-create").exit_code == exit_codes.OK
    assert [m.body for m in everything(target)] == [b"a", b"a"]


@pytest.mark.spark
def test_rows_that_cannot_be_messages(invoke: Any, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = {"body": [b"a", b"b", b"c"], "topic": ["t", "x.y", "t"]}
    pq.write_table(pa.table(rows), tmp_path / "rows.parquet")
    words = ("import", tmp_path / "rows.parquet")
    for name, more in (("default", ()), ("fail", ("--bad-rows", "fail"))):
        with pytest.raises(Exception, match="RS_BAD_ROW"):
            invoke(*words, tmp_path / name, *more)
        assert everything(tmp_path / name) == []
    for name, more in (
        ("drop", ("--bad-rows", "drop")),
        ("divert", ("--bad-rows", "divert")),
        ("elsewhere", ("--bad-rows", "divert", "--bad-rows-path", tmp_path / "bad")),
    ):
        assert "2 messages" in invoke(*words, tmp_path / name, *more).stdout
        assert [m.body for m in everything(tmp_path / name)] == [b"a", b"c"]
    assert not list((tmp_path / "drop").rglob("*.parquet"))
    for place in (tmp_path / "divert" / "rocketstore" / "sink" / "bad_rows", tmp_path / "bad"):
        [kept] = place.glob("*.parquet")
        assert pq.read_table(kept).column("body").to_pylist() == [b"b"]


@pytest.mark.parametrize("more", [(), ("--bad-rows", "drop")], ids=["fail", "drop"])
def test_a_place_for_bad_rows_needs_divert(tmp_path: Path, more: tuple[str, ...]) -> None:
    words = ["spark", "import", str(tmp_path / "p"), str(tmp_path / "s"), "--bad-rows-path", "bad"]
    found = CliRunner().invoke(cli, [*words, *more])  # before a session is made
    assert found.exit_code == exit_codes.USAGE
    assert "--bad-rows-path needs --bad-rows divert" in found.stderr


def test_a_version_is_of_a_name(tmp_path: Path) -> None:
    """It was left aside: who runs the same version again has its messages twice."""
    rocketstore.open(tmp_path / "s").close()
    for command in ("replay", "compact", "import"):
        words = ["spark", command, str(tmp_path / "s"), str(tmp_path / "t"), "--version", "3"]
        found = CliRunner().invoke(cli, words)  # before a session is made
        assert found.exit_code == exit_codes.USAGE
        assert "--version needs --once" in found.stderr
        found = CliRunner().invoke(cli, [*words, "--once", ""])  # a variable that is not set
        assert found.exit_code == exit_codes.USAGE
        assert "--once needs a name" in found.stderr
    for name in (None, ""):
        with pytest.raises(SparkFaceError, match=r"RS_BAD_OPTION\] version = 3: needs app_id"):
            append(MagicMock(), tmp_path / "t", app_id=name, version=3)
    assert not (tmp_path / "t").exists()


def test_a_topic_of_all_messages_is_looked_at_before_a_task_starts(tmp_path: Path) -> None:
    """Each task said that its row 0 was bad, and advised to drop such rows: all of them."""
    for topic in ("a b", "t" * 128, ""):
        with pytest.raises(SparkFaceError, match=r"RS_BAD_OPTION\] the topic of all messages: "):
            append(MagicMock(), tmp_path / "t", topic=topic)


@pytest.mark.spark
def test_damage_is_an_exit_code(invoke: Any, tmp_path: Path, rng: random.Random) -> None:
    there = make_store(tmp_path / "s", rng)
    path = sorted((tmp_path / "s" / "commitlog").iterdir())[0]
    content = bytearray(path.read_bytes())
    content[there[3].physical_offset + 92] ^= 1
    path.write_bytes(content)
    found = invoke("audit", tmp_path / "s")
    assert found.exit_code == exit_codes.DAMAGED
    assert "1 damaged range" in found.stdout and "crc" in found.stdout


@pytest.mark.spark
def test_errors_of_spark_are_one_line(tmp_path: Path) -> None:
    """In a process of its own, with a session of its own."""
    words = [sys.executable, "-m", "rocketstore.cli", "spark", "stats", str(tmp_path / "none")]
    found = subprocess.run(words, capture_output=True, text=True, timeout=200, check=False)
    assert found.returncode == exit_codes.FAILED
    last = found.stderr.strip().splitlines()[-1]
    assert "[RS_NO_STORE]" in last and "Traceback" not in found.stderr


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (
            "[RS_NO_TOPIC_THERE] s has no topic 'x'; name others, or give failOnDataLoss=false",
            "[RS_NO_TOPIC_THERE] s has no topic 'x'; name others",
        ),
        (
            "[RS_NO_STORE] path = 's': there is no store, and createStore=false; see whether",
            "[RS_NO_STORE] path = 's': there is no store, and --no-create; see whether",
        ),
        (
            "[RS_CORRUPT_RECORD] path=s: record at physical offset 7: magic; "
            "failOnDataLoss=false skips it",
            "[RS_CORRUPT_RECORD] path=s: record at physical offset 7: magic; "
            "verify and repair are for it",
        ),
    ],
    ids=["topic", "store", "damage"],
)
def test_errors_speak_of_flags(monkeypatch: pytest.MonkeyPatch, said: str, shown: str) -> None:
    """The commands have none of the options that the errors of source and sink advise."""
    errors = pytest.importorskip("pyspark.errors", reason="needs pyspark: make spark")
    monkeypatch.setattr("rocketstore.spark.session", lambda **_: MagicMock())
    with pytest.raises(ClickException) as failed, spark_session(None):
        raise errors.AnalysisException(f"Failed:\n{said}\n at a line")
    assert failed.value.message == shown


def test_a_session_that_cannot_start_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was a traceback."""
    errors = pytest.importorskip("pyspark.errors")

    def fail(**_: object) -> None:
        raise errors.PySparkRuntimeError("gone")

    monkeypatch.setattr("rocketstore.spark.session", fail)
    found = CliRunner().invoke(cli, ["spark", "stats", "s", "--master", "lokal"])
    assert found.exit_code == exit_codes.FAILED
    assert found.stderr.splitlines()[-1].endswith("does not start with --master lokal: gone")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("An error occurred while calling o4.load.\n: org.X: no\n\tat y", "org.X: no"),
        ("An error occurred while calling o4.load.", "An error occurred while calling o4.load."),
        ("[PATH_NOT_FOUND] no.\nmore", "[PATH_NOT_FOUND] no."),
        ("[STREAM] x\nTraceback\nE: [RS_NO_PATH] path\n at", "[RS_NO_PATH] path"),
        ("", "ValueError"),
    ],
    ids=["java", "call", "spark", "ours", "empty"],
)
def test_the_line_of_an_error_that_says_it(text: str, line: str) -> None:
    assert said(ValueError(text)) == line


@pytest.mark.parametrize(
    ("remedy", "flag"),
    [
        ("name them in topics", "name each with --topic"),
        (
            "import the directory topic=… of each with the argument topic",
            "import the directory topic=… of each with --topic",
        ),
    ],
    ids=["replay", "import"],
)
def test_topics_that_are_left_out_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], remedy: str, flag: str
) -> None:
    """Nothing was said: the commands are silent about what the library logs, but for --verbose."""
    pytest.importorskip("pyspark.errors", reason="needs pyspark: make spark")
    monkeypatch.setattr("rocketstore.spark.session", lambda **_: MagicMock())
    monkeypatch.setattr(logging.getLogger("rocketstore"), "level", logging.CRITICAL)
    with spark_session(None):
        warn_left_out({"RMQ_SYS_x": 2}, remedy)
    told = "rocketstore: topics of RocketMQ itself are left out: RMQ_SYS_x (2 messages)"
    assert capsys.readouterr().err == f"{told}; {flag} to have them\n"


def test_the_program_for_spark_submit_says_where_it_is() -> None:
    words = [sys.executable, "-m", "rocketstore.spark.submit", "--where"]
    found = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert Path(found.stdout.strip()).name == "submit.py"
