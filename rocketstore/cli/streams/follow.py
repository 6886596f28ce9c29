"""`tail -f`: follows a topic past damage, and past the start of a writer."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import click

import rocketstore
from rocketstore.cli.streams.queue_messages import step_over

if TYPE_CHECKING:
    from rocketstore import Consumer, Message, Store

__all__ = ["TopicFollower", "lock_state"]

LockState = tuple[int, int, int] | None


@dataclass(slots=True)
class TopicFollower:
    """Shows the messages of a topic as they come. A store that was not stopped cleanly and has no
    writer is read in memory, where a later writer adds nothing: it is opened again when a writer
    has come."""

    path: str
    open_store: Callable[[], Store]
    queue_id: int | None
    tag: str | None
    #: State of the file `lock` before the store was opened.
    lock: LockState

    def run(
        self, store: Store, consumer: Consumer, show: Callable[[list[Message]], object]
    ) -> NoReturn:
        """Until a signal comes, or an error."""
        while True:
            try:
                messages = consumer.poll(500, timeout_s=1.0)
            except rocketstore.CorruptRecordError as error:
                step_over(store, consumer, self.tag, error)
                click.echo(f"rocketstore: {error}", err=True)
                continue
            show(messages)
            if not messages:
                store, consumer = self._newest(store, consumer)

    def _newest(self, store: Store, consumer: Consumer) -> tuple[Store, Consumer]:
        """A new store and consumer at the same positions, once a writer has come and has all that
        was shown."""
        lock = lock_state(self.path)
        if lock == self.lock or store.recovery.mode == "following":
            return store, consumer
        newer = self.open_store()
        topic, positions = consumer.topic, consumer.positions
        ready = all(newer.max_queue_offset(topic, queue) >= at for queue, at in positions.items())
        if ready or newer.recovery.mode != "following":  # else it still recovers
            self.lock = lock
        if not ready:
            newer.close()
            return store, consumer
        store.close()
        consumer = newer.consumer(topic, queue_id=self.queue_id, tags=self.tag, reset="earliest")
        for queue, at in positions.items():
            consumer.seek(at, queue_id=queue)
        return newer, consumer


def lock_state(path: str) -> LockState:
    """The state of the file `lock`, which changes when a writer opens the store, ours or
    RocketMQ."""
    try:
        found = os.stat(os.path.join(path, "lock"))
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
