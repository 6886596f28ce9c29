"""The options of a store, and where they come from. The entry is `StoreConfig`.

Read in this order:
    options: the table of all options: what each does, its unit, default and range, and whether the
        store keeps it. `help(rocketstore.StoreConfig)` and docs/options.md are made from it.
    store_config: `StoreConfig`, one frozen value, checked when it is built.
    typed_options: the same options as keyword arguments, for type checkers.
    rocketmq_options: RocketMQ's options and ours, one table.
    rocketmq: what a broker's settings become, and the Java properties file that has them.
    units: KiB to GiB, a day, spans between bounds, and `IgnoredOption`.

To add an option: a field in `options`, its type in `typed_options`, a row in
`rocketmq_options` where RocketMQ has it; then `python -m tests.docs.option_table` and `python -m
tests.docs.test_compatibility_doc`.

Every higher floor may import this package. It imports `values`, `errors` and the sizes of records
and units (`_native.format.constants`).
"""

from rocketstore.config.store_config import StoreConfig
from rocketstore.config.typed_options import LiveOptions, OpenOptions, StoreOptions, Visible
from rocketstore.config.units import IgnoredOption
from rocketstore.values.durability import Durability

__all__ = [
    "Durability",
    "IgnoredOption",
    "LiveOptions",
    "OpenOptions",
    "StoreConfig",
    "StoreOptions",
    "Visible",
]
