"""Queries on a busy machine."""

from __future__ import annotations

from collections.abc import Callable

#: What Spark says of a Python process that did not start within its 10 seconds.
BUSY = "connect back"


def patiently(run: Callable[[], None], attempts: int = 4) -> None:
    """Runs a query that may be run again: Spark gives a Python process 10 seconds to start, which a
    busy machine does not always keep; nothing can be set."""
    for attempt in range(attempts):
        try:
            return run()
        except Exception as error:
            if BUSY not in str(error) or attempt == attempts - 1:
                raise
    return None
