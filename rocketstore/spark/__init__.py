"""Stores as tables and streams of Apache Spark.

    from rocketstore import spark

    session = spark.session()
    orders = session.read.format("rocketstore").option("path", "data/orders").load()
    paid = spark.read(session, "data/orders", where="topic = 'orders' and tags = 'paid'")

Needs `rocketstore[spark]`. Importing this package imports neither pyspark nor pyarrow.
"""

from rocketstore.spark.frame import read
from rocketstore.spark.session import session
from rocketstore.spark.write.serve import serve

__all__ = ["read", "serve", "session"]
