"""Errors that are kept, or raised a second time.

An exception that was raised has a traceback, its frames have local variables, and these may hold
mapped files: a kept exception keeps the files, also after a trim. So a part that keeps
an error keeps a copy without frames, and raises a copy of that.
"""

from __future__ import annotations

import copy
from typing import Final, TypeVar

__all__ = ["without_frames"]

_Error = TypeVar("_Error", bound=BaseException)

#: Causes that are copied with their error, one below the other, count.
CAUSES: Final = 8


def without_frames(error: _Error, causes: int = CAUSES) -> _Error:
    """A copy of an error, with its notes and its causes, that holds no frames."""
    try:
        made = copy.copy(error)
    except Exception:  # an exception of a program may refuse to be copied
        made = error
    if type(made) is not type(error):
        made = error
    made.__traceback__ = made.__context__ = None
    cause = error.__cause__
    made.__cause__ = None if cause is None or causes == 0 else without_frames(cause, causes - 1)
    made.__suppress_context__ = True
    return made
