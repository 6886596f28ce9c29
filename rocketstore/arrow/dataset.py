"""A scan as a dataset of pyarrow: its reader says which columns and rows, and the scan reads no
other columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
import pyarrow.dataset as pads

from rocketstore.arrow.batches import coded_batch, coded_schema_of

if TYPE_CHECKING:
    from rocketstore import Scan

__all__ = ["ScanDataset"]


class ScanDataset(pads.Dataset):  # type: ignore[misc]  # pyarrow has no stubs
    """Made by `Scan.to_dataset`. Each read of it iterates over the scan once more.

    Topics and hosts are dictionaries. What needs files or fragments of a dataset does not work:
    there are none.
    """

    def __init__(self, scan: Scan, where: pads.Expression | None = None) -> None:
        """`where`: only rows that fulfil it. pyarrow's own constructor makes nothing."""
        self._scan = scan
        self._where = where

    @property
    def schema(self) -> pa.Schema:
        """Names and types of all columns."""
        return coded_schema_of(self._scan.columns)

    def scanner(
        self,
        columns: Any = None,
        filter: pads.Expression | None = None,  # pyarrow's name for it
        **options: Any,
    ) -> Any:
        """A scanner of pyarrow over some columns: names, or expressions by name. `options` are
        pyarrow's; those that speak of fragments have no effect. Of names alone it is something that
        has all that a scanner has."""
        wanted = self._both(filter)
        known = {"batch_size", "use_threads", "memory_pool"}
        kept = {name: value for name, value in options.items() if name in known}
        if wanted is None and "batch_size" not in kept and self._are_names(columns):
            return _NamesScanner(self, tuple(columns), kept)
        return pads.Scanner.from_batches(
            self._reader(self._needed(columns, wanted)), columns=columns, filter=wanted, **kept
        )

    def filter(self, expression: pads.Expression) -> ScanDataset:
        """The same with a condition more."""
        return ScanDataset(self._scan, self._both(expression))

    def _both(self, more: pads.Expression | None) -> pads.Expression | None:
        if self._where is None or more is None:
            return self._where if more is None else more
        return self._where & more

    def _are_names(self, columns: Any) -> bool:
        """Whether these are some of the columns, each once. pyarrow says what is wrong with others,
        and counts rows without columns."""
        if not columns or not isinstance(columns, list | tuple):
            return False
        there = set(self.schema.names)
        return len(set(columns)) == len(columns) and all(name in there for name in columns)

    def _needed(self, columns: Any, wanted: pads.Expression | None) -> tuple[str, ...]:
        """Columns of the scan that are read, in its order."""
        schema = self.schema
        scanned = dict(zip(schema.names, self._scan.columns, strict=True))
        if columns is None:
            return tuple(scanned.values())
        if wanted is None and not isinstance(columns, Mapping):
            return tuple(own for name, own in scanned.items() if name in set(columns))
        # Expressions do not say which columns they use: what does not work without one needs it.
        return tuple(
            own
            for number, (name, own) in enumerate(scanned.items())
            if not _works(schema.remove(number), columns, wanted)
        )

    def _reader(self, names: tuple[str, ...]) -> pa.RecordBatchReader:
        """The batches of some columns of the scan, in the order of `names`."""
        fields = dict(zip(self._scan.columns, self.schema, strict=True))
        schema = pa.schema([fields[name] for name in names])
        scan = replace(self._scan, columns=names)
        return pa.RecordBatchReader.from_batches(schema, _batches(scan, schema))

    def _no_fragments(self, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError("a scan has no fragments: use scanner, to_table or to_batches")

    get_fragments = replace_schema = join = join_asof = sort_by = _no_fragments

    @property
    def partition_expression(self) -> NoReturn:
        """There is none."""
        self._no_fragments()

    def __reduce__(self) -> tuple[Any, ...]:
        return ScanDataset, (self._scan, self._where)

    def __repr__(self) -> str:
        return f"<rocketstore.arrow.ScanDataset of {self._scan!r}>"


class _NamesScanner:
    """What a scanner is, over columns by name. Its streams are those of the scan: a scanner of
    pyarrow has a thread of its own fetch each batch and hands it on to others, which costs a query
    of few columns more than the query. All else is pyarrow's."""

    def __init__(
        self, dataset: ScanDataset, names: tuple[str, ...], options: dict[str, Any]
    ) -> None:
        self._dataset = dataset
        self._names = names
        self._options = options

    def to_reader(self) -> pa.RecordBatchReader:
        """The scan, once more."""
        own = dict(zip(self._dataset.schema.names, self._dataset._scan.columns, strict=True))
        return self._dataset._reader(tuple(own[name] for name in self._names))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __getattr__(self, name: str) -> Any:
        scanner = pads.Scanner.from_batches(
            self.to_reader(), columns=list(self._names), **self._options
        )
        return getattr(scanner, name)


def _batches(scan: Scan, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for columns in scan:
        yield coded_batch(columns, schema)


def _works(schema: pa.Schema, columns: Any, wanted: pads.Expression | None) -> bool:
    """Whether rows of this schema can be asked so."""
    try:
        pads.Scanner.from_batches([], schema=schema, columns=columns, filter=wanted).to_table()
    except (pa.ArrowInvalid, pa.ArrowKeyError, KeyError):
        return False
    return True
