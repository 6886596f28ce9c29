"""Jobs over whole stores: their parts without Spark, their codes on the driver, and once in a session."""

from __future__ import annotations

import functools
import pickle
import random
import sys
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rocketstore
from rocketstore import CorruptRecordError, ReadFailedError, StoreFailedError
from rocketstore.cli.exit_codes import in_one_line
from rocketstore.spark import jobs
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.jobs.audit import audit_part, audit_scans
from rocketstore.spark.jobs.stats import merge_stats, stats_part, stats_scans
from tests.spark.reading import make_store

HOUR_MS = 3_600_000


def expected_stats(messages: list[rocketstore.Message]) -> list[tuple[Any, ...]]:
    groups = defaultdict(list)
    for m in messages:
        groups[m.topic, m.queue_id, m.store_timestamp_ms // HOUR_MS].append(m)
    return sorted(
        (
            *key,
            len(found),
            sum(m.size for m in found),
            min(m.size for m in found),
            max(m.size for m in found),
            min(m.queue_offset for m in found),
            max(m.queue_offset for m in found),
        )
        for key, found in groups.items()
    )


def damage(root: Path, message: rocketstore.Message) -> None:
    segment = sorted((root / "commitlog").iterdir())[message.physical_offset // (64 * 1024)]
    content = bytearray(segment.read_bytes())
    content[message.physical_offset % (64 * 1024) + 92] ^= 0xFF
    segment.write_bytes(content)


@pytest.mark.parametrize("split_bytes", [1 << 30, 20_000])
def test_stats_of_parts_add_up(tmp_path: Path, rng: random.Random, split_bytes: int) -> None:
    messages = make_store(tmp_path / "s", rng)
    parts = stats_scans(tmp_path / "s", split_bytes, chunk_bytes=5000)
    rows = [row for part in parts for row in stats_part(pickle.loads(pickle.dumps(part)))]
    assert merge_stats(rows) == expected_stats(messages)


def test_an_audit_names_what_is_damaged(tmp_path: Path, rng: random.Random) -> None:
    messages = make_store(tmp_path / "s", rng)
    victims = [m for m in messages[100::200] if len(m.body) > 20]
    for victim in victims:
        damage(tmp_path / "s", victim)
    rows = [row for part in audit_scans(tmp_path / "s", 50_000) for row in audit_part(part)]
    found = [range_ for row in rows for range_ in row[5]]
    assert [(begin, end) for begin, end, _ in found] == [
        (m.physical_offset, m.physical_offset + m.size) for m in victims
    ]
    assert all("crc" in reason for _, _, reason in found)
    assert sum(row[4] for row in rows) == sum(m.size for m in victims)
    assert sum(row[3] for row in rows) == sum(m.size for m in messages if m not in victims)


def test_a_path_without_a_store_is_named(tmp_path: Path) -> None:
    with pytest.raises(SparkFaceError, match="RS_NO_STORE") as refused:
        jobs.stats(None, tmp_path / "nowhere")  # type: ignore[arg-type]
    # A command shows the cause, too: it said that mode='rw' would make a store.
    assert "mode=" not in in_one_line(refused.value)


def test_a_store_without_a_message_gives_no_rows(tmp_path: Path) -> None:
    """It was taken for one that this host does not see."""
    rocketstore.open(tmp_path / "s").close()
    for scans, part in (
        (audit_scans(tmp_path / "s", 1 << 30), audit_part),
        (stats_scans(tmp_path / "s", 1 << 30), stats_part),
    ):
        assert [row for scan in scans for row in part(scan)] == []


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        ({"topics": "nope"}, "RS_NO_TOPIC_THERE"),
        ({"topics": ["orders", "nope"]}, "RS_NO_TOPIC_THERE"),
        ({"topics": "orders.v1"}, "RS_NO_TOPIC_THERE"),
        ({"topics": "orders", "queues": [7]}, "RS_NO_TOPIC_THERE"),
        ({"queues": {"orders": [7]}}, "RS_NO_TOPIC_THERE"),
        ({"topics": []}, "RS_BAD_OPTION"),
        ({"queues": []}, "RS_BAD_OPTION"),
        ({"begin": 2000, "end": 1000}, "RS_BAD_OPTION"),
    ],
)
@pytest.mark.parametrize("job", ["stats", "export"])
def test_what_a_job_cannot_find_is_named(
    tmp_path: Path, rng: random.Random, job: str, wanted: dict[str, Any], code: str
) -> None:
    """They gave no rows."""
    make_store(tmp_path / "s", rng, 60)
    if job == "stats":
        work = functools.partial(jobs.stats, None)
    else:
        pytest.importorskip("pyarrow", reason="needs pyarrow: make spark")
        work = functools.partial(jobs.export, None, target=str(tmp_path / "t"))
    with pytest.raises(SparkFaceError, match=rf"^\[{code}\]"):
        work(tmp_path / "s", **wanted)


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore")
def test_jobs_in_a_session(spark: Any, tmp_path: Path, rng: random.Random) -> None:
    messages = make_store(tmp_path / "s", rng)
    rows = jobs.stats(spark, tmp_path / "s", split_bytes=30_000, topics="orders").collect()
    wanted = expected_stats([m for m in messages if m.topic == "orders"])
    assert [(row.topic, row.queue_id, row.messages, row.bytes) for row in rows] == [
        (topic, queue, count, size) for topic, queue, _, count, size, *_ in wanted
    ]
    damage(tmp_path / "s", messages[300])
    rows = jobs.audit(spark, tmp_path / "s", split_bytes=30_000).collect()
    assert len(rows) > 3
    assert [d.begin_offset for row in rows for d in row.damage] == [messages[300].physical_offset]
    rocketstore.open(tmp_path / "empty").close()
    assert jobs.audit(spark, tmp_path / "empty").collect() == []


