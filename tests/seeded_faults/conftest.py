"""In a whole run as many faults are planted as there is time for, in an order by chance: others each time."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.conftest import SEED
from tests.support import campaign

NAME = "planted faults"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if campaign.seconds_given(NAME) is not None:
        places = [at for at, item in enumerate(items) if is_planted(item)]
        order = [items[at] for at in places]
        random.Random(config.stash[SEED]).shuffle(order)
        for at, item in zip(places, order, strict=True):
            items[at] = item


def is_planted(item: pytest.Item) -> bool:
    return "seeded_faults" in item.path.parts and item.get_closest_marker("proof") is not None


@pytest.fixture(autouse=True)
def _while_there_is_time(request: pytest.FixtureRequest) -> Iterator[None]:
    if not is_planted(request.node):
        yield
        return
    with campaign.one_of_many(NAME) as goes_on:
        if not goes_on:
            pytest.skip(f"the seconds of {NAME} are used (--seed={request.config.stash[SEED]})")
        yield
