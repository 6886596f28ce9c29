"""Options of RocketMQ's store: each release's own list beside ours."""

from __future__ import annotations

import pytest

from rocketstore.config.rocketmq_options import OPTIONS
from tests.interop.oracle import Oracle

pytestmark = pytest.mark.java


def test_every_option_is_known(oracle: Oracle) -> None:
    """`StoreConfig.from_rocketmq` calls none of them strange, and warns of none that has its default."""
    known = {name: option for option in OPTIONS for name in option.rocketmq}
    defaults: dict[str, str] = oracle.ask("options")["options"]
    assert set(defaults) <= set(known)
    wrong = {
        name: default
        for name, default in defaults.items()
        if known[name].harmless not in (None, default.lower())
    }
    assert wrong == {}
