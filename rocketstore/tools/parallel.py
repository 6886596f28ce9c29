"""Work that runs without Python's lock, on all cores."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from rocketstore.log.recovery.parallel_scan import scan_threads
from rocketstore.values.threads import Pool

__all__ = ["map_on_all_cores"]

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_on_all_cores(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """What `function` makes of the items, in their order, as `map` does; begins with the first
    `next`.

    What `function` raises comes where its result would; what has not begun by then, or when the
    iterator is closed, is not done. OSError (EAGAIN): the system has no thread left.
    """
    with Pool(scan_threads()) as threads:
        try:
            results = threads.map(function, items)
        except RuntimeError as error:
            raise OSError(errno.EAGAIN, f"no thread for a scan: {error}") from error
        yield from results
