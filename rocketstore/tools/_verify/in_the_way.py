"""Things in place of the files of a log or a queue, and of the directories of queues and topics: no
open makes such a file while they are there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from rocketstore._native.format.message import Message
from rocketstore.log.layout.paths import StoreLayout, parse_segment_name
from rocketstore.log.queues.directories import is_queue_id

__all__ = ["BlockedPlaces", "entries_of", "is_in_the_way"]


def is_in_the_way(entry: os.DirEntry[str]) -> bool:
    """Whether something that is no file has the name of a file of a log or a queue."""
    return parse_segment_name(entry.name) is not None and not entry.is_file(follow_symlinks=False)


def entries_of(directory: str | Path) -> list[os.DirEntry[str]]:
    """What lies in a directory, by name; nothing where there is none."""
    try:
        with os.scandir(directory) as found:
            return sorted(found, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return []


class BlockedPlaces:
    """The queues whose units no open can make, by the names in the store."""

    def __init__(self, layout: StoreLayout) -> None:
        self._topics: set[str] = set()
        self._queues: set[tuple[str, str]] = set()
        for topic in entries_of(layout.consume_queue):
            if not topic.is_dir(follow_symlinks=False):
                self._topics.add(topic.name)
                continue
            for queue in entries_of(topic.path):
                if not is_queue_id(queue.name):
                    continue
                is_directory = queue.is_dir(follow_symlinks=False)
                if not is_directory or any(map(is_in_the_way, entries_of(queue.path))):
                    self._queues.add((topic.name, queue.name))

    def __contains__(self, place: tuple[str, int]) -> bool:
        return place[0] in self._topics or (place[0], str(place[1])) in self._queues

    def bound(self, waits: Callable[[Message], bool]) -> Callable[[Message], bool]:
        """`waits`, but for messages of these queues: they wait for what nobody makes."""
        if not self._topics and not self._queues:
            return waits
        return lambda message: (message.topic, message.queue_id) not in self and waits(message)
