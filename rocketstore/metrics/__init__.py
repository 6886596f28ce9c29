"""What open stores count, for Prometheus. Needs `rocketstore[metrics]`.

from prometheus_client import REGISTRY, start_http_server

REGISTRY.register(StoreCollector({"orders": store}))
start_http_server(9309)
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
