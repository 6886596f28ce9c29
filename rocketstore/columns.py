"""Messages as columns of NumPy arrays: what a scan and `Consumer.poll_columns` give.

Numbers are plain arrays. Topics and hosts, which repeat, are codes into a tuple of texts. Bytes lie
one after the other in one buffer, with offsets, as in Arrow. Every column has a length, rows by
number and by slice, and `tolist`, which is the fast way to all rows.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Literal,
    Protocol,
    SupportsIndex,
    TypeVar,
    overload,
)

import numpy as np

from rocketstore._native.format.column_scanner import CODED, NUMBERS, TEXTS
from rocketstore.values.arguments import texts
from rocketstore.values.java_text import java_text
from rocketstore.values.public import public

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "COLUMNS",
    "BytesColumn",
    "CodedColumn",
    "Column",
    "Columns",
    "PropertiesColumn",
    "TextColumn",
    "ViewColumn",
    "column_names",
    "columns_of",
]

T = TypeVar("T")

#: Every column that a scan knows; but for `body_size` and `body_view` the names of `Message`.
COLUMNS: tuple[str, ...] = (*CODED, *NUMBERS, *TEXTS)
#: What `columns=None` means: everything that `Message` knows, bodies copied.
ALL: tuple[str, ...] = tuple(name for name in COLUMNS if name not in ("body_size", "body_view"))


#: Names of columns by the type of their values; a test compares them with the scanner's.
Int64Name = Literal[
    "queue_offset",
    "physical_offset",
    "tags_code",
    "born_timestamp_ms",
    "store_timestamp_ms",
    "prepared_transaction_offset",
]
Int32Name = Literal["queue_id", "size", "body_size", "flag", "reconsume_times"]
CodedName = Literal["topic", "born_host", "store_host"]
TextName = Literal["tags", "keys", "message_id"]


class Column(Protocol):
    """One value a row."""

    def __len__(self) -> int: ...

    def __getitem__(self, row: Any, /) -> Any: ...

    def __iter__(self) -> Iterator[Any]: ...

    def tolist(self) -> list[Any]: ...


class Rows(Generic[T]):
    """What columns that are no arrays have in common: rows by number, by slice, one after the
    other."""

    __slots__ = ()

    def __len__(self) -> int:
        raise NotImplementedError

    def row(self, at: int) -> T:
        """Row `at`, 0 … len - 1, not checked."""
        raise NotImplementedError

    @overload
    def __getitem__(self, row: SupportsIndex) -> T: ...
    @overload
    def __getitem__(self, row: slice) -> list[T]: ...
    def __getitem__(self, row: SupportsIndex | slice) -> T | list[T]:
        """One row, from the end where `row` is negative; of a slice, the list of its rows."""
        rows = range(len(self))
        if isinstance(row, slice):
            return [self.row(at) for at in rows[row]]
        try:
            number = operator.index(row)
        except TypeError:
            kind = type(row).__name__
            raise TypeError(f"row = {row!r}: an int or a slice, not {kind}") from None
        try:
            return self.row(rows[number])
        except IndexError:
            raise IndexError(f"row = {number}: the column has {len(rows)} rows") from None

    def __iter__(self) -> Iterator[T]:
        return map(self.row, range(len(self)))


@dataclass(frozen=True, slots=True, eq=False)
class CodedColumn(Rows[str]):
    """Topics or hosts. Row i has `values[codes[i]]`; `codes` are int32, and values may be
    unused."""

    codes: NDArray[np.int32]
    values: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.codes)

    def row(self, at: int) -> str:
        return self.values[int(self.codes[at])]

    def tolist(self) -> list[str]:
        values = self.values
        return [values[code] for code in self.codes.tolist()]


@dataclass(frozen=True, slots=True, eq=False)
class BytesColumn(Rows[bytes]):
    """Bodies. Row i is `data[offsets[i]:offsets[i + 1]]`; `offsets` are int32, one more than rows,
    `data` is uint8."""

    offsets: NDArray[np.int32]
    data: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def row(self, at: int) -> bytes:
        return self.data[self.offsets[at] : self.offsets[at + 1]].tobytes()

    def tolist(self) -> list[bytes]:
        data, ends = self.data.tobytes(), self.offsets.tolist()
        return [data[start:end] for start, end in itertools.pairwise(ends)]


@dataclass(frozen=True, slots=True, eq=False)
class TextColumn(Rows[str | None]):
    """Tags, keys or message ids, as `BytesColumn`. A row without bytes is None: a message has no
    empty tags and no empty keys. `utf8` says that each row is UTF-8; what is not is replaced, as in
    `Message`."""

    offsets: NDArray[np.int32]
    data: NDArray[np.uint8]
    utf8: bool

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def row(self, at: int) -> str | None:
        start, end = self.offsets[at], self.offsets[at + 1]
        return java_text(self.data[start:end].tobytes()) if end > start else None

    def tolist(self) -> list[str | None]:
        data, ends = self.data.tobytes(), self.offsets.tolist()
        return [
            java_text(data[start:end]) if end > start else None
            for start, end in itertools.pairwise(ends)
        ]


@dataclass(frozen=True, slots=True, eq=False)
class PropertiesColumn(Rows[dict[str, str]]):
    """Properties. Row i has the names and values `offsets[i]` … `offsets[i + 1] - 1`; no name twice
    in a row."""

    offsets: NDArray[np.int32]
    names: TextColumn
    values: TextColumn

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def row(self, at: int) -> dict[str, str]:
        pairs = range(self.offsets[at], self.offsets[at + 1])
        return {str(self.names.row(pair)): str(self.values.row(pair)) for pair in pairs}

    def tolist(self) -> list[dict[str, str]]:
        ends = self.offsets.tolist()
        pairs = list(zip(self.names.tolist(), self.values.tolist(), strict=True))
        rows = (pairs[start:end] for start, end in itertools.pairwise(ends))
        return [{str(name): str(value) for name, value in row} for row in rows]


@dataclass(frozen=True, slots=True, eq=False)
class ViewColumn(Rows[memoryview]):
    """Bodies that stay in the mapped file. `memory` is the part of it that holds them, mapped as
    long as it lives; row i is `memory[positions[i]:positions[i] + sizes[i]]`. `views` are Arrow's,
    16 bytes a row."""

    positions: NDArray[np.int64]
    sizes: NDArray[np.int32]
    views: NDArray[np.uint8]
    memory: memoryview

    def __len__(self) -> int:
        return len(self.positions)

    def row(self, at: int) -> memoryview:
        start = int(self.positions[at])
        return self.memory[start : start + int(self.sizes[at])]

    def tolist(self) -> list[bytes]:
        return [bytes(view) for view in self]


@public
class Columns(Mapping[str, Column]):
    """Columns of one chunk of a scan, or of one poll, by name; all have `rows` values.

    `begin_offset` and `end_offset` say which part of the log was read, in physical offsets. Of a
    poll it begins at the first record and ends after the last.
    """

    __slots__ = ("_arrays", "begin_offset", "end_offset", "rows")
    # As its columns: equal to itself alone. A mapping would ask arrays whether they are true.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __init__(
        self, arrays: Mapping[str, Column], rows: int, begin_offset: int, end_offset: int
    ) -> None:
        self._arrays = arrays
        self.rows = rows
        self.begin_offset = begin_offset
        self.end_offset = end_offset

    @overload
    def __getitem__(self, name: Int64Name) -> NDArray[np.int64]: ...
    @overload
    def __getitem__(self, name: Int32Name) -> NDArray[np.int32]: ...
    @overload
    def __getitem__(self, name: Literal["sys_flag"]) -> NDArray[np.uint32]: ...
    @overload
    def __getitem__(self, name: CodedName) -> CodedColumn: ...
    @overload
    def __getitem__(self, name: Literal["body"]) -> BytesColumn: ...
    @overload
    def __getitem__(self, name: Literal["body_view"]) -> ViewColumn: ...
    @overload
    def __getitem__(self, name: TextName) -> TextColumn: ...
    @overload
    def __getitem__(self, name: Literal["properties"]) -> PropertiesColumn: ...
    @overload
    def __getitem__(self, name: str) -> Column: ...
    def __getitem__(self, name: str) -> Any:
        """The column of that name; KeyError for one that was not asked for."""
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        return (
            f"<rocketstore.Columns {self.rows} rows of [{self.begin_offset}, {self.end_offset}): "
            f"{', '.join(self._arrays)}>"
        )


#: Names of columns in Arrow and in Spark → names here.
OTHER_NAMES: Final = {
    "born_timestamp": "born_timestamp_ms",
    "store_timestamp": "store_timestamp_ms",
    "msg_id": "message_id",
}


def column_names(names: Iterable[str] | None, known: tuple[str, ...] = COLUMNS) -> tuple[str, ...]:
    """The columns that are wanted, each once. Raises ValueError or TypeError."""
    if names is None:
        return ALL
    if isinstance(names, str):
        raise TypeError(f"columns = {names!r}: expected several names")
    asked = texts("columns", names, "names of columns")
    found = tuple(dict.fromkeys(OTHER_NAMES.get(name, name) for name in asked))
    if "body_view" in found and "body_view" not in known:
        raise ValueError(
            "columns = ['body_view']: only a scan has it, which reads one file after the other; "
            "messages of a poll may lie in several files: take 'body', or rocketstore.scan"
        )
    unknown = [name for name in found if name not in known]
    if unknown:
        raise ValueError(f"columns = {unknown!r}: there are {', '.join(known)}")
    return found


def columns_of(found: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """What the native scanner gives, in the shapes of this module, in the order of `names`."""
    return {name: _column(name, found[name]) for name in names}


def _column(name: str, found: Any) -> Any:
    if name in NUMBERS:
        return found
    if name in CODED:
        return CodedColumn(*found)
    if name == "body":
        return BytesColumn(*found)
    if name == "body_view":
        positions, views, memory, first = found
        sizes = views.view(np.int32)[::4].copy()
        return ViewColumn(positions - first, sizes, views, memory)
    if name == "properties":
        offsets, names, values = found
        return PropertiesColumn(offsets, TextColumn(*names), TextColumn(*values))
    return TextColumn(*found)
