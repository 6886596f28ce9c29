"""Exported classes and functions name `rocketstore` as their place, wherever they are written."""

from __future__ import annotations

import pickle

import pytest

import rocketstore
from tests.structure.public_api import exported

pytestmark = pytest.mark.quick

KINDS = [name for name in exported() if isinstance(getattr(rocketstore, name), type)]


@pytest.mark.parametrize("name", KINDS)
def test_a_class_says_that_it_is_of_the_package(name: str) -> None:
    kind = getattr(rocketstore, name)
    assert (kind.__module__, kind.__qualname__) == ("rocketstore", name)
    assert pickle.loads(pickle.dumps(kind)) is kind


def test_what_restores_a_value_is_found_in_the_package() -> None:
    for name, module in rocketstore._RESTORERS.items():
        restorer = getattr(rocketstore, name)
        assert restorer.__module__ == "rocketstore", module
        assert pickle.loads(pickle.dumps(restorer)) is restorer


def test_open_is_called_open() -> None:
    assert rocketstore.open.__name__ == "open"
