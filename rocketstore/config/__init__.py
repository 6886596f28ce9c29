"""The options of a store, and where they come from."""

from rocketstore.config.store_config import StoreConfig
from rocketstore.config.typed_options import Visible
from rocketstore.config.units import IgnoredOption
from rocketstore.values.durability import Durability

__all__ = ["Durability", "IgnoredOption", "StoreConfig", "Visible"]
