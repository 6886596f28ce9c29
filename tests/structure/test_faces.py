"""Packages whose names faces may use have each name that they export, and no others."""

from __future__ import annotations

import importlib

import pytest

from tests.structure.floors import OPEN_TO_FACES

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
