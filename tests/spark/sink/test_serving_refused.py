"""What the system refuses to who serves a store: tried again, for it passes."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.spark import serve
from rocketstore.spark.sink.commit import commit
from tests.spark.sink.test_committer import some_bodies
from tests.spark.sink.test_serving import check
from tests.spark.staged import make, stage_bodies


@pytest.mark.parametrize("failing", ["rename", "answer", "look"])
def test_a_full_disk_ends_no_serving(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """Its room comes back; until then sinks wait, and nothing is appended twice."""
    from rocketstore.spark.sink import serve as serving

    monkeypatch.setattr(serving, "RETRY_S", 0.01)
    root = tmp_path / "s"
    make(root)
    bodies = some_bodies(rng, "a", 30)
    name = {"rename": "take", "answer": "give_answer", "look": "waiting"}[failing]
    working, refused = getattr(serving, name), []

    def refuse(*given: Any) -> Any:
        if len(refused) < 3:
            refused.append(given)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return working(*given)

    monkeypatch.setattr(serving, name, refuse)
    with rocketstore.open(root, durability="os") as store, serve(store) as served:
        appended = commit(str(root), "query", 0, [stage_bodies(root, "1", bodies)])
        assert appended == (failing != "answer")  # the second look finds it done
        assert served.alive
    assert len(refused) == 3
    check(root, bodies, 0)
