"""What tests of consumers share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketstore.engine import phases
from tests.support.consumer_setting import Setting


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Setting]:
    made = Setting(tmp_path / "store")
    yield made
    made.source.close()


@pytest.fixture
def unlooked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opens do not compare queues with the log, as where they look at a part of a large log only:
    what is missing shows when it is used."""
    monkeypatch.setattr(phases, "refill_queues", lambda report, *_, **__: report)
