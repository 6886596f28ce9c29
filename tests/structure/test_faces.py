"""Packages whose names faces may use have each name that they export; tests reach insides by one door."""

from __future__ import annotations

import importlib
import re

import pytest

from tests.structure.floors import OPEN_TO_FACES
from tests.structure.source_tree import shown, sources, text_of

pytestmark = pytest.mark.quick

#: Those that need pyarrow, or prometheus_client.
NEEDS = {"rocketstore.arrow": "pyarrow", "rocketstore.metrics": "prometheus_client"}


@pytest.mark.parametrize("package", sorted(OPEN_TO_FACES))
def test_packages_have_the_names_that_they_export(package: str) -> None:
    pytest.importorskip(NEEDS.get(package, "rocketstore"))
    module = importlib.import_module(package)
    exported = getattr(module, "__all__", ())
    assert [name for name in exported if not hasattr(module, name)] == []
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = module.nothing_of_the_kind


def test_insides_of_a_store_are_behind_one_door() -> None:
    """`engine_of` and `parts`, which have types: a field that gets another name is found in one place."""
    reach = re.compile(r"(?<!self)[.]_engine\b")  # the planted faults have lines of the product
    found = [shown(p) for p in sources("tests", suffixes=(".py",)) if reach.search(text_of(p))]
    assert found == ["tests/support/small_store.py"]
