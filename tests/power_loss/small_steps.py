"""What is done to a log step by step takes steps of a few pages here: the logs of these runs have no more."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final
from unittest import mock

from rocketstore.consuming import commit_journal
from rocketstore.engine import catch_up
from rocketstore.log.commitlog import checkpointer, commit_log, flusher
from rocketstore.log.index import segment as index_segment
from rocketstore.log.layout import disk_blocks
from rocketstore.log.mapped_files import segment_blocks
from rocketstore.log.recovery import quarantine
from rocketstore.log.recovery import repair as log_repair
from rocketstore.log.recovery import walk as log_walk
from tests.power_loss.disk import PAGE

__all__ = ["small_steps"]

STEPS: Final[tuple[tuple[Any, str, int], ...]] = (
    (catch_up, "AHEAD_BYTES", PAGE),
    (catch_up, "STEP_BYTES", 2 * PAGE),  # more than the longest record
    (commit_journal, "JOURNAL_BYTES", 2 * PAGE),  # full after some commits
    (checkpointer, "EVERY_BYTES", PAGE),
    (commit_log, "MARK_EVERY_BYTES", PAGE),
    (flusher, "FLUSH_STEP_BYTES", PAGE),
    (index_segment, "CHUNK_BYTES", PAGE),
    (log_repair, "ADVANCE_BYTES", PAGE),
    (log_repair, "BLOCK_BYTES", PAGE),  # what one store to a mapping has written
    (log_repair, "STEP_BYTES", PAGE),
    (log_walk, "CHUNK_BYTES", PAGE),
    (disk_blocks, "STEP_BYTES", PAGE),
    (segment_blocks, "STEP_BYTES", PAGE),
    (quarantine, "BLOCK_BYTES", PAGE),
)


@contextlib.contextmanager
def small_steps() -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for module, name, size in STEPS:
            stack.enter_context(mock.patch.object(module, name, size))
        yield
