"""The options of a store, and where they come from."""

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
