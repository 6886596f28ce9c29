"""Where the last record ends in a log that another process writes and that nobody tells about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rocketstore._native.scanner import SearchBudget, resynchronise, scan_segment

if TYPE_CHECKING:
    from rocketstore._native.mapped_file import MappedFile

__all__ = ["SIZE_BYTES", "LogEnd"]

#: A record begins with its size: zeros where none is.
SIZE_BYTES: Final = 4


class LogEnd:
    """Walks the newest segments from record to record, each time from where the last walk ended."""

    def __init__(self, verify: int, known: int | None) -> None:
        """`known`: a physical offset where a record ended, if one is known."""
        self._verify = verify
        self._walked = -1 if known is None else known

    def end(self, segments: Sequence[MappedFile]) -> int:
        """The end of the last record in `segments`, of which there is one at least. What is no record is
        passed over if one follows in the same segment."""
        if self._walked < segments[0].start_offset:
            used = [file for file in segments if any(file.read(0, SIZE_BYTES))]
            self._walked = used[-1].start_offset if used else segments[0].start_offset
        for file in segments:
            budget = SearchBudget()
            while file.start_offset <= self._walked < file.end_offset:
                position = self._walked - file.start_offset
                found = scan_segment(file, position, file.size, verify=self._verify)
                position = file.size if found.status == "blank" else found.end_position
                self._walked = file.start_offset + position
                if position == file.size:
                    break
                if not any(file.read(position, min(SIZE_BYTES, file.size - position))):
                    return self._walked
                after = resynchronise(
                    file, position + 1, file.size, budget=budget, verify=self._verify
                )
                if after is None:
                    return self._walked
                self._walked = file.start_offset + after
        return self._walked
