"""Store: the public face of one store directory. It wires parts and decides nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Literal, Never, Unpack

from rocketstore.config import StoreConfig
from rocketstore.consumer import Consumer
from rocketstore.errors import StoreReplacedError
from rocketstore.log.read.query import answers_of, key_query
from rocketstore.log.read.time_search import Boundary
from rocketstore.store_info import Mode
from rocketstore.store_puts import StorePuts
from rocketstore.values.arguments import one_of, text, whole_number
from rocketstore.values.public import public
from rocketstore.values.renamed import refuse_arguments
from rocketstore.values.timestamps import Timestamp, timestamp_ms

if TYPE_CHECKING:
    from types import TracebackType

    from rocketstore._native.format.scanner import Message
    from rocketstore.config.typed_options import LiveOptions
    from rocketstore.errors import CorruptRecordError
    from rocketstore.shipping import ShipReport
    from rocketstore.values.arguments import Progress

__all__ = ["Mode", "Store"]


@public
class Store(StorePuts):
    """An open store. Made by `rocketstore.open`; use it as a context manager, from any thread."""

    # ---- reading ----

    def consumer(
        self,
        topic: str,
        *,
        queue_id: int | None = None,
        queue_ids: Iterable[int] | None = None,
        group: str | None = None,
        offset: Literal["earliest", "latest"] | int = "earliest",
        when: Timestamp | None = None,
        tags: str | Sequence[str] | None = None,
        where: str | None = None,
        reset: Literal["earliest", "latest"] | None = None,
        must_exist: bool = False,
    ) -> Consumer:
        """Makes a consumer, which reads one queue of `topic`, some, or all of them in turns.

        Iterate it, `poll` it or `follow` it. A topic that does not exist gives nothing, which the
        first read logs; the consumer takes up its queues once they are there.

        Args:
            queue_id, queue_ids: One queue, or some. None: all of the topic, those to come included.
            group: Start at the offsets that this group committed, and own them while open. In
                mode "r" the consumer owns nothing, and `commit` raises StoreReadOnlyError.
            offset: Where to start without them: "earliest", "latest", or an offset of one queue.
            when: Instead of `offset`: start at the first message stored at this time or later.
            tags: Only messages with this tag, one of these, or RocketMQ's "a || b".
            where: Only messages whose properties match this SQL92 (docs/filters.md).
            reset: Where to go on when the offset is no longer kept. None: OffsetOutOfRangeError.
            must_exist: Whether a topic, or a queue of these, that is not there is an error.

        Raises:
            InvalidTopicError: No topic can have this name, and the store has none such.
            QueueNotFoundError: `must_exist`, and there is no such topic or queue.
            GroupClaimedError: Another consumer of this process owns the group.
            FilterSyntaxError, ModuleNotFoundError: `where` is none, or lacks `rocketstore[sql]`.
            ValueError, TypeError: An argument that has no meaning.
            StoreClosedError, StoreReplacedError: The store was closed, or another has its place.
        """
        engine = self._open()
        return Consumer(
            engine.reader,
            topic,
            queue_id=queue_id,
            queue_ids=queue_ids,
            group=group,
            offset=offset,
            when=when,
            tags=tags,
            where=where,
            reset=reset,
            must_exist=must_exist,
            offsets=engine.offsets if group is not None else None,
            wait_flushed=None if self._mode == "r" else self.wait_flushed,
        )

    def get(self, physical_offset: int) -> Message:
        """Gives the message whose record begins at `physical_offset`.

        Raises:
            MessageNotFoundError: No record begins there.
            OffsetOutOfRangeError: The offset is outside the log.
            CorruptRecordError: The checksum of the record does not hold.
            ReadFailedError: The disk does not give the bytes back.
            StoreClosedError, StoreReplacedError: The store was closed, or another has its place.
        """
        return self._open().reader.get(whole_number("physical_offset", physical_offset))

    def query(
        self,
        topic: str,
        key: str,
        *,
        begin: Timestamp | None = None,
        end: Timestamp | None = None,
        order: Literal["newest", "oldest"] = "newest",
        below: int | None = None,
        above: int | None = None,
        limit: int | None = None,
        must_exist: bool = False,
        on_damage: Callable[[CorruptRecordError], object] | None = None,
    ) -> Sequence[Message]:
        """Finds messages of `topic` by a key or a unique id, each once, by what records say.

        Args:
            begin, end: Only messages stored at `begin` or later, at `end` or earlier.
            order: "newest" first or "oldest" first, by their place in the log.
            below: Only messages below this physical offset: where a page ended, newest first.
            above: Only messages above this physical offset: where a page ended, oldest first.
            limit: Most messages, as a list. None: all, as a sequence that looks them up by and by.
            must_exist: Whether a topic that is not there is an error, not just logged once.
            on_damage: Is called with the error of each record that the index proposes and that
                does not hold. The record is left out, with a warning in the log. Without it an
                entry that points beyond the log is an error, after the messages that are there.

        Raises:
            InvalidTopicError: No topic can have this name, and the store has none such.
            QueueNotFoundError: `must_exist`, and there is no such topic.
            ConfigError: The store has no index (`index_enabled`).
            ValueError, TypeError: An argument that has no meaning.
            ReadFailedError: The disk does not give back a record that the index names, or, without
                `on_damage`, an entry points beyond the log.
            StoreClosedError, StoreReplacedError: The store was closed, or another has its place.
            StoreRecoveringError: A process recovers or rebuilds the store that this one reads.
        """
        engine = self._open()
        query = key_query(topic, key, begin, end, order, below, above)
        return answers_of(engine.reader, engine.index, query, limit, must_exist, on_damage)

    def offset_at(
        self, topic: str, queue_id: int, when: Timestamp, boundary: Boundary = "lower"
    ) -> int:
        """Finds a queue offset by the time at which messages were stored.

        Args:
            when: A time: milliseconds since 1970 or an aware datetime.
            boundary: "lower": the first message stored at `when` or later; the maximum offset when
                there is none. "upper": the last one stored at `when` or earlier; the minimum - 1
                when there is none.

        Raises:
            InvalidTopicError, QueueNotFoundError: No such topic, or it has no such queue.
            ValueError, TypeError: An argument that has no meaning.
            StoreClosedError, StoreReplacedError: The store was closed, or another has its place.
        """
        reader = self._open().reader
        topic, queue_id = text("topic", topic), whole_number("queue_id", queue_id, 0)
        one_of("boundary", boundary, ("lower", "upper"))
        reader.source.catch_up()
        if reader.source.queue(topic, queue_id) is None:
            reader.look_for(topic, queue_id, must_exist=True)
        return reader.offset_at(topic, queue_id, timestamp_ms("when", when), boundary=boundary)

    # ---- care ----

    def configure(self, **changes: Unpack[LiveOptions]) -> StoreConfig:
        """Changes options while the store is open; gives the new config.

        Only options that docs/options.md marks can change; the others need a new open.

        Raises:
            ConfigError: An option that cannot change, or a wrong value. Nothing was changed.
            StoreReadOnlyError, StoreClosedError: The store cannot be configured.
        """
        return self._writable("configure").configure(changes)

    def trim(
        self,
        *unnamed: Never,
        before_offset: int | None = None,
        before_time: Timestamp | None = None,
        **unknown: Never,
    ) -> int:
        """Removes whole segments from the front of the log; gives the new begin offset.

        The last segment stays, and so does what the dispatcher has not reached.

        Args:
            before_offset: Segments that end at this physical offset or below it go.
            before_time: Segments whose messages were all stored before this time go, as far as the
                first message of the next segment shows. Milliseconds since 1970 or an aware
                datetime. Give this or `before_offset`.

        Raises:
            ValueError: `before_offset` is above the end of the log, or a time has no time zone.
            TypeError: not exactly one of the two, or it is no number and no time.
            BackpressureError: the disk took longer than `sync_flush_timeout_ms`; nothing was
                trimmed.
            StoreReadOnlyError, StoreClosedError: the store cannot be trimmed.
            OSError: a file cannot be removed; the next trim tries again.
        """
        if unknown:
            refuse_arguments(self.trim, unknown)
        engine = self._writable("trim")
        if unnamed or (before_offset is None) == (before_time is None):
            raise TypeError("trim() takes one of before_offset= and before_time=, by its name")
        if before_time is not None:
            return engine.trim(before_ms=timestamp_ms("before_time", before_time))
        before_offset = whole_number("before_offset", before_offset, 0)
        if before_offset > engine.positions.wrote:
            raise ValueError(
                f"before_offset = {before_offset}: the log ends at {engine.positions.wrote}; "
                "for a time use before_time="
            )
        return engine.trim(before_offset=before_offset)

    def destroy(self) -> None:
        """Closes the store and deletes every file that belongs to it. There is no way back.

        Raises:
            OSError: A file cannot be deleted; the error names it. The next `open(path)` deletes the
                rest and makes a new store.
            StoreReadOnlyError, StoreClosedError: The store is not open for writing.
        """
        self._writable("destroy").destroy()

    def ship(
        self,
        uri: str,
        *,
        tail: bool = False,
        force: bool = False,
        progress: Progress | None = None,
    ) -> ShipReport:
        """Copies the sealed segments of this store to an archive, as `rocketstore.ship` does.

        Raises:
            ConfigError, CorruptRecordError, ReadFailedError, OSError, ImportError: As
                `rocketstore.ship`.
            StoreClosedError, StoreReplacedError: The store was closed, or another has its place.
        """
        from rocketstore.shipping import ship_store

        return ship_store(self, uri, progress, tail=tail, force=force)

    def close(self) -> None:
        """Flushes, dispatches, marks the stop as clean and unlocks the store.

        A second call does nothing. Messages that were handed out stay readable.

        Raises:
            StoreFailedError: The last flush failed. The store is closed all the same.
            OSError: A file cannot be written. The store is closed all the same.
        """
        self._engine.close()

    def __enter__(self) -> Store:
        self._open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        if self.closed:
            return f"Store({self._engine.path!r}, closed)"
        try:
            self._engine.check_open()
        except StoreReplacedError as error:
            return f"Store({self._engine.path!r}, replaced: {error.reason})"
        positions = self._engine.positions
        return (
            f"Store({self._engine.path!r}, mode={self._mode!r}, "
            f"durability={str(self._engine.config.durability)!r}, begin={self.begin_offset}, "
            f"end={positions.wrote}, flushed={positions.flushed})"
        )

    def __reduce__(self) -> str:
        raise TypeError(
            "a Store cannot be pickled; open it again with "
            f"rocketstore.open({self._engine.path!r}, 'r')"
        )
