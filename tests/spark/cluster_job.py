"""A scan and a write on a cluster: `python -m tests.spark.cluster_job MASTER SOURCE TARGET [OPTION=VALUE …]`,
options of the sink.

Prints a line of JSON for the scan; "writing" when tasks of the write run; "written" at the end.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from typing import Any

from rocketstore import spark

CONFIG = {
    "spark.driver.memory": "1g",
    "spark.executor.memory": "1g",
    "spark.log.level": "ERROR",
    "spark.task.maxFailures": "8",
}
#: An executor that has nothing to do runs the last tasks once more.
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "1s",
}
#: For each row: a task of the write takes seconds, so that an executor can be killed in the middle.
PAUSE_S = 0.003


def digest(rows: list[Any]) -> str:
    """Of rows whose last value is bytes, of whichever type."""
    found = hashlib.sha256()
    for *values, body in rows:
        found.update(repr((*values, bytes(body))).encode())
    return found.hexdigest()


def slowly(text: str | None) -> str | None:
    time.sleep(PAUSE_S)
    return text


def main(master: str, source: str, target: str, *options: str) -> None:
    from pyspark.sql import functions as f

    config = {**CONFIG, **SPECULATION} if options else CONFIG
    session = spark.session(master=master, config=config)
    frame = session.read.format("rocketstore").options(path=source, splitBytes="256k").load()
    rows = frame.select("physical_offset", "topic", "queue_id", "queue_offset", "body").collect()
    print(json.dumps({"rows": len(rows), "digest": digest(sorted(rows))}), flush=True)
    wanted = frame.select("topic", "queue_id", "body", "tags", "keys")
    print("writing", flush=True)
    slow = wanted.withColumn("tags", f.udf(slowly, "string")("tags"))
    given = dict(option.split("=") for option in options)
    slow.write.format("rocketstore").mode("append").options(path=target, **given).save()
    print("written", flush=True)
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
