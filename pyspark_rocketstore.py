"""Spark looks for data sources in modules whose name begins with `pyspark_` and registers their
`DefaultSource`: with rocketstore installed, `spark.read.format("rocketstore")` works as it is.

Nothing heavy is imported here: Spark hides the cause when such a module cannot be imported.
"""

from rocketstore.spark.data_source import RocketStoreDataSource as DefaultSource

__all__ = ["DefaultSource"]
