"""An order service: each order is worked once, tried again later, and has to be paid in time.

    python examples/order_service.py data/orders --orders 100

Three threads read the topics `orders`, `payments` and `deadlines`. Each of them commits what it read together with
what came of it, in one transaction. So the service looks nothing up, and may be killed at any moment: `docs/recipes/
exactly_once.md` builds it step by step.
"""

from __future__ import annotations

import argparse
import datetime
import random
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import rocketstore
from rocketstore import Message, Store, StoreTransaction

#: The group of all consumers of the service.
GROUP = "order-service"
#: An order that failed so often is given up.
TRIES_MAX = 4


class NotNow(Exception):
    """An order cannot be worked at this moment: it is tried again."""


class OrderService:
    """Works the orders of one store until `stop`.

    `work` gets the message of an order, and gives what is put into `results`; it raises `NotNow`
    where it should be called again: after `back_off`, twice that, four times that. `payment_time` is
    what a customer has to pay in, from the result on.
    """

    def __init__(
        self,
        store: Store,
        work: Callable[[Message], bytes],
        *,
        back_off: datetime.timedelta = datetime.timedelta(seconds=1),
        payment_time: datetime.timedelta = datetime.timedelta(minutes=15),
    ) -> None:
        self._store = store
        self._work = work
        self._back_off = back_off
        self._payment_time = payment_time
        self._stopped = threading.Event()

    def place(self, order: str, body: bytes) -> bool:
        """Takes an order; False: it was there, from an earlier call."""
        put = self._store.writer("orders").put(body, keys=order, unique_id=f"order {order}")
        return not put.duplicate

    def pay(self, order: str) -> bool:
        """Takes a payment; False: it was there, from an earlier call."""
        put = self._store.writer("payments").put(b"", keys=order, unique_id=f"payment {order}")
        return not put.duplicate

    def on_order(self, tx: StoreTransaction, message: Message) -> None:
        """The result and the deadline of an order, or its next try, or its end."""
        (order,) = message.keys
        try:
            result = self._work(message)
        except NotNow:
            tries = int(message.properties.get("tries", 0)) + 1
            if tries == TRIES_MAX:
                tx.put("results", message.body, keys=order, tags="dead")
                return
            tx.put(
                "orders",
                message.body,
                keys=order,
                properties={"tries": str(tries)},
                deliver_after=self._back_off * 2 ** (tries - 1),
                unique_id=f"order {order} try {tries}",
            )
            return
        tx.put("results", result, keys=order, tags="made")
        tx.put(
            "deadlines",
            b"",
            keys=order,
            deliver_after=self._payment_time,
            unique_id=f"deadline {order}",
        )

    def on_payment(self, tx: StoreTransaction, message: Message) -> None:
        """A payment ends the deadline, unless that has passed or the order was never made."""
        (order,) = message.keys
        in_time = tx.cancel(f"deadline {order}")
        tx.put("results", b"", keys=order, tags="paid" if in_time else "refund")

    def on_deadline(self, tx: StoreTransaction, message: Message) -> None:
        """Nobody has paid: a payment would have cancelled this message."""
        tx.put("results", b"", keys=message.keys, tags="expired")

    def run(self) -> None:
        """Works until `stop`; raises what goes wrong."""
        acts = {
            "orders": self.on_order,
            "payments": self.on_payment,
            "deadlines": self.on_deadline,
        }
        with ThreadPoolExecutor(len(acts)) as pool:
            for ended in [pool.submit(self.follow, *act) for act in acts.items()]:
                ended.result()

    def stop(self) -> None:
        """Has `run` return once each thread has committed what it does."""
        self._stopped.set()

    def follow(self, topic: str, act: Callable[[StoreTransaction, Message], None]) -> None:
        """Works one topic until `stop`: messages, what `act` puts, and offsets together."""
        try:
            with self._store.consumer(topic, group=GROUP) as consumer:
                while not self._stopped.is_set():
                    try:
                        with self._store.transaction() as tx:
                            for message in tx.consume(consumer, max_messages=16, timeout_s=0.2):
                                act(tx, message)
                    except rocketstore.MessageNotFoundError:
                        continue  # a deadline passed before its cancel: the payments come again
        finally:
            self.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", help="its directory")
    parser.add_argument("--orders", type=int, default=100)
    given = parser.parse_args()

    def work(order: Message) -> bytes:
        if random.random() < 0.3:
            raise NotNow
        return b"parcel of " + order.body

    second = datetime.timedelta(seconds=1)
    with rocketstore.open(given.store, commit_log_file_size_bytes=16 << 20) as store:
        service = OrderService(store, work, back_off=second / 10, payment_time=second)
        running = threading.Thread(target=service.run)
        running.start()
        placed = sum(service.place(f"o-{n}", b"two books") for n in range(given.orders))
        made, ended = list[str](), 0
        for result in store.consumer("results").follow(timeout_s=5):
            ended += result.tags in ("dead", "paid", "expired")
            if result.tags == "made":
                made.append(result.keys[0])
                if len(made) % 2:
                    service.pay(made[-1])
            if ended == given.orders:
                break
        service.stop()
        running.join()
        found = Counter(result.tags for result in store.consumer("results"))
    print(f"{placed} orders placed:", ", ".join(f"{n} {tag}" for tag, n in sorted(found.items())))


if __name__ == "__main__":
    main()
