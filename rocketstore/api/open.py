"""The one way in: `rocketstore.open`."""

from __future__ import annotations

import datetime
import logging
import os
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from rocketstore.config import StoreConfig
from rocketstore.config.typed_options import OpenOptions
from rocketstore.engine.exit_hook import open_at
from rocketstore.engine.memory_directory import MEMORY, make_place, remove_place
from rocketstore.engine.open import open_engine
from rocketstore.engine.open_options import SYSTEM_CLOCK, Options
from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import ConfigError, FencedError, StoreBehindError, StoreClosedError
from rocketstore.log.queues.delayed_puts import SCHEDULE_TOPIC, TIMER_TOPIC, Change, Changing
from rocketstore.services.transactions.commit_records import TOPIC as COMMITS
from rocketstore.store import Mode, Store
from rocketstore.values.arguments import YEAR_S, Listener, Progress, SegmentFiles
from rocketstore.values.clock import ManualClock
from rocketstore.values.durability import Durability
from rocketstore.values.public import public

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from rocketstore._native.format.message import Message
    from rocketstore.engine.engine import Engine
    from rocketstore.replication.settings import Master, Replica
    from rocketstore.services.retention.rule import Retention
    from rocketstore.sharing.opening import Shared
    from rocketstore.values.timestamps import Duration

__all__ = ["open_store", "opened"]

logger = logging.getLogger(__name__)


def open_store(
    path: str | os.PathLike[str],
    mode: Mode = "rw",
    *,
    durability: Durability | None = None,
    config: StoreConfig | None = None,
    force: bool = False,
    on_arrival: Listener | None = None,
    on_recovery: Progress | None = None,
    untrusted: bool = False,
    check_queues: bool = False,
    clock: ManualClock | None = None,
    wait_s: Duration = 0.0,
    retention: Retention | None = None,
    replication: Master | Replica | None = None,
    segment_files: SegmentFiles | None = None,
    shared: Shared = False,
    **options: Unpack[OpenOptions],
) -> Store:
    """Opens the store in directory `path`: creates it, recovers it, or follows its writer.

    Args:
        path: ":memory:" is a new store of its own in memory, which is gone when it is closed or its
            process ends. `Store.path` names its directory, on a tmpfs. It keeps each promise as long
            as that is there.
        mode: "rw" creates or opens. "r+" opens a store that exists. "r" takes no lock and writes
            nothing: it follows a live writer, and recovers in memory where the last writer crashed.
            The others deliver delayed messages that are due; `deliver_delayed=False` leaves them.
        durability: What is true when `put` returns. "disk" (default): the message survives a power
            cut. "os": it survives the death of the process. "memory": nothing is promised before
            the commit. "replicas(n)", n 2 … 9: n machines have it on their disks, this one
            included; with `replication=Master(…)` only.
        config, options: A StoreConfig, or its fields by name; options win. docs/options.md explains
            them.
        force: Opens although segments of the log are missing (D-25); a reader shows what is left.
        on_arrival: Called with (topic, queue_id, next_queue_offset, tags_code, store_timestamp_ms)
            after a message was dispatched, from a thread of its own.
        on_recovery: Called with (what, done_bytes, total_bytes) while the recovery runs.
        untrusted: For a directory that others may have made or may change, with mode "r" only. The
            store reads the log once, checks it as a whole and keeps it in memory; it maps no file,
            and believes no queue, index or checkpoint of the directory.
        check_queues: The open compares the queues with the whole log, at any size and after any
            stop. Without it the open compares them only where another program may have changed
            them, and reads no more than 256 MiB of the log for it. `recovery.refilled_queues` says what was missing.
        clock: For tests: a `rocketstore.testing.ManualClock`, which store times and whatever the
            store does at a time of its own follow. None: the clock of the system.
        wait_s: How long an open for writing waits until another process that has the store open
            closes it, or ends, seconds; `float("inf")` without end. An open waits one second in any
            case, and does not wait for a store that this process has open.
        retention: What leaves the front of the log by itself while the store is open for writing:
            see `Retention`. None: only `trim` removes something.
        replication: Whether the store sends its log to copies of it, or is a copy: see
            `rocketstore.replication.Master` and `Replica`. None: neither.
        segment_files: Called with (directory, size_bytes), ahead of puts and mostly from a thread of
            its own, for each new segment of the log; gives a descriptor, open for reading and
            writing, of an empty regular file without a name (O_TMPFILE) on the file system of
            `directory`, which the store sizes, owns and names. So files can have attributes of
            their own: of compression, of DAX, of a project's quota. What it raises, or gives that
            is no such file, the open or put that needs the segment raises as OSError.
        shared: True: several processes have the store, with the same calls. The first one holds it, each
            further one puts through that and reads the files itself; where the one that holds it ends, another
            one does from then on. "guest": this process never holds the store. "host": it holds it, or the open
            fails. An open looks for the others for five seconds, or for `wait_s`. See
            docs/several_processes.md.

    Raises:
        ConfigError: An unknown or wrong option, or one that contradicts the files. No memory file
            system for ":memory:": mount a tmpfs, and name it by TMPDIR.
        StoreLockedError: Another process has the store open for writing, still after `wait_s`;
            `waited_s` says how long this one waited. With `shared`, it does not share the store, or does not
            answer; with "guest", no process holds it.
        GuestStoreError: The process that holds the store does not take this one.
        StoreRecoveringError: With mode "r", a process recovers or rebuilds the store.
        MissingSegmentsError: Files of the commit log are missing.
        ReadFailedError: With `untrusted`, a log larger than half of the memory, or one that
            shrinks.
        DiskFullError: There is no room for the first files.
        ReplicaStoreError: The store is a copy of another one, and was not opened as one; or is to
            be a copy, and has messages that no master of it is known to have.
        FencedError: Another store was promoted in the place of this master, which `replication=`
            would open as one. Without `replication=` it opens, and takes no puts.
        ReplicationError: The role of the store cannot be read.
        FileNotFoundError, NotADirectoryError, PermissionError: As the system says. OSError, too, where
            a master cannot listen at its address.
        RuntimeError: This is a sub-interpreter.
    """
    if mode not in ("rw", "r+", "r"):
        raise ConfigError("mode", mode, "'rw', 'r+' or 'r'")
    path = _directory(path)
    if shared is not False:
        _check_shared(shared, mode, path, on_arrival=on_arrival, retention=retention,
                      replication=replication, clock=clock, untrusted=untrusted)  # fmt: skip
    if config is not None and not isinstance(config, StoreConfig):
        raise ConfigError("config", config, "must be a StoreConfig; options go in by their names")
    for name, flag in (("force", force), ("untrusted", untrusted), ("check_queues", check_queues)):
        if not isinstance(flag, bool):
            raise ConfigError(name, flag, "must be True or False")
    called = {"on_arrival": on_arrival, "on_recovery": on_recovery, "segment_files": segment_files}
    for name, callback in called.items():
        if callback is not None and not callable(callback):
            raise ConfigError(name, callback, "must be None or can be called")
    given: dict[str, Any] = {**options}
    if durability is not None:
        given["durability"] = durability
    config = StoreConfig(**given) if config is None else config.replace(**given)
    if untrusted and mode != "r":
        raise ConfigError("untrusted", untrusted, "True with mode='r' only: nothing may be written")
    if not isinstance(clock, ManualClock | None):
        raise ConfigError("clock", clock, "None or a rocketstore.testing.ManualClock")
    wait_s = _checked_wait(wait_s, mode)
    if retention is not None:
        from rocketstore.services.retention.rule import check_retention

        check_retention(retention, mode)
    options_given = Options(
        config,
        force,
        on_arrival,
        on_recovery,
        untrusted,
        check_queues,
        clock=clock or SYSTEM_CLOCK,
        wait_s=min(wait_s, YEAR_S),
        has_replicas=replication is not None,
        is_copy=replication is not None and _asks_for_copy(replication, mode),
        segment_files=segment_files,
    )
    if shared is not False:
        from rocketstore.sharing.opening import open_shared

        return open_shared(path, mode, shared, options_given, partial(_hold, retention=retention))
    return Store(_begun(path, mode, options_given, retention, replication), mode)


