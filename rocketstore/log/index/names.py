"""How RocketMQ names its index files: yyyyMMddHHmmssSSS of their creation, in local time."""

from __future__ import annotations

import os
import re
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

__all__ = ["following_name", "is_index_name", "names_in", "new_name"]

NAME: Final = re.compile(r"[0-9]{17}")


def is_index_name(name: str) -> bool:
    return NAME.fullmatch(name) is not None


def names_in(directory: Path) -> list[str]:
    """The names of all index files, whether they can be opened or not; empty without the
    directory."""
    try:
        return [name for name in os.listdir(directory) if is_index_name(name)]
    except FileNotFoundError:
        return []


def new_name(now_ms: int, newest: str) -> str:
    """The name of a file made at `now_ms`; it sorts after `newest` even if the clock fell."""
    seconds, milliseconds = divmod(now_ms, 1000)
    name = time.strftime("%Y%m%d%H%M%S", time.localtime(seconds)) + f"{milliseconds:03d}"
    return name if name > newest else following_name(newest)


def following_name(name: str) -> str:
    """The name of the next millisecond. A name that is no date counts up: RocketMQ only sorts
    names."""
    try:
        moment = datetime.strptime(name + "000", "%Y%m%d%H%M%S%f") + timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        return f"{int(name) + 1:017d}"
    return moment.strftime("%Y%m%d%H%M%S") + f"{moment.microsecond // 1000:03d}"
