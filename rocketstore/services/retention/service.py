"""`StoreRetention`, what `Store.retention` gives: asks the keeper of the store."""

from __future__ import annotations

from rocketstore.engine.engine import Engine
from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import ConfigError, StoreReadOnlyError
from rocketstore.log.layout.named_holds import NAME_MAX, change_hold, load_holds
from rocketstore.services.retention.events import RetentionEvent
from rocketstore.services.retention.keeper import Keeper
from rocketstore.services.retention.plan import RetentionPlan
from rocketstore.services.retention.rule import Retention
from rocketstore.values.arguments import text, whole_number
from rocketstore.values.public import public

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
        self._engine.check_open()
        checked = self._checked(rule)
        return self._keeper.run(self._writing("run"), checked, own=rule is None)

    def hold(self, name: str, offset: int) -> None:
        """Keeps the log from a physical offset on until `release`, also over a reopen.

        Neither a rule nor `Store.trim` removes what is held; only an emergency does. The hold is on
        the disk when this returns. A second call with the name moves its hold.

        Args:
            name: 1 to 255 characters, which plans show. A store has 1,000 holds at most.
            offset: `begin_offset` to `end_offset` of the store, in bytes.

        Raises:
            OffsetOutOfRangeError: The log has not, or no longer, what begins at `offset`.
            ConfigError: A name that is empty or too long, or one hold too many.
            ReadFailedError: `rocketstore/holds.json` is damaged. Nothing goes until it is restored,
                or deleted.
            StoreReadOnlyError, StoreClosedError: The store is not open for writing.
            OSError, DiskFullError: The hold is not on the disk, and may not count.
            TypeError: A name that is no text, or an offset that is no number.
        """
        name, at = text("name", name), whole_number("offset", offset, 0)
        if not 1 <= len(name) <= NAME_MAX:
            raise ConfigError("name", name, f"1 to {NAME_MAX} characters")
        self._change(name, at)

    def release(self, name: str) -> bool:
        """Ends a hold; whether there was one of this name.

        Raises:
            ReadFailedError, StoreReadOnlyError, StoreClosedError, OSError, TypeError: As `hold`.
        """
        return self._change(text("name", name), None)

    @property
    def holds(self) -> dict[str, int]:
        """Physical offset of each hold, by its name. Readers see those of the writer.

        Raises:
            ReadFailedError: As `hold`.
            OSError: The file cannot be read.
        """
        return load_holds(self._engine.layout)

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

    def _change(self, name: str, at: int | None) -> bool:
        engine = self._writing("release" if at is None else "hold")
        return engine.one_at_a_time(
            lambda: change_hold(
                *(engine.layout, name, at), (engine.begin_offset, engine.positions.wrote)
            )
        )

    def _writing(self, call: str) -> WritingEngine:
        self._engine.check_open()
        if not isinstance(self._engine, WritingEngine):
            raise StoreReadOnlyError(
                f"retention.{call}: the store was opened with mode='r'; open it with 'rw' or 'r+'"
            )
        return self._engine

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
