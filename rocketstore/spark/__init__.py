"""Stores as tables and streams of Apache Spark. Needs `rocketstore[spark]`.

    from rocketstore import spark

    session = spark.session()
    orders = session.read.format("rocketstore").option("path", "data/orders").load()
    paid = spark.read(session, "data/orders", where="topic = 'orders' and tags = 'paid'")

Importing this package imports neither pyspark nor pyarrow. Read in this order:

- `session` makes a SparkSession, with a Java from `java`; `frame` has `read`; `foreach`
  writes micro-batches; `lag` watches streams; `submit` is the program for spark-submit.
- `data_source` is what Spark asks. It hands reading to `source`, writing to `sink`.
- `source`, `sink` and `jobs` are packages: what reads, what writes, and jobs over whole stores.
- `errors` gives every error a code; `option_checks` and `stores` check what users give; `stores`
  opens a store to read.
- `schema` names the columns of each view; `batches` and `decompression` make Arrow batches in
  Spark's types; `timestamps` turns times of records into datetimes.

Only `cli` imports this package, late. It imports exported names of the library and `arrow`.
"""

from rocketstore.spark.foreach import batch_writer
from rocketstore.spark.frame import read
from rocketstore.spark.lag import StreamLag, lag_listener
from rocketstore.spark.session import register, session
from rocketstore.spark.sink.serve import serve
from rocketstore.spark.source.checkpoints import starting_offsets

__all__ = [
    "StreamLag",
    "batch_writer",
    "lag_listener",
    "read",
    "register",
    "serve",
    "session",
    "starting_offsets",
]