open_store.__name__ = open_store.__qualname__ = "open"  # what help and tracebacks show
open_store.__module__ = "rocketstore"  # where a pickle finds that name


def _check_shared(shared: Shared, mode: Mode, path: str, **refused: object) -> None:
    from rocketstore.sharing.opening import check_shared

    check_shared(shared, mode, path, **refused)


def _asks_for_copy(replication: Master | Replica, mode: Mode) -> bool:
    from rocketstore.replication.open import asks_for_copy

    return asks_for_copy(replication, mode)


def _checked_wait(wait_s: Duration, mode: Mode) -> float:
    """Seconds. Raises ConfigError."""
    if isinstance(wait_s, datetime.timedelta):
        wait_s = wait_s.total_seconds()
    if type(wait_s) not in (int, float) or not wait_s >= 0:
        raise ConfigError("wait_s", wait_s, "a number of seconds, 0 or more")
    if wait_s and mode == "r":
        raise ConfigError("wait_s", wait_s, "of mode 'rw' or 'r+': a reader takes no lock")
    return wait_s


@public
def opened(path: str | os.PathLike[str]) -> Store:
    """Gives the store that this process has open for writing in directory `path`.

    It is the same store, also where no variable holds it any more, as in a notebook whose cell ran
    twice. A close by one variable closes it for all.

    Raises:
        StoreClosedError: This process has no store open for writing there.
        ConfigError: `path` is no name of a directory.
    """
    path = _directory(path)
    engine = open_at(path)
    if not isinstance(engine, WritingEngine):
        raise StoreClosedError(
            f"{path}: this process has no store open for writing there; open it with "
            f"rocketstore.open({path!r})"
        )
    return Store(engine, "rw")


