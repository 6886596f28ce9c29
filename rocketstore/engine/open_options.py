"""What `rocketstore.open` was asked for, beside the path and the mode."""

from __future__ import annotations

from dataclasses import dataclass

from rocketstore.config import StoreConfig
from rocketstore.values.callbacks import Listener, Progress

__all__ = ["Options"]


@dataclass(frozen=True, slots=True)
class Options:
    """The arguments of one open."""

    config: StoreConfig
    force: bool = False
    on_arrival: Listener | None = None
    on_recovery: Progress | None = None
    untrusted: bool = False
