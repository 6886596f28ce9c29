"""Jobs over whole stores. The work is done where the log is read; little comes back to the driver.

    from rocketstore.spark import jobs
    jobs.stats(session, "data/orders").show()

The same from a shell: `rocketstore spark stats data/orders`. A job a module, but for those that
append to a store:

- `audit` tests every record; `stats` counts messages by topic, queue and hour; `export` writes
  Parquet.
- `writing`: `import_` appends Parquet; `compact` appends the latest message of each key; `replay`
  appends messages once more.
- `rebuild` makes queues and index again.

They share `reading` (frames from a store, and parts of a log as tasks) and `parquet_files` (files
of an export). Jobs that append leave out topics of RocketMQ's own services.

`cli` runs the jobs; `spark.frame` uses `reading`. A job may import `spark.source` and
`spark.sink`, and no other job.
"""

from rocketstore.spark.jobs.audit import audit
from rocketstore.spark.jobs.export import export
from rocketstore.spark.jobs.rebuild import rebuild
from rocketstore.spark.jobs.stats import stats
from rocketstore.spark.jobs.writing import compact, import_, parquet, replay

__all__ = ["audit", "compact", "export", "import_", "parquet", "rebuild", "replay", "stats"]
