"""Stores as tables and streams of Apache Spark.

    from rocketstore import spark

    session = spark.session()
    orders = session.read.format("rocketstore").option("path", "data/orders").load()

Needs `rocketstore[spark]`. Importing this package imports neither pyspark nor pyarrow.
"""

from rocketstore.spark.serving import serve
from rocketstore.spark.session import session

__all__ = ["serve", "session"]
