"""What a scan, or a consumer that is asked for columns, hands out: some thousand messages as NumPy arrays.

Numbers are plain arrays. Texts that come again and again (topics, hosts) are codes into a tuple. Bytes lie one
behind the other in one buffer, with offsets: what Arrow wants, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rocketstore._native.columns import CODED, NUMBERS, TEXTS

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

#: Every column that a scan knows; but for `body_size` and `body_view` the names of `Message`.
COLUMNS: tuple[str, ...] = (*CODED, *NUMBERS, *TEXTS)
#: What `columns=None` means: everything that `Message` knows, bodies copied.
ALL: tuple[str, ...] = tuple(name for name in COLUMNS if name not in ("body_size", "body_view"))


class Column(Protocol):
    """One value a row."""

    def __len__(self) -> int: ...

    def tolist(self) -> list[Any]: ...


@dataclass(frozen=True, slots=True, eq=False)
class CodedColumn:
    """Topics or hosts. Row i has `values[codes[i]]`; `codes` are int32, and values may be unused."""

    codes: NDArray[np.int32]
    values: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.codes)

    def tolist(self) -> list[str]:
        values = self.values
        return [values[code] for code in self.codes.tolist()]


@dataclass(frozen=True, slots=True, eq=False)
class BytesColumn:
    """Bodies. Row i is `data[offsets[i]:offsets[i + 1]]`; `offsets` are int32, one more than rows, `data` is
    uint8."""

    offsets: NDArray[np.int32]
    data: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> bytes:
        row = range(len(self))[row]
        return self.data[self.offsets[row] : self.offsets[row + 1]].tobytes()

    def tolist(self) -> list[bytes]:
        data, ends = self.data.tobytes(), self.offsets.tolist()
        return [data[start:end] for start, end in itertools.pairwise(ends)]


@dataclass(frozen=True, slots=True, eq=False)
class TextColumn:
    """Tags, keys or message ids, as `BytesColumn`. A row without bytes is None: a message has no empty tags
    and no empty keys. `utf8` says that each row is UTF-8; what is not is replaced, as in `Message`."""

    offsets: NDArray[np.int32]
    data: NDArray[np.uint8]
    utf8: bool

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def tolist(self) -> list[str | None]:
        data, ends = self.data.tobytes(), self.offsets.tolist()
        return [
            data[start:end].decode("utf-8", "replace") if end > start else None
            for start, end in itertools.pairwise(ends)
        ]


@dataclass(frozen=True, slots=True, eq=False)
class PropertiesColumn:
    """Properties. Row i has the names and values `offsets[i]` … `offsets[i + 1] - 1`; no name twice in a row."""

    offsets: NDArray[np.int32]
    names: TextColumn
    values: TextColumn

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def tolist(self) -> list[dict[str, str]]:
        ends = self.offsets.tolist()
        pairs = list(zip(self.names.tolist(), self.values.tolist(), strict=True))
        rows = (pairs[start:end] for start, end in itertools.pairwise(ends))
        return [{str(name): str(value) for name, value in row} for row in rows]


@dataclass(frozen=True, slots=True, eq=False)
class ViewColumn:
    """Bodies that stay in the mapped file. `memory` is the part of it that holds them, mapped as long as it
    lives; row i is `memory[positions[i]:positions[i] + sizes[i]]`. `views` are Arrow's, 16 bytes a row."""

    positions: NDArray[np.int64]
    sizes: NDArray[np.int32]
    views: NDArray[np.uint8]
    memory: memoryview

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, row: int) -> memoryview:
        start = int(self.positions[row])
        return self.memory[start : start + int(self.sizes[row])]

    def tolist(self) -> list[bytes]:
        return [bytes(self[row]) for row in range(len(self))]


class Columns(Mapping[str, Any]):
    """Columns of one chunk of a scan, or of one poll, by name; all have `rows` values.

    `begin_offset` and `end_offset` say which part of the log was looked at, in physical offsets: of a poll,
    from its first record to behind its last.
    """

    __slots__ = ("_arrays", "begin_offset", "end_offset", "rows")

    def __init__(
        self, arrays: Mapping[str, Any], rows: int, begin_offset: int, end_offset: int
    ) -> None:
        self._arrays = arrays
        self.rows = rows
        self.begin_offset = begin_offset
        self.end_offset = end_offset

    def __getitem__(self, name: str) -> Any:
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


def column_names(names: Iterable[str] | None, known: tuple[str, ...] = COLUMNS) -> tuple[str, ...]:
    """The columns that are wanted, each once. Raises ValueError or TypeError."""
    if names is None:
        return ALL
    if isinstance(names, str):
        raise TypeError(f"columns = {names!r}: several names")
    found = tuple(dict.fromkeys(names))
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
