"""A process may have fewer descriptors than a store has files."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

FEW = 48
PROGRAM = """
import os, shutil, sys
import rocketstore

path, copy = sys.argv[1:]
options = dict(durability="os", commit_log_file_size_bytes=4096, consume_queue_file_size_bytes=200,
               index_slots=16, index_entries=64)
names = [(f"t{n // 4}", n % 4) for n in range(80)]
with rocketstore.open(path, **options) as store:
    writers = [store.writer(topic, queue_id=queue_id) for topic, queue_id in names]
    for round in range(12):
        for writer in writers:
            writer.put(b"x" * 90, keys=f"k{round}")
        store.wait_flushed(store.end_offset)  # a segment that is not on disk keeps its descriptor
    while store.dispatched_offset < store.end_offset:
        pass
    shutil.copytree(path, copy)  # as after a crash
    # Beside the writer: every queue, every file of it.
    with rocketstore.open(path, "r", **options) as reader:
        assert sum(len(list(reader.consumer(f"t{n}"))) for n in range(20)) == 960
for mode in ("r", "rw", "rw"):
    with rocketstore.open(copy, mode, **options) as store:
        for topic, queue_id in names:
            assert len(list(store.consumer(topic, queue_id=queue_id))) == 12
        assert len(store.query("t3", "k5", limit=50)) == 4
        if mode == "rw":
            store.writer("t0", queue_id=0).put(b"more", durability="disk")
            names.remove(("t0", 0)) if ("t0", 0) in names else None
with rocketstore.open(copy, "rw", **options) as store:
    assert store.trim(before_offset=store.end_offset) > 0
print("files", sum(len(files) for _, _, files in os.walk(path)))
"""


def few_descriptors() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, FEW))


@pytest.mark.timeout(120)
def test_fewer_descriptors_than_files(tmp_path: Path) -> None:
    """Writing, following, recovering, trimming: hundreds of files with a limit of 48 (`ulimit -n`)."""
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "store"), str(tmp_path / "copy")],
        preexec_fn=few_descriptors,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert int(run.stdout.split()[1]) > 4 * FEW
