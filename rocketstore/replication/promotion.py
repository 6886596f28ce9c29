"""Makes a store the master, by hand."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

from rocketstore.config import StoreConfig
from rocketstore.engine.open import open_engine
from rocketstore.engine.open_options import Options
from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import ReplicationError
from rocketstore.replication.state import load_state, promoted, save_state
from rocketstore.values.public import public

if TYPE_CHECKING:
    from rocketstore.config.typed_options import StoreOptions

__all__ = ["Promotion", "promote"]


@public
@dataclass(frozen=True, slots=True)
class Promotion:
    """What `promote` did. `term`: the new one; stores of an earlier term take no puts once they
    hear of it. `end`: where the log ended, a physical offset."""

    path: str
    term: int
    end: int
    #: Whether the store was the master before.
    was_master: bool

    def __str__(self) -> str:
        return f"{self.path}: the master of term {self.term}, from offset {self.end} on"


@public
def promote(path: str | os.PathLike[str], **options: Unpack[StoreOptions]) -> Promotion:
    """Makes the store in directory `path` the master: of its history, in a new term.

    Promote the copy that is furthest: what a copy has that the new master has not is cut off, into
    quarantine, once it follows. A master of an earlier term takes no puts any more as soon as a
    store that knows of this one connects to it. Until then it does: stop it, or have it use a
    lease. The store is recovered first, and must not be open.

    Args:
        options: Settings of `rocketstore.open`, such as `commit_log_dir`.

    Raises:
        ReplicationError: The store was neither master nor copy, or its role cannot be read.
        StoreLockedError, MissingSegmentsError, ConfigError, OSError: As `rocketstore.open`.
    """
    config = StoreConfig(**options)
    engine = open_engine(os.fspath(path), "r+", Options(config))
    assert isinstance(engine, WritingEngine)
    try:
        state = load_state(engine.layout)
        if state is None:
            raise ReplicationError(
                f"{engine.path} is no copy: nothing has to be promoted; open it with "
                "replication=Master(…)"
            )
        report = engine.recovery
        made = promoted(state, begin=report.begin, end=report.end)
        save_state(engine.layout, made)
    finally:
        engine.close()
    return Promotion(os.fspath(path), made.term, report.end, state.role == "master")
