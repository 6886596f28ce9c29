"""Staged files without Spark or Arrow, and a committer in a child process that dies at one step."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np

from rocketstore import encode_frames
from rocketstore.spark.sink.commit import commit
from rocketstore.spark.sink.journal import Staged, sink_directory


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


def killed_at(step: str, root: Path, writer: str, version: int, files: list[Staged]) -> bool:
    """Commits in a child process that kills itself at `step`; False when it did not get there."""
    work = {
        "step": step,
        "root": str(root),
        "writer": writer,
        "version": version,
        "files": [[file.path, file.rows, file.chunks] for file in files],
    }
    done = subprocess.run(
        [sys.executable, __file__, json.dumps(work)], capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode != 0


def main(work: dict[str, object]) -> None:
    files = [Staged(p, r, tuple(map(tuple, c))) for p, r, c in work["files"]]  # type: ignore

    def die(step: str) -> None:
        if step == work["step"]:
            os.kill(os.getpid(), signal.SIGKILL)

    commit(str(work["root"]), str(work["writer"]), int(str(work["version"])), files, on_step=die)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
