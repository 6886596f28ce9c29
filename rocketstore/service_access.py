"""What `Store` shows of its services. Each is loaded when it is first asked for."""

from __future__ import annotations

from rocketstore.store_info import StoreFacts

__all__ = ["ServiceAccess"]


class ServiceAccess(StoreFacts):
    """The part of `Store` that leads to the services."""