def _hold(path: str, mode: Mode, options: Options, retention: Retention | None) -> WritingEngine:
    """The engine of a store that this process shares with others."""
    engine = _begun(path, mode, options, retention, None)
    assert isinstance(engine, WritingEngine)
    return engine


def _begun(
    path: str,
    mode: Mode,
    options: Options,
    retention: Retention | None,
    replication: Master | Replica | None,
) -> Engine:
    """The engine of the open store, with its services; where something fails, what began has ended."""
    engine: Engine | None = None
    if in_memory := path == MEMORY:
        path = make_place(mode)
    try:
        engine = open_engine(path, mode, options)
        if isinstance(engine, WritingEngine):
            engine = _in_role(engine, replication, options)
            _serve(engine, retention, force=options.force)
            if replication is not None:
                from rocketstore.replication.open import begin

                begin(engine, replication)
        return engine
    except BaseException:
        if engine is not None:
            engine.close()  # services that began end with it
        if in_memory:
            remove_place(path)
        raise


def _serve(engine: WritingEngine, retention: Retention | None, *, force: bool) -> None:
    """Begins the services of a store."""
    if not engine.copy_of:
        _finish_transactions(engine, force=force)
        _serve_delays(engine)
    if retention is not None:
        from rocketstore.services.retention.service import keep_by

        keep_by(engine, retention)


def _in_role(
    engine: WritingEngine, replication: Master | Replica | None, options: Options
) -> WritingEngine:
    """The engine of a store that is, or was, a master or a copy, before anything is put."""
    if replication is None:
        if engine.layout.replication.exists():
            from rocketstore.replication.role.startup import take_plain_role

            take_plain_role(engine)
        return engine
    from rocketstore.replication.open import take_role

    return take_role(engine, replication, options)


def _finish_transactions(engine: WritingEngine, *, force: bool) -> None:
    """Of a store that has commits of transactions: what a crash cut is finished before anyone
    reads. Where dispatch is stopped, the flags say so, and the next transaction finishes it."""
    if not engine.has_queues(COMMITS):
        return
    from rocketstore.services.transactions.commits import commits_of

    try:
        commits_of(engine)
    except Exception as error:
        if not force and not isinstance(error, StoreBehindError | FencedError):
            error.add_note(
                "a transaction that was committed before a crash is not finished; with force=True "
                "the store opens without it, and its first `transaction()` tries again"
            )
            raise
        logger.warning("%s: a committed transaction is not finished: %s", engine.path, error)


def _serve_delays(engine: WritingEngine) -> None:
    """Has delayed messages kept and delivered, those that wait and those to come. Whatever is in the
    way of it is met by its own thread."""

    def waits() -> bool:
        return any(map(engine.has_queues, (SCHEDULE_TOPIC, TIMER_TOPIC)))

    # What is not dispatched is kept in any case.
    def needs_from(topic: str) -> int | None:
        if not engine.has_queues(topic):
            return None
        from rocketstore.services.delay import waits_from

        return waits_from(engine, topic)

    def roll(below: int, most: int) -> int | None:
        from rocketstore.services.delay.rolling import roll

        return roll(engine, below, most)

    def is_waiting(message: Message) -> bool:
        from rocketstore.services.delay import is_waiting

        return is_waiting(engine, message)

    def changing(changes: Sequence[Change]) -> AbstractContextManager[Changing]:
        from rocketstore.services.delay import Changing

        return Changing(engine, changes)

    engine.delayed_puts.changing = changing
    engine.guests.hold("delayed messages", partial(needs_from, SCHEDULE_TOPIC))
    engine.guests.hold("timers", partial(needs_from, TIMER_TOPIC), roll)
    engine.unique_ids.waits = is_waiting
    if not engine.config.deliver_delayed:
        return

    def deliver(queue_id: int | None, delay_ms: int) -> None:
        from rocketstore.services.delay import note_put  # with the first delayed message

        note_put(engine, queue_id, delay_ms)

    engine.delayed_puts.deliver = deliver
    # Where dispatch is stopped, some may wait in the log alone.
    stands = engine.positions.dispatched < engine.positions.visible
    if stands or waits():
        from rocketstore.services.delay import deliver_in

        deliver_in(engine)


def _directory(path: object) -> str:
    """The path as text; "" would be the current directory."""
    named = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(named, str):
        raise ConfigError("path", path, "must be a str or an os.PathLike of one")
    if not named:
        raise ConfigError("path", named, "must name a directory; '.' is the current one")
    if "\0" in named:
        raise ConfigError("path", named, "no file name has a character 0")
    return named
