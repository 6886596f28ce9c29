"""The options of a store, and where they come from."""

from rocketstore.config.store_config import Durability, IgnoredOption, StoreConfig

__all__ = ["Durability", "IgnoredOption", "StoreConfig"]
