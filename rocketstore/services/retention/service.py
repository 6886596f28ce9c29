"""`StoreRetention`, what `Store.retention` gives: asks the keeper of the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketstore.engine.engine import Engine
from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import ConfigError, StoreReadOnlyError
from rocketstore.services.retention.keeper import Keeper
from rocketstore.services.retention.rule import Retention
from rocketstore.values.public import public

if TYPE_CHECKING:
    from rocketstore.services.retention.events import RetentionEvent
    from rocketstore.services.retention.plan import RetentionPlan

__all__ = ["StoreRetention", "keep_by"]


@public
class StoreRetention:
    """What retention does with one open store: `Store.retention`.

    A store that was opened with `retention=` applies that rule by itself. In any store, `plan` and
    `run` also take a rule for one call.
    """

    def __init__(self, engine: Engine) -> None:
        if not isinstance(engine, Engine):
            raise TypeError("a StoreRetention is what Store.retention gives")
        self._engine = engine
        self._keeper = keeper_of(engine)

    @property
    def rule(self) -> Retention | None:
        """The rule that the store was opened with."""
        return self._keeper.rule

    def plan(self, rule: Retention | None = None) -> RetentionPlan:
        """Says what `run` would do at this moment, and changes nothing. Works for readers, too.

        Args:
            rule: A rule to try. None: that of the store.

        Raises:
            ConfigError: `rule` is no Retention, or the store has none of its own.
            StoreClosedError, StoreReplacedError: The store was closed, or another has its place.
        """
        self._engine.check_open()
        return self._keeper.plan(self._checked(rule), own=rule is None)

    def run(self, rule: Retention | None = None) -> RetentionPlan:
        """Removes now what the rule lets go; gives the plan, as far as it was carried out.

        Args:
            rule: A rule for this call only, whose ages are measured by the clock as it is. None:
                that of the store.

        Raises:
            ConfigError: `rule` is no Retention, or the store has none of its own.
            BackpressureError: The disk took longer than `sync_flush_timeout_ms`, or this thread is
                in the middle of a run.
            StoreReadOnlyError, StoreClosedError: The store cannot be trimmed.
            OSError: A file cannot be removed; the next run tries again.
        """
        engine = self._engine
        engine.check_open()
        checked = self._checked(rule)
        if not isinstance(engine, WritingEngine):
            raise StoreReadOnlyError(
                "retention.run: the store was opened with mode='r'; open it with 'rw' or 'r+'"
            )
        return self._keeper.run(engine, checked, own=rule is None)

    @property
    def events(self) -> tuple[RetentionEvent, ...]:
        """The last 100 emergencies in which something was removed although it was held, oldest
        first. They stay with the store."""
        return self._keeper.events.events

    @property
    def last_error(self) -> Exception | None:
        """Why the last round of the store's own rule did not end; None once one has."""
        return self._keeper.last_error

    def __repr__(self) -> str:
        error = f", last_error={self.last_error!r}" if self.last_error is not None else ""
        return f"StoreRetention(rule={self.rule!r}, events={len(self.events)}{error})"

    def _checked(self, rule: object) -> Retention:
        found = self._keeper.rule if rule is None else rule
        if found is None:
            raise ConfigError("rule", None, "the store was opened without retention=: give a rule")
        if not isinstance(found, Retention):
            raise ConfigError("rule", rule, "a rocketstore.Retention, or None for the store's own")
        return found


def keeper_of(engine: Engine) -> Keeper:
    """One for each store that is open for writing."""
    if isinstance(engine, WritingEngine):
        return engine.guests.get(Keeper, lambda: Keeper(engine))
    return Keeper(engine)


def keep_by(engine: WritingEngine, rule: Retention) -> None:
    """Applies a rule to a store that was just opened for writing."""
    keeper_of(engine).start(engine, rule)
