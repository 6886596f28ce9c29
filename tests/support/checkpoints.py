"""What the two checkpoints of a store on disk say."""

from __future__ import annotations

from pathlib import Path

from rocketstore.log.commitlog.checkpoint import (
    CheckpointFile,
    OwnCheckpoint,
    RocketmqCheckpoint,
    RocketmqTimes,
)

__all__ = ["own_checkpoint", "rocketmq_times"]


def own_checkpoint(root: Path) -> OwnCheckpoint | None:
    file = CheckpointFile(root / "rocketstore" / "checkpoint")
    try:
        return file.load()
    finally:
        file.close()


def rocketmq_times(root: Path) -> RocketmqTimes:
    file = RocketmqCheckpoint(root / "checkpoint")
    try:
        return file.load()
    finally:
        file.close()
