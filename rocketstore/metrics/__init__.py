"""What open stores count, for Prometheus. Needs `rocketstore[metrics]`.

    from prometheus_client import REGISTRY, start_http_server

    REGISTRY.register(StoreCollector({"orders": store}))
    start_http_server(9309)

- `store_collector`: `StoreCollector` asks the stores when Prometheus asks, and keeps no numbers
  itself.

Names of metrics are listed in docs/metrics.md. A store that is closed shows as `rocketstore_open
0`. Nothing imports this package but users; it imports exported names of the library.
"""

from __future__ import annotations

try:
    from rocketstore.metrics.store_collector import StoreCollector
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "metrics need prometheus_client: pip install 'rocketstore[metrics]'",
        name="prometheus_client",
    ) from error

__all__ = ["StoreCollector"]


def __dir__() -> list[str]:
    """What completion shows: no modules."""
    return sorted(__all__)
