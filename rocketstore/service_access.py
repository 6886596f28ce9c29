"""What `Store` shows of its services. Each is loaded when it is first asked for.

A service is a guest of the engine: it is made once for each store that is open for writing, and
stopped before that store closes. A property here is the door to it, and has no policy of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketstore.store_info import StoreFacts

if TYPE_CHECKING:
    from rocketstore.services.delay import Delayed
    from rocketstore.services.retention.service import StoreRetention
    from rocketstore.services.transactions.transactions import Transactions

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
        segment begins, and by a timer. `plan()` and `run()` without a rule are about that one.
        `last_error` says why its last round did not end; the next one tries again.
        `events` says what an emergency gave up.

        Raises:
            StoreClosedError, StoreReplacedError: the store was closed, or another has its place.
        """
        from rocketstore.services.retention.service import retention_of

        return retention_of(self)

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
            CorruptRecordError, ReadFailedError: A half or op message cannot be read.
        """
        from rocketstore.services.transactions.transactions import Transactions

        engine = self._writable("transactions")
        return engine.guests.get(Transactions, lambda: Transactions(engine))
