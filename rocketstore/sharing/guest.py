"""The engine of a guest: reads come from the files, and what changes the store is asked of its host.

`guest_store` makes the store of an open that has found a host. A guest never becomes the host itself: where that goes,
its link finds or makes the next one, and the guest goes on there.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from rocketstore._native.sync.durations import Durations
from rocketstore.engine.engine import CloseMode, FollowingEngine, Opened
from rocketstore.engine.open import follow
from rocketstore.engine.open_options import SYSTEM_CLOCK
from rocketstore.engine.shutdown import Guests, Steps
from rocketstore.engine.writing_engine import PuttingEngine
from rocketstore.errors import (
    BackpressureError,
    ConfigError,
    DurabilityTimeoutError,
    GuestStoreError,
    OutcomeUnknownError,
    StoreLockedError,
)
from rocketstore.log.queues.delayed_puts import DelayedPuts
from rocketstore.log.queues.put_states import PutStates
from rocketstore.sharing.call_values import SHARED
from rocketstore.sharing.guest_log import GuestCompletions, GuestLog
from rocketstore.sharing.guest_offsets import GuestOffsets
from rocketstore.sharing.guest_puts import GuestChanging, GuestUniqueIds
from rocketstore.sharing.messages import meant, told
from rocketstore.stats.histogram import PUT_TIME_BOUNDS_NS
from rocketstore.stats.statistics import GuestFigures, StoreStatistics
from rocketstore.store import Store

if TYPE_CHECKING:
    from rocketstore._native.sync.queue_positions import QueueState
    from rocketstore.config import StoreConfig
    from rocketstore.engine.open_options import Options
    from rocketstore.log.follow.follower import Follower
    from rocketstore.log.layout.paths import StoreLayout
    from rocketstore.sharing.link import HostLink
    from rocketstore.stats.statistics import Statistics
    from rocketstore.values.clock import Clock

__all__ = ["GuestEngine", "guest_store"]

#: Longest wait of an open until the host has recovered the store, seconds.
RECOVERY_S: Final = 10.0
#: A call lasts so much longer than what the host does in it may, ms.
ANSWER_MS: Final = 1000
#: Longest wait for figures of guests, ms: an event loop may ask for them.
FIGURES_MS: Final = 200
#: Options of an open that count in a guest, though its host has others: they are of its own puts.
OWN: Final = frozenset(("durability", "sync_flush_timeout_ms"))


@dataclass(frozen=True, slots=True)
class GuestParts:
    """What a guest has of `WriteParts`."""

    put_states: PutStates
    completions: GuestCompletions
    record_crc: bool
    ring: Any
    clock: Clock = SYSTEM_CLOCK

    def expect_put(self, queues: Sequence[QueueState]) -> None:
        """The host prepares its files when it meets a queue."""


class GuestEngine(FollowingEngine, PuttingEngine):
    """A store that another process has, or a hidden one in this process."""

    takes_puts = True
    offsets: GuestOffsets

    def __init__(
        self,
        opened: Opened,
        follower: Follower,
        link: HostLink,
        ring_bytes: int | None,
        own: frozenset[str],
    ) -> None:
        """`opened`: with the options that count, of which `own` are not the host's. `ring_bytes`: of
        the host's ring of records; None: it has none."""
        self.link, self._own = link, own
        put_times = Durations(PUT_TIME_BOUNDS_NS)
        states = PutStates(lambda topic, queue_id: 0, wide_topics=opened.config.auto_wide_topic)
        opened = dataclasses.replace(
            opened,
            offsets=GuestOffsets(opened.layout, self.call),
            statistics=StoreStatistics(states.totals, put_times=put_times.take),
        )
        super().__init__(opened, follower)
        self.copy_of, self.plain_writers = "", {}
        self.guests = Guests(opened.guard.ending)
        self.commit_log = GuestLog(self.path, link, self.config)
        self.commit_log.log.put_times = put_times
        self.write = GuestParts(
            states,
            GuestCompletions(
                *(self.commit_log.log, self.commit_log.positions, self.commit_log.check_waitable),
                self.config.sync_flush_timeout_ms,
            ),
            self.config.record_crc,
            None if ring_bytes is None else SimpleNamespace(size=ring_bytes),
        )
        self.delayed_puts = DelayedPuts(
            *(self.config.delay_level_ms, self.queue_state, SYSTEM_CLOCK.now_ms), part_ms=1
        )
        self.delayed_puts.changing = partial(GuestChanging, self.call)
        self.unique_ids = GuestUniqueIds(self.commit_log, indexed=self.config.index_enabled)
        follower.own_end = lambda: self.commit_log.own_end

    # ---- the host ----

    @property
    def life(self) -> str:
        """Of the host that answers now, up to whose end readers see the log."""
        return str(self.commit_log.life)

    def connected(self, link: HostLink) -> None:
        """Called by the link at each host, before anything else goes there."""
        waiting = link.line()
        try:
            quick = link.line()
        except BaseException:
            waiting.close()
            raise
        self.commit_log.connected(waiting, quick)
        with contextlib.suppress(ConfigError, GuestStoreError):  # then those of the last host stay
            self._take(fitted(self.config, link.config["options"], self._own))
        self.offsets.claim_again()

    @property
    def limit_ms(self) -> int:
        """How long a call goes on at most: longer than the host waits in it for room and for the disk."""
        return self.config.sync_flush_timeout_ms + self.config.max_wait_ms + ANSWER_MS

    def call(
        self,
        name: str,
        fields: Mapping[str, Any],
        blob: bytes = b"",
        *,
        again: bool = False,
        limit_ms: float | None = None,
        asks: Callable[[str, int], bool] | None = None,
    ) -> tuple[Any, bytes]:
        """What the host answers. `again`: a call that has no answer is asked once more, at the next host. `asks`: as
        the link takes it.

        Raises:
            OutcomeUnknownError: there is no answer.
            StoreLockedError: there is no host, or it takes nothing.
            StoreClosedError: the guest closes. And what the call raises at the host.
        """
        self.check_open()
        limit_s = (self.limit_ms if limit_ms is None else limit_ms) / 1000
        given = {one: told(value) for one, value in fields.items()}
        (value, shown), data = self.link.call(name, given, blob, limit_s, again=again, asks=asks)
        self.commit_log.shown = max(self.commit_log.shown, shown)
        return meant(value), data

    def await_next(self, deadline_ns: int, session: int, error: OutcomeUnknownError) -> None:
        """Returns once a session has ended, and the next one is there; raises `error` where none comes in time."""
        try:
            self.link.await_host(deadline_ns, ended=session)
        except StoreLockedError as why:
            raise error from why

    def kind_of(self, kind: type[Any]) -> type[Any]:
        from rocketstore.sharing.guest_services import KINDS

        return KINDS.get(kind, kind)

    def check_owner(self, call: str) -> None:
        raise GuestStoreError(
            f"{call}: {self.path} is open in another process, which alone can do it "
            f"({self.link.host_state()}): call it there"
        )

    # ---- what puts need ----

    def multi_dispatch_queues(
        self, topic: str, queue_id: int, properties: Mapping[str, str]
    ) -> list[QueueState]:
        if self.config.multi_dispatch_enabled and properties.get("INNER_MULTI_DISPATCH"):
            raise GuestStoreError(
                "INNER_MULTI_DISPATCH: a guest puts no message into further queues; put it in the "
                f"process that has the store ({self.link.host_state()})"
            )
        return []

    def wait_flushed(self, end_offset: int, limit_ms: int | None) -> None:
        limit_ms = self.config.sync_flush_timeout_ms if limit_ms is None else limit_ms
        if not self.commit_log.wait_flushed(end_offset, limit_ms):
            raise DurabilityTimeoutError(
                f"flushed = {self.positions.flushed} after {limit_ms} ms, asked for {end_offset}"
            )

    def flush(self, limit_ms: int | None) -> int:
        lost, last = self.commit_log.lost, self.commit_log.elsewhere.last_end
        limit_ms = self.config.sync_flush_timeout_ms if limit_ms is None else limit_ms
        self.commit_log.check_lost(min(last, lost[1]))
        flushed, _ = self.call(
            "flush", {"limit_ms": limit_ms}, again=True, limit_ms=limit_ms + ANSWER_MS
        )
        self.commit_log.check_lost(min(last, self.commit_log.lost[1]))
        return int(flushed)

    def snapshot(self) -> Statistics:
        """What this process has read and put, and the guests as the host gives them; none where it
        does not answer soon."""
        found = super().snapshot()
        try:
            rows, _ = self.call("figures", {}, again=True, limit_ms=FIGURES_MS)
        except (BackpressureError, OutcomeUnknownError, StoreLockedError):
            return found
        return dataclasses.replace(found, guests=tuple(GuestFigures(*row) for row in rows))

    # ---- care ----

    def configure(self, changes: Mapping[str, Any]) -> StoreConfig:
        self.call("configure", {"changes": changes}, again=True)
        self._take(self.config.replace(**changes))
        return self.config

    def _take(self, config: StoreConfig) -> None:
        self.config = config
        self.commit_log.log.max_message_size_bytes = config.max_message_size_bytes

    def trim(
        self, before_offset: int | None, before_ms: int | None = None, *, over_holds: bool = False
    ) -> int:
        fields = {"before_offset": before_offset, "before_ms": before_ms}
        begin, _ = self.call("trim", fields, again=True)
        return int(begin)

    # ---- the end ----

    def destroy(self) -> None:
        self.check_owner("destroy")

    def _take_steps(self, steps: Steps, mode: CloseMode) -> None:
        steps.take(self.guests.stop)
        steps.take(self.commit_log.close)
        steps.take(self.link.close)
        super()._take_steps(steps, mode)

    def _close(self, mode: CloseMode) -> None:
        if not self._guard.over:
            self.offsets.release_all()
        super()._close(mode)


