"""The options of a store, and where they come from."""

from rocketstore.config.store_config import Durability, StoreConfig
from rocketstore.config.units import IgnoredOption

__all__ = ["Durability", "IgnoredOption", "StoreConfig"]
