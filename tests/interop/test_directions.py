"""Each store reads what the other one wrote, random messages of every kind."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import rocketstore
from tests.interop.exchange import Steps, put_ours, put_theirs, served
from tests.interop.messages import SMALL, batches, config_of, messages
from tests.interop.oracle import Oracle
from tests.interop.views import Tally, of_oracle, of_ours

pytestmark = pytest.mark.java

EXAMPLES = settings(
    max_examples=6,
    deadline=None,
    database=None,
    # A shrink would take minutes: every example starts and stops a RocketMQ.
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
STEPS = st.lists(st.one_of(messages(), messages(), messages(), batches()), min_size=1, max_size=60)


@contextmanager
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="interop-") as path:
        yield Path(path) / "store"


@EXAMPLES
@given(steps=STEPS)
def test_they_write_we_read(oracle: Oracle, tally: Tally, steps: Steps) -> None:
    with directory() as path:
        with oracle.open(path, SMALL) as theirs:
            acked = put_theirs(theirs, steps)
            theirs.settle()
            view = of_oracle(theirs.dump())
            served(tally, acked, view)
            with rocketstore.open(path, "r", config=config_of(SMALL)) as live:
                tally.same(view, of_ours(live))
        for mode in ("r", "rw"):
            with rocketstore.open(path, mode, config=config_of(SMALL)) as ours:
                tally.same(view, of_ours(ours))


@EXAMPLES
@given(steps=STEPS)
def test_we_write_they_read(oracle: Oracle, tally: Tally, steps: Steps) -> None:
    with directory() as path:
        with rocketstore.open(path, config=config_of(SMALL)) as ours:
            acked = put_ours(ours, steps)
            ours.wait_flushed(ours.end_offset)
        with rocketstore.open(path, "r", config=config_of(SMALL)) as ours:
            view = of_ours(ours)
            served(tally, acked, view)
        oracle.warnings()
        with oracle.open(path, SMALL) as theirs:
            tally.same(of_oracle(theirs.dump()), view)
