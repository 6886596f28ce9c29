"""Arguments that were renamed before the first release, or that other libraries have: the error
for such a name says the one to use."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable
from typing import Final, Never

__all__ = ["refuse_arguments"]

#: Function, then old name, then what a caller writes today.
NEW_NAMES: Final[dict[str, dict[str, str]]] = {
    "scan": {
        "start_offset": "begin_offset=",
        "start_timestamp": "begin=",
        "end_timestamp": "end=",
    },
    "seek": {"to": "offset= or when="},
    "result": {"timeout": "timeout_s="},
    "exception": {"timeout": "timeout_s="},
    "poll": {"timeout": "timeout_s="},
    "poll_columns": {"timeout": "timeout_s="},
    "follow": {"timeout": "timeout_s="},
    "trim": {"before": "before_offset= or before_time="},
}


def refuse_arguments(
    function: Callable[..., object], given: Iterable[str], *, known: Iterable[str] = ()
) -> Never:
    """Refuses the keywords that `function` does not have; `known` are more that it has.

    Raises:
        TypeError: always. It names the new keyword, or a known one that looks like the given one.
    """
    name = function.__name__
    unknown = next(iter(given))
    new = NEW_NAMES.get(name, {}).get(unknown)
    if new is not None:
        raise TypeError(f"{name}() has no argument {unknown!r}: use {new}")
    parameters = inspect.signature(function).parameters.values()
    names = [*known, *(each.name for each in parameters if each.kind is each.KEYWORD_ONLY)]
    close = difflib.get_close_matches(unknown, names, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise TypeError(f"{name}() has no argument {unknown!r}{hint}")
