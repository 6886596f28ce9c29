"""Which messages a filter takes: RocketMQ's SQL92 expressions over the properties of messages.

`sql.sql_filter` is the entry: it parses an expression once and gives a `SqlFilter`, which says of a
message's properties whether they match. Expressions of tags (`a || b`, `*`) are values:
`values.record_filter`.

Read in this order:
    nodes: what an expression is made of, and what RocketMQ refuses to make.
    syntax: the parser, and errors of syntax.
    compare: how two values compare, as RocketMQ's Java does it.
    sql: `SqlFilter`: an expression as nested functions, each made once. It decides everything.
    program: the same for native code (`_native.format.filter_program`), which decides most, faster,
        and asks `SqlFilter` where it is not sure.

Every higher floor may import this package; it imports `errors`, `values` and
`_native.format`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketstore.values.lazy import first_use

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketstore._native.format.message import Message
    from rocketstore.filters.program import program_of
    from rocketstore.filters.sql import SqlFilter, sql_filter

__all__ = ["SqlFilter", "matching_of", "program_of", "sql_filter"]


def matching_of(where: str | None) -> Callable[[list[Message]], list[Message]] | None:
    """What leaves of messages those that match an expression; None for all. Loads nothing then."""
    if where is None:
        return None
    from rocketstore.filters.program import program_of
    from rocketstore.filters.sql import sql_filter

    return program_of(sql_filter(where)).matching


if not TYPE_CHECKING:  # a type checker would take any name for one of this package
    __getattr__ = first_use(__name__, {"program": "program_of", "sql": "SqlFilter sql_filter"})
