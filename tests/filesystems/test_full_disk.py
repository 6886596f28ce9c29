"""Full disks: an exception and no signal, and everything goes on once there is room, without reopening."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Final

import pytest

from tests.filesystems.disks import KINDS, Disk, disk
from tests.filesystems.tables import table
from tests.process.other_process import SMALL, number_of, open_small, other_process

pytestmark = [pytest.mark.root, pytest.mark.proof]

#: What runs out of room, and what makes it the first: an amply large log, or an index of small files. A segment gets
#: its blocks in steps of 2 MiB.
AMPLE: Final = {"commit_log_file_size_bytes": 1 << 20, "write_buffer_bytes": 1 << 18}
FILES: Final[dict[str, dict[str, int]]] = {
    "commit log": {},
    "segment": {**AMPLE, "commit_log_file_size_bytes": 16 << 20},
    "queue": AMPLE,
    "index": {**AMPLE, "index_entries": 64},
    "checkpoint": AMPLE,
}
#: Puts rounds of messages as it is told: {"first": n, "queues": [...], "keys": bool, "body": bytes}. Says
#: how many were acknowledged, as (queue, number) pairs, and which errors came.
WRITER = """
from collections import Counter
from tests.support.small_store import parts
from rocketstore import RocketStoreError
store = rocketstore.open(path, **options)
writers = {}
group = None

def round_(first, queues, keys, size, count):
    global group
    done, errors = [], Counter()
    for number in range(first, first + count):
        queue = queues[number % len(queues)]
        if queue not in writers:
            writers[queue] = store.writer(TOPIC, queue_id=queue)
        try:
            writers[queue].put(b"%d:" % number + bytes(size), durability="disk",
                               keys="k%d" % number if keys else None)
            done.append((queue, number))
        except (RocketStoreError, OSError) as error:
            errors["put " + type(error).__name__] += 1
    try:
        parts(store).checkpointer.save(derived=True)
    except (RocketStoreError, OSError) as error:
        errors["checkpoint " + type(error).__name__] += 1
    try:
        if group is None:
            group = store.consumer(TOPIC, group="billing")
        group.poll(5)
        group.commit()
    except (RocketStoreError, OSError) as error:
        errors["group " + type(error).__name__] += 1
    return done, dict(errors)

while line := told():
    say(json.dumps(round_(**json.loads(line))))
deadline = time.monotonic() + 20
while store.dispatched_offset < store.end_offset and time.monotonic() < deadline:
    if parts(store).commit_log.failure is not None:
        break
    time.sleep(0.02)
found = {q: [int(bytes(m.body).partition(b":")[0]) for m in store.consumer(TOPIC, queue_id=q)]
         for q in store.queues(TOPIC)}
say(json.dumps(found))
if group is not None:
    group.close()
store.close()
say("closed")
"""


#: Here even prewritten blocks need room when they change, so a full disk can fail a write of the log; that
#: is final for the open store (D-13), and opening it again is the way back.
COPY_ON_WRITE: Final = ("btrfs",)
FAILED: Final = "put StoreFailedError"
FULL: Final = "put DiskFullError"


class Outcome:
    """One cell: what was heard while the disk was full, and whether the process lived on."""

    def __init__(self) -> None:
        self.full_errors: dict[str, int] = {}
        self.put_while_full = 0
        self.failed = False
        self.wrong = ""

    def __str__(self) -> str:
        heard = (
            ", ".join(f"{count} {name}" for name, count in self.full_errors.items()) or "nothing"
        )
        how = "ok after reopening" if self.failed else "ok"
        return self.wrong or f"{how}: {self.put_while_full} put; heard {heard}"


def fill_and_go_on(made: Disk, path: Path, file: str, durability: str) -> Outcome:
    """A store on a disk that becomes full, and has room again."""
    outcome = Outcome()
    acknowledged: list[tuple[int, int]] = []
    options = {**SMALL, **FILES[file]}
    big = file in ("commit log", "segment")
    full = {"commit log": 9, "segment": 300}.get(file, 60)

    def play(first: int, queues: list[int], count: int) -> dict[str, int]:
        order = {"first": first, "queues": queues, "keys": file == "index", "count": count}
        writer.hears(json.dumps({**order, "size": 8000 if big else 50}))
        said = writer.line()
        assert said, f"the writer ended with {writer.process.wait(60)}: a signal, if negative"
        done, errors = json.loads(said)
        acknowledged.extend((queue, number) for queue, number in done)
        outcome.put_while_full = len(done)
        return dict(errors)

    with other_process(WRITER, path, durability=durability, **options) as writer:
        calm = play(0, [0, 1], 12)
        ballast = made.fill()
        # A put that needs a segment waits for the next try to make one: up to a second.
        outcome.full_errors = play(100, [0, 1, 2, 3], full)
        put = outcome.put_while_full
        ballast.unlink()
        os.sync()  # btrfs has the room again with its next transaction, and not before
        later = play(1000, [0, 1, 2, 3, 4], 30)
        outcome.put_while_full = put
        outcome.failed = made.kind in COPY_ON_WRITE and set(later) <= {FAILED, "group OSError"}
        writer.hears()
        found = {int(queue): numbers for queue, numbers in json.loads(writer.line()).items()}
        assert writer.line() == "closed", f"the writer ended with {writer.process.wait(60)}"
        writer.ends()
    with open_small(path, **options) as store:
        if outcome.failed:
            store.writer("Orders").put(b"300:")
            acknowledged.append((0, 300))
        again = {
            queue: [number_of(m.body) for m in store.consumer("Orders", queue_id=queue)]
            for queue in store.queues("Orders")
        }
    wanted: dict[int, list[int]] = {}
    for queue, number in acknowledged:
        wanted.setdefault(queue, []).append(number)
    if outcome.failed:
        # What was put and not acknowledged may be there: the disk refused it, or its sync.
        lost = [(q, n) for q, n in acknowledged if n not in again.get(q, [])]
        outcome.wrong = f"lost: {lost}" if lost else ""
    elif calm or later:
        outcome.wrong = f"errors with room: {calm} {later}"
    elif found != wanted:
        outcome.wrong = f"not what was acknowledged: {found} {wanted}"
    elif file == "segment" and made.kind not in COPY_ON_WRITE and FULL not in outcome.full_errors:
        outcome.wrong = f"no put was refused: {outcome}"
    elif again != found:
        outcome.wrong = f"another store after reopening: {again} {found}"
    return outcome


@pytest.mark.parametrize("kind", KINDS)
def test_full_disks(tmp_path: Path, kind: str) -> None:
    """Each kind of file on each file system: no signal, and appends go on after space came back."""
    rows = []
    with disk(tmp_path, kind) as made:
        for file in FILES:
            for durability in ("disk", "os"):
                path = made.path / f"{file.replace(' ', '-')}-{durability}"
                outcome = fill_and_go_on(made, path, file, durability)
                rows.append((kind, file, durability, outcome))
                shutil.rmtree(path)  # the next one needs the room
    table("A full disk", ("file system", "file", "durability", "outcome"), rows)
    assert [(*row[:3], row[3].wrong) for row in rows if row[3].wrong] == []
