"""Jobs over whole stores. Heavy work is done where the log is read, and brings back little.

    from rocketstore.spark import jobs
    jobs.stats(session, "data/orders").show()

The same from a shell: `rocketstore spark stats data/orders`.
"""

from rocketstore.spark.jobs.audit import audit
from rocketstore.spark.jobs.compact import compact
from rocketstore.spark.jobs.export import export
from rocketstore.spark.jobs.import_ import import_, parquet
from rocketstore.spark.jobs.rebuild import rebuild
from rocketstore.spark.jobs.replay import replay
from rocketstore.spark.jobs.stats import stats

__all__ = ["audit", "compact", "export", "import_", "parquet", "rebuild", "replay", "stats"]
