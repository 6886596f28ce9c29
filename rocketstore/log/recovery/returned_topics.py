"""Topics that come back with an open although a broker has deleted them.

A broker that deletes a topic removes its consume queues and its row of `topics.json`; its messages
stay in the log until that is trimmed. Nothing in a store distinguishes such queues from lost ones,
so an open makes them again (semantics K-95), and says which are in no `topics.json`.
"""

from __future__ import annotations

import dataclasses

from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.layout.state_files import read_json
from rocketstore.log.queues.consume_queue_store import ConsumeQueueStore
from rocketstore.log.recovery.report import RecoveryReport

__all__ = ["ReturnedTopics", "broker_topics"]


def broker_topics(layout: StoreLayout) -> frozenset[str] | None:
    """The topics that the broker of a store knows; None where no broker says so."""
    try:
        document = read_json(layout.config / "topics.json")
    except OSError:
        return None
    table = document.get("topicConfigTable") if isinstance(document, dict) else None
    return frozenset(table) if isinstance(table, dict) else None


class ReturnedTopics:
    """Made before an open dispatches, asked after that."""

    def __init__(self, layout: StoreLayout, queues: ConsumeQueueStore) -> None:
        self._queues = queues
        self._known = broker_topics(layout)
        self._before = frozenset() if self._known is None else frozenset(queues.topics())

    def named_in(self, report: RecoveryReport) -> RecoveryReport:
        """The report with a note for each topic that had no queue, has one now, and is none that
        the broker knows."""
        if self._known is None:
            return report
        new = set(self._queues.topics()) - self._before - self._known
        notes = tuple(
            f"topic {topic}: it had no queue and is not in topics.json, so a broker may have "
            "deleted it; its messages in the log are served again until they are trimmed"
            for topic in sorted(new)
        )
        return dataclasses.replace(report, notes=(*report.notes, *notes)) if notes else report
