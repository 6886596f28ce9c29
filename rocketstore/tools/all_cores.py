"""Work that runs without Python's lock, on all cores."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["map_on_all_cores"]

MOST_THREADS = 8

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_on_all_cores(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """What `function` makes of the items, in their order, as `map` does; begins with the first `next`.

    What `function` raises comes where its result would; what has not begun by then, or when the iterator
    is closed, is not done. OSError (EAGAIN): the system has no thread left.
    """
    with ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1)) as threads:
        try:
            results = threads.map(function, items)
        except RuntimeError as error:
            raise OSError(errno.EAGAIN, f"no thread for a scan: {error}") from error
        yield from results
