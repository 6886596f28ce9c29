"""The end of a store: every step is taken, whatever failed before it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import ParamSpec

__all__ = ["Steps"]

logger = logging.getLogger(__name__)
_Arguments = ParamSpec("_Arguments")


class Steps:
    """Keeps the first error of several steps, so that one that fails leaves nothing open or locked."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def take(
        self,
        act: Callable[_Arguments, object],
        *arguments: _Arguments.args,
        **named: _Arguments.kwargs,
    ) -> None:
        try:
            act(*arguments, **named)
        except BaseException as error:
            if self.error is None:
                self.error = error
            else:
                logger.error("another step of the end failed, too: %r", error)

    def end(self) -> None:
        """Raises the first error, if there was one."""
        if self.error is not None:
            raise self.error
