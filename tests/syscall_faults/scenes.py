"""The reference workload: short lives of a store with tiny files, each from an empty directory or from
a store that another one left. `SCENES` names them; together they use every entry of the table."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocketstore.services.transactions import commits
from rocketstore.tools import verify
from tests.support.small_store import SEGMENT, SMALL, open_small
from tests.support.transactions import record_alone
from tests.syscall_faults.journal import COMPACTED, DAY, KEYED, LATER, Run

__all__ = ["SCENES", "Scene"]

#: One more than the dispatcher syncs file by file.
QUEUES = 66
OTHER_USER = 12345
#: What a crash cut: its commit record is in the log.
CUT = [f"cut-{n}" for n in range(3)]


@dataclass(frozen=True)
class Scene:
    """`prepare` makes what the scene finds, once, without a fault."""

    act: Callable[[Run], None]
    options: dict[str, Any]
    prepare: Callable[[Path], None] | None = None


def life(run: Run) -> None:
    """A new store: every kind of put at every level, rolls, groups, a query, a trim, a clean stop."""
    store = run.open(on_arrival=lambda *_: None)
    if store is None:
        return
    run.put("orders", 6)
    run.put("orders", 3, "disk")
    run.put("orders", 3, "os")
    run.put("orders", 3, "memory")
    run.put_batch("orders", 5)
    run.put_written("orders", 3)
    run.submit("orders")
    run.put_from_a_loop("orders")
    run.put("more", 12, size=101)
    run.commit("orders", "billing", 4)
    run.put("orders", 14, size=101)
    if store.config.index_enabled:
        run.query("orders", "1")
    with run.act("wait_flushed"):
        store.wait_flushed(store.end_offset)
    run.commit("orders", "billing", 4)
    run.read("orders")
    with run.act("configure"):
        store.configure(flush_interval_ms=5)
    run.put("orders", 2)
    run.trim(SEGMENT)
    run.close()


def again(run: Run) -> None:
    """A store that was there: whatever its end, it is opened, read, put to and closed."""
    if run.open() is None:
        return
    for topic in ("orders", "more"):
        run.read(topic)
    run.put("orders", 8, size=101)
    run.put_batch("orders", 3)
    run.commit("orders", "billing", 100)
    run.close()


def readers(run: Run) -> None:
    """A dead store is read, recovered in memory and verified; a live one is followed."""
    for _ in range(2):
        if run.open("r") is not None:
            run.read("orders")
            run.query("orders", "1")
            run.close()
    writer = run.open()
    with run.act("verify"):
        verify(run.root, index_slots=SMALL["index_slots"], index_entries=SMALL["index_entries"])
    if run.open("r") is not None:
        run.read("orders")
    follower, run.store = run.store, writer
    if writer is not None:
        run.put("orders", 9, size=101)
        run.put("late", 2)
    run.store = follower
    if follower is not None:
        run.read("orders")
        run.read("late")
        run.query("orders", "1")
        run.close()
    run.store = writer
    run.close()


def shared(run: Run) -> None:
    """A store that is held for others, and a guest of it."""
    host = run.open(shared="host")
    if host is None:
        return
    if run.open(shared="guest") is not None:
        run.put("orders", 6)
        run.put("orders", 3, "os")
        run.put_batch("orders", 5)
        run.read("orders")
        run.commit("orders", "billing", 4)
        run.close()
    run.store = host
    run.put("orders", 14, size=101)
    run.close()


def wide(run: Run) -> None:
    """More dirty queues than are synced one by one."""
    if (store := run.open()) is not None:
        with run.act("writer"):
            writer = store.writer("orders", queues=QUEUES)
            for body in run.bodies(QUEUES, 3):
                run.acked("orders", writer.put(body.encode(), durability="os"), [body])
        run.close()


def transactions(run: Run) -> None:
    """Of messages and offsets; with others in between."""
    if run.open() is None:
        return
    run.put("orders", 8)
    for _ in range(3):
        run.transact("billing")
        run.put("more", 2)
    run.read("made")
    run.close()


def finish(run: Run) -> None:
    """An open puts what a crash took of a transaction."""
    run.say("transactions", CUT)
    run.say("committed", CUT)
    if run.open() is not None:
        run.read("made")
        run.transact("billing")
        run.close()


def retain(run: Run) -> None:
    """What waits and the latest messages of keys are put again, twice."""
    if run.open() is None:
        return
    for _ in range(2):
        for _ in range(3):
            run.keep(LATER, deliver_after=DAY)
            run.keep(KEYED)
        run.put("more", 24, size=101)
        run.retain()
    run.close()


def compact(run: Run) -> None:
    if run.open() is None:
        return
    run.put("orders", 30, size=101)
    with run.act("writer"):
        assert run.store is not None
        for body in run.bodies(4, 50):  # one key
            run.acked("orders", run.store.writer("orders").put(body.encode(), keys="k"), [body])
    if not run.compact("orders"):
        run.compact("orders")
    run.put("orders", 1)
    run.compact("orders", base=COMPACTED)
    run.close()


def destroy(run: Run) -> None:
    if (store := run.open()) is not None:
        run.put("orders", 2, "memory")
        with run.act("destroy"):
            run.say("destroyed", True)
            store.destroy()


# ---- what scenes find ----


def _unprepared(root: Path, mode: str, *, clean: bool) -> None:
    """The store of a process that goes away, as a rule without closing it."""
    pid = os.fork()
    if pid == 0:
        null = os.open(os.devnull, os.O_WRONLY)
        run = Run(root, null, durability=mode)
        store = run.open()
        assert store is not None
        run.put("orders", 20, size=101)
        run.put("more", 12, size=101)
        run.put_batch("orders", 4)
        store.wait_flushed(store.end_offset)
        run.commit("orders", "billing", 7)
        if clean:
            run.close()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


def stopped(mode: str, root: Path) -> None:
    _unprepared(root, mode, clean=True)


def killed(mode: str, root: Path) -> None:
    _unprepared(root, mode, clean=False)


def cut_transaction(mode: str, root: Path) -> None:
    """The record of a transaction is in the log, and none of its copies."""
    _unprepared(root, mode, clean=True)
    pid = os.fork()
    if pid == 0:
        commits.append_batch = record_alone
        store = open_small(root, durability="disk")
        with store.transaction() as tx:
            for body in CUT:
                tx.put("made", body.encode())
            tx.put(LATER, b"", unique_id=CUT[0], deliver_after=DAY)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


def torn(mode: str, root: Path) -> None:
    """Half a record behind the last one, and no queues."""
    _unprepared(root, mode, clean=False)
    with open_small(root, "r") as store:
        end = store.end_offset
    log = sorted((root / "commitlog").iterdir())
    first = log[0].read_bytes()
    size = int.from_bytes(first[:4], "big")
    with (root / "commitlog" / f"{end - end % SEGMENT:020d}").open("r+b") as file:
        file.seek(end % SEGMENT)
        file.write(first[: size // 2])
    for path in (root / "consumequeue" / "more" / "0").iterdir():
        path.unlink()


def foreign(mode: str, root: Path) -> None:
    """RocketMQ wrote last and was killed: stale bytes behind the end, damage in the middle, a short
    last segment."""
    torn(mode, root)
    (root / "lock").write_bytes(b"lock")
    log = sorted((root / "commitlog").iterdir())
    with log[1].open("r+b") as file:
        file.seek(2000)
        file.write(b"\xff" * 40)
    with (root / "commitlog" / f"{len(log) * SEGMENT:020d}").open("wb") as file:
        file.write(b"\x01" * 1000)


def given(mode: str, root: Path) -> None:
    """A store of somebody else, opened by root."""
    killed(mode, root)
    if os.geteuid() == 0:
        for path in (root, *root.rglob("*")):
            os.chown(path, OTHER_USER, OTHER_USER)


def _modes(name: str, act: Callable[[Run], None], **more: Any) -> dict[str, Scene]:
    prepare = more.pop("prepare", None)
    return {
        f"{name}-{mode}": Scene(
            act,
            {"durability": mode, **more},
            functools.partial(prepare, mode) if prepare is not None else None,
        )
        for mode in ("disk", "os", "memory")
    }


SCENES: dict[str, Scene] = {
    **_modes("life", life),
    "prewrite": Scene(life, {"durability": "disk", "prewrite": True, "index_enabled": False}),
    "stopped": Scene(again, {"durability": "os"}, functools.partial(stopped, "disk")),
    **_modes("killed", again, prepare=killed),
    "torn": Scene(again, {"durability": "disk"}, functools.partial(torn, "disk")),
    "foreign": Scene(again, {"durability": "os"}, functools.partial(foreign, "os")),
    "given": Scene(again, {"durability": "disk"}, functools.partial(given, "disk")),
    "wide": Scene(wide, {"durability": "os", "index_enabled": False}),
    "readers": Scene(readers, {"durability": "os"}, functools.partial(killed, "os")),
    "readers-torn": Scene(readers, {"durability": "disk"}, functools.partial(torn, "disk")),
    **_modes("transactions", transactions),
    "finish": Scene(finish, {"durability": "disk"}, functools.partial(cut_transaction, "disk")),
    "retain": Scene(retain, {"durability": "os"}),
    "retain-disk": Scene(retain, {"durability": "disk"}),
    "compact": Scene(compact, {"durability": "os"}),
    "destroy": Scene(destroy, {"durability": "os"}),
    **_modes("shared", shared),
}
