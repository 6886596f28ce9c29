"""An argument that was renamed before the first release: the error names the new one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore

CALLS: list[tuple[str, str, Callable[[rocketstore.Store], object]]] = [
    ("start_offset", "use begin_offset=", lambda s: old(rocketstore.scan)(s, start_offset=0)),
    ("start_timestamp", "use begin=", lambda s: old(rocketstore.scan)(s, start_timestamp=0)),
    ("end_timestamp", "use end=", lambda s: old(rocketstore.scan)(s, end_timestamp=0)),
    ("to", "use offset= or when=", lambda s: old(s.consumer("t").seek)(to=0)),
    ("timeout", "use timeout_s=", lambda s: old(s.writer("t").submit(b"").result)(timeout=1)),
    ("timeout", "use timeout_s=", lambda s: old(s.writer("t").submit(b"").exception)(timeout=1)),
    ("before", "use before_offset= or before_time=", lambda s: old(s.trim)(before=0)),
]


def old(function: Any) -> Any:
    """`function` without its type: a type checker refuses the old names, too."""
    return function


@pytest.mark.parametrize(("name", "advice", "call"), CALLS, ids=[row[0] for row in CALLS])
def test_an_old_name_says_the_new_one(
    name: str, advice: str, call: Callable[[rocketstore.Store], object], tmp_path: Path
) -> None:
    with (
        rocketstore.open(tmp_path / "store", commit_log_file_size_bytes=1 << 16) as store,
        pytest.raises(TypeError) as caught,
    ):
        call(store)
    assert f"has no argument {name!r}: {advice}" in str(caught.value)
