"""Staged files without Spark or Arrow, and a committer in a child process that dies at one step."""

from __future__ import annotations

import signal
import zlib
from pathlib import Path

import numpy as np

import rocketstore
from rocketstore import encode_frames
from rocketstore.spark.sink.commit import commit
from rocketstore.spark.sink.journal import Staged, sink_directory
from tests.support.forking import die, in_child


def column(texts: list[bytes]) -> tuple[np.ndarray, bytes]:
    return np.cumsum([0, *map(len, texts)]).astype(np.int32), b"".join(texts)


def stage_bodies(
    root: Path, name: str, bodies: list[bytes], chunk: int = 10, topic: str = "t"
) -> Staged:
    """A file of frames for `topic`, queues 0 … 2, `chunk` messages a chunk."""
    directory = sink_directory(root) / "staging" / "run"
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.frames"
    chunks = []
    with open(path, "wb") as file:
        for start in range(0, len(bodies), chunk):
            part = bodies[start : start + chunk]
            queues = (np.arange(len(part)) + start) % 3
            frames, refused = encode_frames(
                column(part),
                topics=[topic],
                queue_ids=queues.astype(np.int32),
                tags=column([b"tag"] * len(part)),
                born_timestamps_ms=1_700_000_000_000,
                max_body_bytes=8 << 20,
            )
            assert not refused
            file.write(frames)
            chunks.append((len(frames), len(part), zlib.crc32(frames)))
    return Staged(str(path), len(bodies), tuple(chunks), topics=(topic,))


def make(root: Path) -> None:
    """A store of small files with one message."""
    with rocketstore.open(
        root, durability="os", index_enabled=False,
        commit_log_file_size_bytes=16 * 1024, consume_queue_file_size_bytes=200,
    ) as store:  # fmt: skip
        store.writer("t", queue_id=0).put(b"first")


def killed_at(step: str, root: Path, writer: str, version: int, files: list[Staged]) -> bool:
    """Commits in a child process that kills itself at `step`; False when it did not get there."""

    def step_done(now: str) -> None:
        if now == step:
            die()

    code = in_child(lambda: commit(str(root), writer, version, files, on_step=step_done))
    assert code in (0, -signal.SIGKILL)
    return code != 0
