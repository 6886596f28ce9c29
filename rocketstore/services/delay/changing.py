"""What a transaction does to messages that wait: it cancels them, or has them delivered at another
time."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from rocketstore._native.format.codec import encode_properties
from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.log.queues.delayed_puts import TIMER_TOPIC, Change
from rocketstore.services.delay.timer_topic import again_of, marker_of
from rocketstore.services.delay.timers import drop, found, see_all, timers_of
from rocketstore.values.arguments import Row
from rocketstore.values.system_flags import LONG_ADDRESSES

__all__ = ["Changing"]


class Changing:
    """For `with`, around an append of the records that end what waits: nothing of it is delivered
    meanwhile."""

    def __init__(self, engine: WritingEngine, changes: Sequence[Change]) -> None:
        self._engine, self._changes = engine, changes
        self._timers = timers_of(engine)
        self._passage = self._timers.lock()
        #: Ids with which nothing waits any more.
        self.gone: list[str] = []

    def __enter__(self) -> Changing:
        self._passage.__enter__()
        try:
            see_all(self._engine, self._timers)
            self._met = [
                (one, m) for one in self._changes for m in found(self._timers, one.unique_id)
            ]
        except BaseException:
            self._passage.__exit__(None, None, None)
            raise
        met = {one.unique_id for one, _ in self._met}
        self.gone = [one.unique_id for one in self._changes if one.unique_id not in met]
        #: Topic and id of each message that is cancelled.
        self.cancelled = [
            (message.properties.get("REAL_TOPIC", ""), one.unique_id)
            for one, message in self._met
            if one.when_ms is None
        ]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._passage.__exit__(kind, error, trace)

    def rows(self, name: str) -> list[Row]:
        """The records; what each says of its place in a transaction begins with `name`."""
        rows: list[Row] = []
        for number, (one, message) in enumerate(self._met):
            if one.when_ms is None:
                changed, body = marker_of(message), b""
            else:
                changed, body = again_of(message, one.when_ms, one.span_ms), bytes(message.body)
            text = encode_properties({**changed, "RS_TRANSACTION": f"{name}{number}"})
            # The hosts become those of the store.
            flags = message.sys_flag & ~LONG_ADDRESSES
            fields = (message.flag, flags, message.born_timestamp_ms, text, body)
            rows.append((TIMER_TOPIC, 0, *fields))
        return rows

    def done(self) -> None:
        """The records are in the log."""
        for one, message in self._met:
            drop(self._timers, message)
            if one.when_ms is not None:
                self._engine.delayed_puts.note_due(one.when_ms)
        for topic, unique_id in self.cancelled:
            self._engine.unique_ids.forget(topic, unique_id)
