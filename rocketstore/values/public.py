"""The mark of exported classes and functions: they say that they are of `rocketstore`, wherever
they are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["public"]

Kind = TypeVar("Kind", bound=Callable[..., Any])


def public(kind: Kind) -> Kind:
    """Names `rocketstore` as the module of a class or a function, so that help shows the public place and pickles
    survive a move of the code."""
    named: Any = kind
    named.__module__ = "rocketstore"
    return kind