#: A driver alone: nothing is given to tasks here.
DRIVER: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CorruptRecordError(7, "magic"), "RS_CORRUPT_RECORD"),
        (ReadFailedError("the log does not go on at 7"), "RS_READ_FAILED"),
        (StoreFailedError("index files could not be synced"), "RS_WRITE_FAILED"),
        (OSError(28, "No space left on device"), "RS_WRITE_FAILED"),
        (FileNotFoundError(2, "commitlog"), "RS_NO_STORE"),
    ],
    ids=lambda given: given if isinstance(given, str) else type(given).__name__,
)
def test_errors_of_a_rebuild_have_a_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, code: str
) -> None:
    """They came as rocketstore.tools has them."""

    def fail(*_: object, **__: object) -> None:
        raise error

    # The module has the name of its function.
    monkeypatch.setattr(sys.modules[jobs.rebuild.__module__], "rebuild_here", fail)
    with pytest.raises(SparkFaceError, match=rf"^\[{code}\].*{tmp_path}.*{error.args[-1]}"):
        jobs.rebuild(DRIVER, tmp_path)


def test_a_rebuild_does_not_advise_to_make_a_store(tmp_path: Path) -> None:
    with pytest.raises(SparkFaceError, match="RS_NO_STORE") as refused:
        jobs.rebuild(DRIVER, tmp_path / "nowhere")
    assert "mode=" not in in_one_line(refused.value)


def test_options_of_a_rebuild_are_named(tmp_path: Path) -> None:
    rocketstore.open(tmp_path).close()
    with pytest.raises(SparkFaceError, match=r"^\[RS_BAD_OPTION\] .*index_slots = 0"):
        jobs.rebuild(DRIVER, tmp_path, index_slots=0)
    for parts in (0, 257):
        with pytest.raises(ValueError, match=rf"parts = {parts}: 1 … 256"):
            jobs.rebuild(DRIVER, tmp_path, parts=parts)
