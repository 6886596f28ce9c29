"""Pages ahead of the writer, made ready without the GIL: the writer holds that while it puts, and a thread that
takes it from a busy writer waits 5 ms, in which some MiB are written."""

cimport cython
from libc.errno cimport EAGAIN, EINTR
from libc.stdint cimport int64_t, uint8_t, uint32_t

from rocketstore._native.format.csrc_atomic cimport (
    rs_load_int, rs_load_int64, rs_store_int, rs_store_int64,
)
from rocketstore._native.format.csrc cimport RS_POSITIONS_AT_WROTE, rs_position_load
from rocketstore._native.os.mapped_file cimport MappedFile
from rocketstore._native.os.mapped_range cimport populate_pages, read_page
from rocketstore._native.sync.positions cimport Positions
from rocketstore._native.os.syscalls cimport done, page_size, sys
from rocketstore._native.sync.futex cimport EventCount, futex_wait, now_ns, processor_ns

cdef extern from *:
    """
    #include <sys/mman.h>
    """
    enum:
        MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_NORMAL, MADV_RANDOM

cdef enum:
    # One call to the kernel, bytes: for a fast writer, and for a slow one, where a thread that was woken meanwhile
    # on this processor waits until the call is done; and the time between two of those.
    LARGE = 2 << 20
    SMALL = 64 << 10
    EASY_PAUSE_NS = 100_000
    # The time over which a rate says that there is a hurry, and that there is none any more: a fast writer, too,
    # waits for a processor now and then.
    RATE_NS = 100_000
    CALM_NS = 20_000_000
    # Up to here, in bytes a second, there is no hurry, and small steps reach about as much. A rate is one once
    # so much came: a batch, however quickly it is put, is none.
    EASY_RATE = 256 << 20
    RATED_LEAST = 512 << 10
    # What a large step takes where the memory is new to the machine: the writer makes every other one itself.
    SLOW_NS = 2_000_000
    # What a large step may take of a processor where batches are to be stored to its pages: less where memory is at
    # hand, more where the host has to give it. While batches are written by calls, pages are tried LEAD ahead of the
    # writer, which comes there later; and after a step that took longer, only once it has written REST more.
    QUICK_NS = 1_000_000
    LEAD = 3 << 20
    REST = 64 << 20
    # Nothing is done before LEAST was appended. For a fast writer the window is GROWTH times what was appended.
    LEAST = 64 << 10
    GROWTH = 4
    # What a round may want instead of a pause.
    PAUSE_SLEEP = -1
    PAUSE_DONE = -2

SLEEP = PAUSE_SLEEP
DONE = PAUSE_DONE


