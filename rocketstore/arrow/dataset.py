"""A scan as a dataset of pyarrow: who reads it says which columns and rows, and the scan reads no
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
    ) -> pads.Scanner:
        """A scanner of pyarrow over some columns: names, or expressions by name. `options` are
        pyarrow's; those that speak of fragments have no effect."""
        wanted = self._both(filter)
        names = self._needed(columns, wanted)
        known = {"batch_size", "use_threads", "memory_pool"}
        return pads.Scanner.from_batches(
            self._reader(names),
            columns=columns,
            filter=wanted,
            **{name: value for name, value in options.items() if name in known},
        )

    def filter(self, expression: pads.Expression) -> ScanDataset:
        """The same with a condition more."""
        return ScanDataset(self._scan, self._both(expression))

    def _both(self, more: pads.Expression | None) -> pads.Expression | None:
        if self._where is None or more is None:
            return self._where if more is None else more
        return self._where & more

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
        fields = zip(self._scan.columns, self.schema, strict=True)
        schema = pa.schema([field for name, field in fields if name in names])
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
