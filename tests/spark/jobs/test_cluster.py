"""Executors in processes of their own: what they read is what one process reads, and what they write
while one of them is killed is what was to be written."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import random
import re
import signal
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.spark.sink.shards import shard_paths
from tests.spark.cluster_job import digest
from tests.spark.patience import patiently
from tests.spark.processes import MARK, kill_marked, program
from tests.spark.reading import everything
from tests.support.waiting import pause, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.proof]

MESSAGES = 6000
START_S = 60
EXECUTOR = "CoarseGrainedExecutorBackend"


def wait_for(said: str, log: Path, running: Any, timeout_s: float = 300) -> str:
    def happened() -> bool:
        found = said in (text := log.read_text(errors="replace"))
        assert found or running.poll() is None, text[-3000:]
        return found

    wait_until(happened, lambda: log.read_text(errors="replace")[-3000:], timeout_s)
    return log.read_text(errors="replace")


@contextlib.contextmanager
def standalone(directory: Path, mark: str) -> Iterator[str]:
    """A master and two workers, as `sbin/start-master.sh` would start them; its URL."""
    from rocketstore.spark.java import find_java_home

    found = importlib.util.find_spec("pyspark")
    assert found is not None and found.submodule_search_locations is not None
    home = found.submodule_search_locations[0]
    java = find_java_home() or os.environ.get("JAVA_HOME")
    environment = {**os.environ, "SPARK_HOME": home, "SPARK_LOCAL_IP": "127.0.0.1", MARK: mark}
    environment |= {"JAVA_HOME": java} if java else {}
    running = []

    def start(name: str, *words: str) -> tuple[Path, subprocess.Popen[bytes]]:
        log = directory / f"{name}-{len(running)}.log"
        command = [f"{home}/bin/spark-class", f"org.apache.spark.deploy.{name}", *words]
        with log.open("w") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
        running.append(process)
        return log, process

    try:
        words = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        log, master = start("master.Master", *words)
        text = wait_for("Starting Spark master at", log, master, START_S)
        [url] = re.findall(r"Starting Spark master at (spark://\S+)", text)
        for number in range(2):
            work = (
                "--cores",
                "1",
                "--memory",
                "1g",
                "--work-dir",
                str(directory / f"work-{number}"),
            )
            log, worker = start("worker.Worker", *work, *words, url)
            wait_for("Successfully registered with master", log, worker, START_S)
        yield url
    finally:
        kill_marked(mark, running)
        for process in running:
            process.wait(30)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["local-cluster", "standalone", "shards"])
def test_read_and_written_by_executors(tmp_path: Path, rng: random.Random, kind: str) -> None:
    """Shards with speculation, too: each partition's messages in one shard, in the order of the source."""
    source = tmp_path / "source"
    with rocketstore.open(source, durability="os", commit_log_file_size_bytes=1 << 20) as store:
        for _ in range(MESSAGES):
            writer = store.writer(rng.choice(["a", "b"]), queue_id=rng.randrange(4))
            writer.put(rng.randbytes(rng.randrange(600)), keys="k", tags=rng.choice([None, "t"]))
    rows = sorted(
        (m.physical_offset, m.topic, m.queue_id, m.queue_offset, m.body) for m in everything(source)
    )
    targets = iter(tmp_path / f"target-{number}" for number in range(9))

    def run() -> Path:
        target = next(targets)
        with contextlib.ExitStack() as stack:
            mark = uuid.uuid4().hex
            master = "local-cluster[2,1,1024]"
            if kind == "standalone":
                master = stack.enter_context(standalone(tmp_path, mark))
            log = tmp_path / f"{target.name}.log"
            options = ("shards=auto", "segmentBytes=8m") if kind == "shards" else ()
            words = (master, source, target, *options)
            running = stack.enter_context(program("tests.spark.cluster_job", words, log, mark))
            text = wait_for("writing", log, running.process)
            [found] = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
            assert found == {"rows": MESSAGES, "digest": digest(rows)}
            pause(2)  # tasks are in the middle of their parts
            executors = [p for p, text in running.processes().items() if EXECUTOR in text]
            assert len(executors) == 2
            os.kill(rng.choice(executors), signal.SIGKILL)
            assert "written" in running.done(300)
        return target

    written: list[Path] = []
    patiently(lambda: written.append(run()))
    if kind == "shards":
        check_shards(source, written[0])
        return
    copied = [(m.topic, m.queue_id, m.queue_offset, m.body, m.tags) for m in everything(written[0])]
    assert copied == [
        (m.topic, m.queue_id, m.queue_offset, m.body, m.tags) for m in everything(source)
    ]


def check_shards(source: Path, target: Path) -> None:
    paths = [Path(path) for path in shard_paths(str(target)) or []]
    assert len(paths) > 4
    found = [(m.topic, m.queue_id, m.body, m.tags) for path in paths for m in everything(path)]
    assert found == [(m.topic, m.queue_id, m.body, m.tags) for m in everything(source)]
