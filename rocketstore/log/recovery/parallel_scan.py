"""Scans parts of a log file on all cores before a walk comes to them."""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import Future
from typing import NamedTuple

from rocketstore._native.format.scanner import ScanResult, SearchBudget, resynchronise, scan_segment
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.values.threads import Pool

__all__ = ["ParallelScan", "part_begin", "scan_threads"]

MOST_THREADS = 8


def scan_threads() -> int:
    """Number of scanning threads: one for each processor, 8 at most."""
    return min(MOST_THREADS, os.cpu_count() or 1)


def part_begin(
    file: MappedFile, target: int, stop: int, verify: int, budget: SearchBudget
) -> int | None:
    """The first position in [target, stop) where a record or blank can be believed; None without
    one. The caller has to check that the part before it ends there, too."""
    if file.find_data(target, stop, unwritten=True) == stop:
        return None  # Nothing is written there, and what is not there is not read.
    return resynchronise(file, target, stop, budget=budget, verify=verify)


class _Part(NamedTuple):
    file: MappedFile
    begin: int
    end: int
    verify: int
    result: Future[ScanResult]


class ParallelScan:
    """Answers `scan_segment` for a file from its begin to its end, in steps of about `part_bytes`.

    A result that was found in advance counts only if the walk comes to its begin. So the answers
    are those of a single thread.
    """

    def __init__(self, part_bytes: int, threads: int | None = None) -> None:
        self._part_bytes = part_bytes
        self._most = scan_threads() if threads is None else threads
        self._threads: Pool | None = None
        self._parts: deque[_Part] = deque()
        self._budget = SearchBudget()

    def scan(self, file: MappedFile, position: int, end: int, *, verify: int) -> ScanResult:
        """The records from `position` on, up to `end` or a good position before it. Store times are
        compared within this step only."""
        if self._most > 1:
            self._look_ahead(file, position, end, verify)
        if self._parts:
            return self._parts.popleft().result.result()
        return scan_segment(file, position, min(end, position + self._part_bytes), verify=verify)

    def close(self) -> None:
        """Stops the threads and waits for them."""
        self._drop()
        if self._threads is not None:
            self._threads.shutdown()

    def _drop(self) -> None:
        for part in self._parts:
            part.result.cancel()
        self._parts.clear()

    def _look_ahead(self, file: MappedFile, position: int, end: int, verify: int) -> None:
        """Submits parts: the first begins at `position`, each later one where the part before has
        to end."""
        if self._parts and (
            self._parts[0][:2] != (file, position) or self._parts[0].verify != verify
        ):
            self._drop()
        begin = self._parts[-1].end if self._parts else position
        while len(self._parts) <= self._most and end - begin >= 2 * self._part_bytes:
            target = begin + self._part_bytes
            found = part_begin(file, target, target + self._part_bytes, verify, self._budget)
            if found is None:
                return
            try:
                if self._threads is None:
                    self._threads = Pool(self._most, "rocketstore-scan")
                result = self._threads.submit(scan_segment, file, begin, found, verify=verify)
            except RuntimeError:  # The system has no thread left: this one will do.
                self._most = 1
                return
            self._parts.append(_Part(file, begin, found, verify, result))
            begin = found
