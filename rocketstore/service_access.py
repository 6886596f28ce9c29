"""What `Store` shows of its services. Each is loaded when it is first asked for.

A service is a guest of the engine: it is made once for each store that is open for writing, and
stopped before that store closes. A property here is the door to it, and has no policy of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rocketstore._native.append.copies import check_promise
from rocketstore.store_info import StoreFacts
from rocketstore.values.arguments import text, whole_number
from rocketstore.values.durability import durability_of

if TYPE_CHECKING:
    from rocketstore.message import Message
    from rocketstore.replication.status import ReplicationStatus
    from rocketstore.services.compaction.report import CompactionReport
    from rocketstore.services.delay import Delayed
    from rocketstore.services.retention.service import StoreRetention
    from rocketstore.services.transactions.store_transaction import StoreTransaction
    from rocketstore.services.transactions.transactions import Transactions
    from rocketstore.values.arguments import Progress
    from rocketstore.values.durability import Durability

__all__ = ["ServiceAccess"]


class ServiceAccess(StoreFacts):
    """The part of `Store` that leads to the services.

    A service belongs to the open store, not to one `Store` object: the first question begins it,
    each later one finds it, and it ends when the store closes.
    """

    @property
    def delayed(self) -> Delayed:
        """The messages that wait for their time: `put(..., delay_level=3)`, `put(..., deliver_at=…)`.

        It tells how many there are and when the next is due, lists them by topic and time, and says
        what could not be delivered. `cancel` and `reschedule` take one with a time of its own:

            print(len(store.delayed), store.delayed.next_due_time)
            for waiting in store.delayed.messages("orders"):
                print(waiting.due_time, waiting.message.body)

        With mode "r" it shows what the writer has not delivered, by the offsets it stored last.

        Raises:
            StoreClosedError, StoreReplacedError: the store was closed, or another has its place.
        """
        from rocketstore.services.delay import Delayed

        return Delayed(self._open())

    @property
    def retention(self) -> StoreRetention:
        """What leaves the front of the log by itself, and what would.

            rule = Retention(max_age=timedelta(days=7), keep_unshipped=True)
            print(store.retention.plan(rule))  # a dry run: each segment, and why it goes or stays
            store.retention.run(rule)

        A store that was opened with `retention=rule` applies it from a thread: whenever a new
        segment begins, and by a timer. Without an argument `plan()` and `run()` use that
        rule.
        `last_error` says why its last round did not end; the next one tries again.
        `events` says what an emergency gave up.

        Raises:
            StoreClosedError, StoreReplacedError: the store was closed, or another has its place.
        """
        from rocketstore.services.retention.service import retention_of

        return retention_of(self)

    @property
    def replication(self) -> ReplicationStatus:
        """The role of this store in replication, its peers, and how far each of them is.

            for replica in store.replication.peers:
                print(replica.address, replica.lag_bytes, replica.lag_s)

        Each question looks again: what it gave does not change. A store becomes a master or a
        replica by `open(replication=…)`.

        Raises:
            ReplicationError: The role of the store cannot be read.
            StoreClosedError, StoreReplacedError: The store was closed, or another has its place.
        """
        from rocketstore.replication.status import status_of

        return status_of(self._open())

    def transaction(self, *, durability: Durability | None = None) -> StoreTransaction:
        """Begins a transaction: messages of any topics and queues, and offsets of groups, all or
        none of them.

            with store.transaction() as tx:
                tx.put("invoices", b"17 EUR")
                tx.commit_offsets(consumer)

        The end of the `with` commits it, an exception rolls it back. After a crash at any moment
        the next open for writing has all of it or nothing.

        Args:
            durability: The promise that the commit waits for. None: that of the store. With offsets
                it is "disk".

        Raises:
            ConfigError: A promise that there is not.
            StoreReadOnlyError, StoreClosedError: The store takes no messages.
        """
        from rocketstore.services.transactions.commits import commits_of
        from rocketstore.services.transactions.store_transaction import StoreTransaction

        engine = self._writable("transaction")
        promise = durability_of(durability or engine.config.durability)
        check_promise(engine.commit_log.log.group.copies, promise)
        return StoreTransaction(engine, commits_of(engine), promise)

    @property
    def transactions(self) -> Transactions:
        """The transactions of this store, in RocketMQ's form: prepare, commit, roll back, list.

            prepared = store.transactions.prepare("orders", b"paid", group="billing")
            prepared.commit()

        The first use reads the half and op messages that are not settled yet, and puts the op
        message of a commit that a crash left without one.

        Raises:
            StoreReadOnlyError, StoreClosedError: The store takes no messages.
            DurabilityTimeoutError: What was put before is not readable yet.
            ReadFailedError: The queues of half or op messages lack units; 'rocketstore rebuild'
                makes them again. A damaged message alone is named by `transactions.errors`.
        """
        from rocketstore.services.transactions.transactions import Transactions

        engine = self._writable("transactions")
        return engine.guests.get(Transactions, lambda: Transactions(engine))

    def compact(
        self,
        topics: str | Iterable[str],
        *,
        into: str | os.PathLike[str],
        tombstones: bool = True,
        grace: timedelta = timedelta(days=1),
        without_key: Literal["keep", "drop"] = "keep",
        keep_offsets: bool = True,
        on_damage: Literal["raise", "skip"] = "raise",
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> CompactionReport:
        """Writes the latest message of each key into a new store at `into`.

            report = store.compact("profiles", into="data/profiles-latest")

        Messages keep their topic, queue, queue offset, times, properties and order. A key is the
        text of `KEYS` as a whole, one for all queues of its topic; the latest message is the last
        one in the log. The log is read up to where it is visible now; this store does not change.
        The new store gets its name when it is whole: a call that fails or is killed leaves none.

        Args:
            topics: A topic, or several, each with keys of its own.
            into: A directory that is not there yet, or is empty.
            tombstones: Whether an empty body deletes its key. False: it is a body like any other.
            grace: How long a tombstone is kept after it was stored, for readers that know the
                message before it.
            without_key: What becomes of messages whose `KEYS` is missing or blank.
            keep_offsets: False: messages are numbered from 0 in each queue, without gaps. RocketMQ
                5 hides the first messages of a queue with gaps.
            on_damage: "raise", or "skip": go on behind it, and name it in the report. The latest
                sound message of a key stays then.
            dry_run: Only count; write nothing.
            progress: Called with ("look" or "copy", bytes of the log, bytes in all).

        Raises:
            ConfigError: A system topic; `into` is not empty, or lies in this store.
            QueueNotFoundError, InvalidTopicError: There is no such topic.
            MessageRejectedError: Inner batches, or messages that are in light queues as well.
            MissingSegmentsError: Segments of the log are missing, and the open was forced.
            CorruptRecordError: Damage; or the numbers of a queue began again, and they are to be
                kept.
            OffsetOutOfRangeError, ReadFailedError: The log was trimmed meanwhile.
            StoreLockedError: Another process makes a store at `into`.
            ValueError, TypeError: An argument that has no meaning.
            OSError, DiskFullError: As the disk says.
            StoreFailedError: The disk did not take queues and index of the new store.
            StoreClosedError, StoreReplacedError: The store was closed, or another has its place.
        """
        from rocketstore.services.compaction.compaction import compact

        return compact(
            self,
            topics,
            into,
            tombstones=tombstones,
            grace=grace,
            without_key=without_key,
            keep_offsets=keep_offsets,
            on_damage=on_damage,
            dry_run=dry_run,
            progress=progress,
        )

    def compacted(self, topic: str, queue_id: int | None = None) -> Iterator[Message]:
        """Reads a compacted topic of RocketMQ 5 (`cleanup.policy=COMPACTION`): what its broker has
        left of it, as far as it compacted. By queue, then by queue offset, which may jump.

        The files belong to the broker, and nothing is locked: it may replace them meanwhile. The
        physical offset of such a message is its place in them, not in the log.

        Args:
            queue_id: One queue. None: all of them, one after the other.

        Raises:
            InvalidTopicError, QueueNotFoundError: There is no such compacted topic, or no such
                queue of it.
            CorruptRecordError: A record is not what the queue says.
            FileNotFoundError, OSError: The files went meanwhile, or cannot be read.
            StoreClosedError, StoreReplacedError: The store was closed, or another has its place.
        """
        from rocketstore.services.compaction.compacted_topics import compacted_messages

        root = Path(self._open().layout.root)
        queue = None if queue_id is None else whole_number("queue_id", queue_id, 0)
        return compacted_messages(root, text("topic", topic), queue)
