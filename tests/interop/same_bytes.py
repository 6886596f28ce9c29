"""Files that have to be equal. `assert a == b` on megabytes would look for a readable difference for minutes."""

from __future__ import annotations

from pathlib import Path

__all__ = ["assert_same_bytes"]

SHOWN = 32


def assert_same_bytes(ours: Path, theirs: Path, what: str = "") -> None:
    """Names the first byte that differs."""
    found, wanted = ours.read_bytes(), theirs.read_bytes()
    if found != wanted:
        at = next(
            (n for n, (a, b) in enumerate(zip(found, wanted, strict=False)) if a != b),
            min(len(found), len(wanted)),
        )
        near = slice(max(at - 4, 0), at + SHOWN)
        raise AssertionError(
            f"{what or ours.name} has {len(found)} bytes, {theirs.name} {len(wanted)}: at {at} "
            f"ours is {found[near].hex(' ')}, RocketMQ's {wanted[near].hex(' ')}"
        )
