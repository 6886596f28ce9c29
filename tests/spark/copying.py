"""A streaming query that copies one store to another, in small micro-batches, until it is at the end:
`python -m tests.spark.copying SOURCE TARGET CHECKPOINT`."""

from __future__ import annotations

import sys

from rocketstore import spark

BATCH = "64k"


def main(source: str, target: str, checkpoint: str) -> None:
    session = spark.session(
        master="local[2]",
        config={"spark.driver.memory": "1g", "spark.log.level": "ERROR"},
    )
    stream = session.readStream.format("rocketstore").options(
        path=source, startingOffsets="earliest", maxBytesPerTrigger=BATCH
    )
    query = (
        stream.load()
        .select("topic", "queue_id", "body", "tags", "keys", "born_timestamp")
        .writeStream.format("rocketstore")
        .options(path=target, checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
