"""The mark of exported classes: they say that they are of `rocketstore`, wherever they are
written."""

from __future__ import annotations

from typing import TypeVar

__all__ = ["public"]

Kind = TypeVar("Kind", bound=type)


def public(kind: Kind) -> Kind:
    """Names `rocketstore` as the module of a class, so that pickles survive a move of its code."""
    kind.__module__ = "rocketstore"
    return kind
