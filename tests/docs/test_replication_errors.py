"""The table of errors in api.md has those of replication."""

from __future__ import annotations

from pathlib import Path

import pytest

import rocketstore

PAGE = Path(__file__).parents[2] / "docs" / "api.md"


@pytest.mark.parametrize(
    "name",
    [
        "ReplicaTimeoutError",
        "ReplicasUnavailableError",
        "ReplicaStoreError",
        "FencedError",
        "DivergedError",
        "ReplicationError",
    ],
)
def test_an_error_has_its_row(name: str) -> None:
    assert issubclass(getattr(rocketstore, name), rocketstore.RocketStoreError)
    assert f"\n| `{name}` |" in PAGE.read_text()
