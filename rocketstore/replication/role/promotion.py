"""Makes a store the master, by hand."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Unpack

from rocketstore.config import StoreConfig
from rocketstore.config.typed_options import StoreOptions
from rocketstore.engine.open import open_engine
from rocketstore.engine.open_options import Options
from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import ReplicationError, StoreLockedError
from rocketstore.log.layout.lock import describe_holder
from rocketstore.replication.role.state import load_state, promoted, save_state
from rocketstore.services.transactions.commit_records import store_committed_offsets
from rocketstore.values.arguments import whole_number
from rocketstore.values.public import public

__all__ = ["Promotion", "promote"]


@public
@dataclass(frozen=True, slots=True)
class Promotion:
    """What `promote` did, or would do. `term`: the new one; stores of an earlier term take no puts
    once they hear of it. `end`: where the log ended, a physical offset."""

    path: str
    term: int
    end: int
    #: Whether the store was the master before.
    was_master: bool
    #: Term and run in which the last byte of the log was put, and the end: of several copies the
    #: one with the largest rank has all that any of them has acknowledged. What a copy has heard
    #: of without a byte does not count.
    rank: tuple[int, int, int]
    dry_run: bool = False

    def __str__(self) -> str:
        term, run, end = self.rank
        if self.dry_run:
            return f"{self.path}: rank {term}.{run}.{end}; would be the master of term {self.term}"
        return f"{self.path}: the master of term {self.term}, from offset {self.end} on"


@public
def promote(
    path: str | os.PathLike[str],
    *,
    above: int = 0,
    dry_run: bool = False,
    **options: Unpack[StoreOptions],
) -> Promotion:
    """Makes the store in directory `path` the master: of its history, in a new term.

    Promote the copy with the largest `rank`: a copy of an earlier term may be longer, and lacks
    what was acknowledged since. What another copy has that the new master has not is cut off, into
    quarantine, once it follows. A master of an earlier term takes no puts any more as soon as a
    store that knows of this one connects to it. Until then it does: stop it, or have it use a
    lease. The store is recovered first, and must not be open.

    Args:
        above: The largest term that another machine shows, at most 65,536 above what this store
            knows: the new one is after it. Without it two promotions, of which neither store has
            heard of the other, can begin the same term.
        dry_run: Only say the rank; take no lock, and change nothing. The rank of a store that is
            open would be old at once, and is not said.
        options: Settings of `rocketstore.open`, such as `commit_log_dir`.

    Raises:
        ReplicationError: The store was neither master nor copy, or a copy that never met its master,
            or its role cannot be read, or no term comes after the one that it knows, or `above` is
            too far.
        StoreLockedError: The store is open.
        FileNotFoundError, MissingSegmentsError, ConfigError, OSError: As `rocketstore.open`.
    """
    engine = open_engine(os.fspath(path), "r" if dry_run else "r+", Options(StoreConfig(**options)))
    try:
        holder = describe_holder(engine.layout) if dry_run else None
        if holder is not None:
            raise StoreLockedError(engine.path, holder, "it is open: stop it first")
        state = load_state(engine.layout)
        if state is None:
            raise ReplicationError(
                f"{engine.path} is no copy: nothing has to be promoted; open it with "
                "replication=Master(…)"
            )
        begin, end = engine.recovery.begin, engine.recovery.end
        if state.role == "replica" and not state.epochs and begin == end:
            raise ReplicationError(
                f"{engine.path} never met its master, and has nothing of its log: promoted it "
                "would be another store, which the master and its copies refuse; promote a copy "
                "that has a rank, or open an empty directory with replication=Master(…) for a new "
                "store"
            )
        made = promoted(state, begin=begin, end=end, above=whole_number("above", above, 0))
        if not dry_run:
            assert isinstance(engine, WritingEngine)
            if state.role == "replica":
                store_committed_offsets(engine)
            save_state(engine.layout, made)
    finally:
        engine.close()
    wrote_last = next((one for one in reversed(state.epochs) if one.start < end), None)
    rank = (0, 0, end) if wrote_last is None else (wrote_last.term, wrote_last.run, end)
    return Promotion(engine.path, made.term, end, state.role == "master", rank, dry_run)
