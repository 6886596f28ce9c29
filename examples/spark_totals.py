"""Orders in, totals out: a stream that aggregates a topic and writes the results back, exactly once.

    python examples/spark_totals.py data/shop

Needs rocketstore[spark]. Run it again: it takes only the orders that came since.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import rocketstore
from rocketstore import spark

USERS = ("ada", "bob", "cyd")


def put_orders(path: Path, count: int, seed: int = 1) -> None:
    """What a shop does."""
    rng = random.Random(seed)
    with rocketstore.open(path) as store:
        orders = store.writer("orders", queues=4)
        for number in range(count):
            order = {"order": number, "user": rng.choice(USERS), "cents": rng.randrange(100, 9900)}
            orders.put(json.dumps(order).encode(), keys=order["user"], shard_key=order["user"])


def add_up(session: Any, path: Path) -> None:
    """Takes the orders that are there, and writes the new total of each user that ordered."""
    from pyspark.sql import functions as f

    orders = (
        session.readStream.format("rocketstore")
        .options(path=str(path), topic="orders", columns="body", startingOffsets="earliest")
        .load()
        .select(f.from_json(f.col("body").cast("string"), "user string, cents bigint").alias("o"))
    )
    totals = orders.groupBy("o.user").agg(
        f.sum("o.cents").alias("cents"), f.count("o.cents").alias("orders")
    )

    def write_back(batch: Any, number: int) -> None:
        messages = batch.select(
            f.to_json(f.struct("user", "orders", "cents")).alias("body"),
            f.col("user").alias("keys"),
        )
        # Spark may run a batch again after a failure: under its number it is written once.
        writer = messages.write.format("rocketstore").mode("append")
        writer.options(path=str(path), topic="totals", txnAppId="totals", txnVersion=number).save()

    query = (
        totals.writeStream.outputMode("update")
        .foreachBatch(write_back)
        .option("checkpointLocation", str(path.with_name(f"{path.name}-checkpoint")))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def latest_totals(path: Path) -> dict[str, dict[str, Any]]:
    """How any reader gets the totals: the last message of each key counts."""
    found = {}
    with rocketstore.open(path, "r") as store:
        for message in store.consumer("totals"):
            total = json.loads(message.body)
            found[total["user"]] = total
    return found


def main(path: Path) -> None:
    put_orders(path, 10_000)
    session = spark.session(config={"spark.sql.shuffle.partitions": "4"})
    add_up(session, path)
    session.stop()
    for user, total in sorted(latest_totals(path).items()):
        print(f"{user}: {total['orders']:,} orders, {total['cents'] / 100:,.2f}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/spark_totals.py DIRECTORY")
    main(Path(sys.argv[1]))
