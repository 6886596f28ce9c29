"""The offsets of groups in a guest: read from the files, claimed and committed at the host."""

from __future__ import annotations

import contextlib
import itertools
import logging
import weakref
from typing import TYPE_CHECKING, Any, Final, Protocol

from rocketstore.consuming.consumer_offsets import ConsumerOffsets
from rocketstore.consuming.followed_offsets import FollowerOffsets
from rocketstore.consuming.group_claims import GroupClaimedError
from rocketstore.errors import RocketStoreError, StoreClosedError
from rocketstore.log.layout.paths import check_group
from rocketstore.sharing.call_values import check_moved
from rocketstore.values.kept_errors import without_frames

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rocketstore.log.layout.paths import StoreLayout

__all__ = ["Ask", "GuestOffsets", "Kept"]

logger = logging.getLogger(__name__)

#: Longest wait for a host that takes a claim back, ms: a consumer closes meanwhile.
RELEASE_MS: Final = 1000


class Ask(Protocol):
    """A call to the host, which gives what that answers, and bytes."""

    def __call__(
        self,
        name: str,
        fields: Mapping[str, Any],
        blob: bytes = b"",
        *,
        again: bool = False,
        limit_ms: float | None = None,
    ) -> tuple[Any, bytes]: ...


class Kept:
    """A claim that a consumer of this process has at the host, whichever that is."""

    def __init__(
        self, number: int, topic: str, group: str, owner: object, queue_ids: tuple[int, ...] | None
    ) -> None:
        self.fields = {"claim": number, "topic": topic, "group": group, "queue_ids": queue_ids}
        self.key = f"{topic}@{group}"
        self.owner = weakref.ref(owner)
        self._queue_ids = queue_ids
        #: The offsets of the group when the host last said them; None: not known.
        self.stored: Mapping[int, int] | None = None
        #: Why the group is another consumer's.
        self.lost: GroupClaimedError | None = None

    def check(self) -> None:
        """GroupClaimedError: another consumer got the group while there was no host."""
        if self.lost is not None:
            raise without_frames(self.lost)

    def compare(self, before: Mapping[int, int] | None) -> None:
        """GroupClaimedError where the group has moved on since: another consumer had it meanwhile."""
        if before is not None:
            check_moved(self.key, before, self.stored or {}, self._queue_ids)


class GuestOffsets(FollowerOffsets):
    """The table as the host has it. Claims are kept here, and claimed again at the next host."""

    def __init__(self, layout: StoreLayout, ask: Ask) -> None:
        super().__init__(layout)
        self._ask = ask
        self._numbers = itertools.count(1)
        #: Replaced, never changed.
        self._kept: tuple[Kept, ...] = ()
        self._maybe_unsynced = False

    @property
    def unsynced(self) -> bool:
        return self._maybe_unsynced

    def check_writable(self) -> None:
        """A guest commits at its host."""

    def row(self, key: str) -> Mapping[int, int]:
        self.look()
        return super().row(key)

    def warn_of(self, topic: str, group: str) -> None:
        ConsumerOffsets.warn_of(self, topic, group)

    def kept(self, owner: object, key: str) -> Kept:
        """The claim of a consumer, which holds. StoreClosedError: it has none. GroupClaimedError: it is lost."""
        for one in self._kept:
            if one.owner() is owner and one.key == key:
                one.check()
                return one
        raise StoreClosedError(
            f"nothing was stored for {key}: the consumer was closed, and the group may have "
            "another one by now"
        )

    def holds(self, key: str, owner: object) -> bool:
        return any(one.owner() is owner and one.key == key for one in self._kept)

    def claim(
        self, topic: str, group: str, owner: object, queue_ids: tuple[int, ...] | None = None
    ) -> None:
        check_group(group)
        self._sweep()
        kept = Kept(next(self._numbers), topic, group, owner, queue_ids)
        with self._turn():
            self._kept = (*self._kept, kept)
        try:
            self._claim(kept)
        except BaseException:
            self._forget(kept)
            raise

    def _claim(self, kept: Kept) -> None:
        before = kept.stored
        (stored, unsynced), _ = self._ask("claim", kept.fields, again=True)
        kept.stored = stored or {}
        self._maybe_unsynced |= unsynced
        kept.compare(before)

    def claim_again(self) -> None:
        """At another host."""
        for kept in self._kept:
            if kept.lost is None and kept.owner() is not None:
                try:
                    self._claim(kept)
                except GroupClaimedError as error:
                    kept.lost = without_frames(error)
                    logger.warning("%s: %s", self._layout.root, error)

    def release(self, topic: str, group: str, owner: object) -> None:
        self._forget(
            *(one for one in self._kept if one.owner() is owner and one.key == f"{topic}@{group}")
        )

    def release_all(self) -> None:
        self._forget(*self._kept)

    def _sweep(self) -> None:
        """Gives back what consumers had that nobody has closed."""
        self._forget(*(one for one in self._kept if one.owner() is None))

    def _forget(self, *gone: Kept) -> None:
        with self._turn():
            self._kept = tuple(one for one in self._kept if one not in gone)
        # Without a host, or one that answers, they end with it or with this guest.
        with contextlib.suppress(RocketStoreError, OSError):
            for kept in gone:
                self._ask("release", {"claim": kept.fields["claim"]}, limit_ms=RELEASE_MS)

    def commit(
        self,
        topic: str,
        group: str,
        offsets: Mapping[int, int],
        physical_end: int,
        wait_flushed: Callable[[int], object],
        owner: object = None,
        *,
        sync: bool = True,
    ) -> None:
        """Asks the host, which looks itself up to where the log has to be on the disk."""
        kept = self.kept(owner, f"{topic}@{group}")
        kept.stored = None  # not known, until it is answered
        fields = {**kept.fields, "offsets": offsets, "sync": sync}
        try:
            (stored, self._maybe_unsynced), _ = self._ask("commit", fields, again=True)
            kept.stored = stored or {}
        except GroupClaimedError as error:
            kept.lost = without_frames(error)
            raise