@cython.final
@cython.auto_pickle(False)
cdef class PagesAhead:
    """Keeps [wrote, wrote + window) ready. One a populator.

    The window grows with what was appended since this was made, up to `window_bytes`: a store that is hardly
    written dirties hardly any page. From 64 KiB on, since each page that the writer has to make costs it
    microseconds.

    For a slow writer pages come one by one and in small steps. For a fast one as fast as it goes, and in
    pages of 2 MiB where the file system has some: they are made at twice the speed, and each small page that a
    flush protects interrupts the other processors.

    Either way the call gives the kernel the advice that access has no order: else the kernel would make its whole
    read-ahead ready (8 MiB), and no other thread gets the processor before the end. So puts are faster, and queues
    and index lag less; only where all memory is new to the machine a burst of 1 KiB records is slower
    (bench/results/development.md, "From a put to its reader").

    While batches are written by calls, pages are made as long as that is quick: what is not ready when a batch
    comes to it is written.
    """

    def __cinit__(self, Positions positions not None, int64_t window_bytes):
        self.positions = positions
        self.window_bytes = window_bytes
        self.opened_at = self.populated_end = self.rated_at = positions.wrote
        self.rated_ns = now_ns()
        self.slept = True
        self.slow_ns = SLOW_NS
        self.quick_ns = QUICK_NS
        self.lead = min(LEAD, window_bytes // 2) & -SMALL
        self.large_at = self.written_end = self.gap_end = -1

    @property
    def populated(self):
        """Physical offset up to which pages were made ready."""
        return rs_load_int64(&self.populated_end)

    @property
    def written(self):
        """Where the last batch ends that was written by a call, or -1."""
        return rs_load_int64(&self.written_end)

    @property
    def paused(self):
        """Whether serve returns at once. A caller that sets it wakes the signal."""
        return rs_load_int(&self.paused_now) != 0

    @paused.setter
    def paused(self, bint value):
        rs_store_int(&self.paused_now, value)

    def expect_put(self):
        """The first put is near: once serve is woken, the page that it comes to is read, unless it was there before.
        Of a file that nobody has read it waited 3 to 11 ms for all that the kernel reads ahead."""
        rs_store_int(&self.expects_put, True)

    def skip_to(self, int64_t offset):
        """Pages before it stay as they are."""
        rs_store_int64(&self.populated_end, max(self.populated_end, offset))

    def serve(self, EventCount signal not None, MappedFile file not None):
        """Makes pages of `file` ready, woken by `signal`, until the log is to go on in another one.

        Raises:
            OSError: there is no room for them, or the file is not writable.
            StoreClosedError: it was closed.
        """
        file.check_writable()
        file.check_range(0, 0)
        with nogil:
            self.serve_c(signal, file)
        self.check(file)

    def round(self, MappedFile file not None, int64_t now):
        """One call to the kernel at most: nanoseconds until the next round, SLEEP until woken, DONE with the
        file. `now` in nanoseconds. Raises OSError like serve."""
        cdef int64_t pause
        file.check_writable()
        with nogil:
            pause = self.round_c(file, now)
        self.check(file)
        return pause

    cdef int check(self, MappedFile file) except -1:
        cdef int64_t result = self.result
        self.result = 0
        done(result, file.path)
        return 0

    cdef void serve_c(self, EventCount signal, MappedFile file) noexcept nogil:
        cdef int64_t pause
        cdef uint32_t seen
        while True:
            seen = signal.load()  # first: whatever happens from here on ends the wait below
            if rs_load_int(&self.paused_now) or file.closed:
                return
            pause = self.round_c(file, now_ns())
            if pause == PAUSE_DONE:
                return
            if pause == PAUSE_SLEEP:
                signal.wait_c(seen, -1)
            elif pause > 0:
                futex_wait(&self.never, 0, pause, False)

    cdef int64_t round_c(self, MappedFile file, int64_t now) noexcept nogil:
        cdef int64_t wrote = rs_position_load(self.positions.page, RS_POSITIONS_AT_WROTE)
        cdef int64_t appended = wrote - self.opened_at
        rs_store_int64(&self.populated_end, max(self.populated_end, wrote))  # the writer has touched it
        if not file.start_offset <= self.populated_end < file.start_offset + file.size:
            return PAUSE_DONE
        if (appended < LEAST or self.populated_end >= wrote + self.window(appended)
                or self.populated_end - file.start_offset >= file.reserved_bytes()
                or (self.beside_calls(wrote) and wrote < self.rest_end)):
            if rs_load_int(&self.expects_put):
                rs_store_int(&self.expects_put, False)
                if appended == 0:
                    self.read_first(file, wrote)
            self.slept = True
            return PAUSE_SLEEP
        self.note_rate(now, wrote)
        if self.slept and not self.hurried:
            self.slept = False  # it may have begun just now
            return RATE_NS
        self.slept = False
        self.advise_size(file)
        self.result = self.populate(file, wrote)
        if self.result == -EAGAIN or self.result == -EINTR:
            self.result = 0  # nothing is known about the pages: once more
        elif self.result != 0:
            return PAUSE_DONE
        return 0 if self.hurried else EASY_PAUSE_NS

    cdef void read_first(self, MappedFile file, int64_t wrote) noexcept nogil:
        """The page that the end of the log lies in is there, since it was looked for."""
        cdef int64_t next_page = (wrote - file.start_offset + page_size - 1) & -page_size
        if 0 <= next_page < file.size:
            read_page(file.base + next_page)

    cdef int64_t window(self, int64_t appended) noexcept nogil:
        return min(self.window_bytes, appended * (GROWTH if self.hurried else 1))

    cdef int64_t ready_end(self, int64_t wrote) noexcept nogil:
        """Physical offset up to which a writer that is at `wrote` has pages. From any thread."""
        cdef int64_t end = rs_load_int64(&self.populated_end)
        return end if wrote >= rs_load_int64(&self.gap_end) else wrote

    cdef bint beside_calls(self, int64_t wrote) noexcept nogil:
        return rs_load_int64(&self.written_end) == wrote

    cdef void note_rate(self, int64_t now, int64_t wrote) noexcept nogil:
        cdef int64_t took = now - self.rated_ns
        cdef bint hurried = (took >= RATE_NS and wrote - self.rated_at >= RATED_LEAST
                             and (wrote - self.rated_at) * 1e9 > <double>EASY_RATE * <double>took)
        if hurried or took >= CALM_NS:
            self.hurried, self.rated_ns, self.rated_at = hurried, now, wrote

    cdef void advise_size(self, MappedFile file) noexcept nogil:
        """For a slow writer a large page would be made, and written, for a few messages."""
        if self.hurried and self.large_at != file.start_offset:
            sys.madvise(file.base, <size_t>file.size, MADV_HUGEPAGE)
            self.large_at = file.start_offset
        elif not self.hurried and self.large_at == file.start_offset:
            sys.madvise(file.base, <size_t>file.size, MADV_NOHUGEPAGE)
            self.large_at = -1

    cdef int64_t first_page(self, MappedFile file, int64_t wrote) noexcept nogil:
        """Where the next step begins, in the file: after pages that the writer comes to before they are made."""
        cdef int64_t low = (self.populated_end - file.start_offset + SMALL - 1) & -SMALL
        cdef int64_t ahead = self.populated_end - wrote
        if self.slow and ahead <= LARGE:
            low += LARGE
        elif self.hurried and ahead < SMALL and self.beside_calls(wrote):
            low += self.lead
        return min(low, file.reserved_bytes())

    cdef int64_t populate(self, MappedFile file, int64_t wrote) noexcept nogil:
        """0, or the negated errno. The pages next to the writer it makes ready itself."""
        cdef int64_t step = LARGE if self.hurried else SMALL
        cdef int64_t low = self.first_page(file, wrote)
        cdef int64_t high = min((low + step) & -step, file.reserved_bytes())
        cdef int64_t result = 0
        if low < high:
            sys.madvise(file.base, <size_t>file.size, MADV_RANDOM)  # for now: readers want read-ahead
            result = self.populate_timed(file.base + low, high - low, wrote)
            sys.madvise(file.base, <size_t>file.size, MADV_NORMAL)
        if result == 0:
            if file.start_offset + low >= self.populated_end + SMALL:
                rs_store_int64(&self.gap_end, file.start_offset + low)  # first: a thread that sees the end sees this
            rs_store_int64(&self.populated_end, file.start_offset + high)
        return result

    cdef int64_t populate_timed(self, uint8_t *base, int64_t size, int64_t wrote) noexcept nogil:
        cdef int64_t began = now_ns()
        cdef int64_t used = processor_ns()
        cdef int64_t result = populate_pages(base, <size_t>size)
        self.slow = self.hurried and now_ns() - began > self.slow_ns
        if self.hurried and processor_ns() - used > self.quick_ns:
            self.rest_end = wrote + REST
        return result