def fitted(config: StoreConfig, options: Mapping[str, Any], own: frozenset[str]) -> StoreConfig:
    """The options of the host by which a guest puts, but for its `own`."""
    found = config.replace(**{n: v for n, v in options.items() if n in SHARED and n not in own})
    if str(found.durability).startswith("replicas"):
        raise GuestStoreError(
            f"durability = {str(found.durability)!r}: a guest cannot wait for other machines; open "
            "it with durability='disk', or put in the process that has the store"
        )
    return found


def guest_store(path: str, layout: StoreLayout, options: Options, link: HostLink) -> Store:
    """The store of a guest, whose link has a host.

    Raises:
        ConfigError, GuestStoreError: an option that a guest cannot have.
        StoreRecoveringError: the host has not recovered the store in time.
        StoreLockedError, OutcomeUnknownError: there is no host any more, or it does not answer.
    """
    shared, own = link.config, OWN & options.config.given
    config = fitted(options.config, shared["options"], own)
    opened, follower = follow(
        path, layout, dataclasses.replace(options, config=config), wait_s=RECOVERY_S
    )
    try:
        engine = GuestEngine(opened, follower, link, shared["ring_bytes"], own)
        link.on_connected.append(engine.connected)
        link.start()
    except BaseException:
        follower.close()
        raise
    return Store(engine, "rw")
