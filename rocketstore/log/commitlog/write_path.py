"""How the bytes of a record get from a put into a segment: mapped, buffered or direct."""

from __future__ import annotations

from rocketstore._native.os.mapped_file import MappedFile
from rocketstore._native.os.ring_buffer import RingBuffer
from rocketstore.errors import BackpressureError
from rocketstore.log.mapped_files.write_buffer_pool import WriteBufferPool

__all__ = ["WritePath"]


class WritePath:
    """The write path of one store, which its default promise decides.

    - mapped (promise `os`), neither argument: the appender encodes records into the mapping.
    - buffered (promise `memory`), `pool`: it encodes them into a write buffer as large as a
      segment, which the committer writes to the file.
    - direct (promise `disk`), `ring`: it encodes them into a ring, which the flusher writes and
      syncs with one call.
    """

    def __init__(
        self,
        *,
        ring: RingBuffer | None = None,
        pool: WriteBufferPool | None = None,
        pool_fast_fail: bool = False,
    ) -> None:
        """`pool_fast_fail`: without a free buffer a roll fails, instead of using the mapping."""
        if ring is not None and pool is not None:
            raise ValueError("a write path has a ring or a pool, not both")
        self.ring = ring
        self._pool = pool
        self._pool_fast_fail = pool_fast_fail
        self._buffers: dict[int, MappedFile] = {}  # segment start -> its write buffer

    @property
    def mapped(self) -> bool:
        """Whether records are encoded into the mapping, where readers see them at once."""
        return self.ring is None and self._pool is None

    def borrow(self, segment: MappedFile) -> MappedFile | None:
        """The write buffer of `segment`. None: it is written through its mapping, since there is no
        pool or no free buffer (K-43).

        Raises:
            BackpressureError: no buffer is free, and `pool_fast_fail` is set.
        """
        if self._pool is None:
            return None
        buffer = self._buffers.get(segment.start_offset) or self._pool.borrow()
        if buffer is not None:
            self._buffers[segment.start_offset] = buffer
        elif self._pool_fast_fail:
            raise BackpressureError("no free write buffer (transient_pool_fast_fail is on)")
        return buffer

    def buffer_of(self, segment: MappedFile) -> MappedFile | None:
        """The write buffer that `segment` is written through, if any."""
        return self._buffers.get(segment.start_offset)

    def committed_whole(self, segment: MappedFile) -> None:
        """Gives the buffer of a segment back once all of it is committed (S000-92)."""
        buffer = self._buffers.pop(segment.start_offset, None)
        if buffer is not None and self._pool is not None:
            self._pool.give_back(buffer)
