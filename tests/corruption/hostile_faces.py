"""The faces of a store, each in a child process that tells what it saw and what it cost."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rocketstore
from rocketstore import tools
from tests.corruption.mutations import Known

__all__ = [
    "FACES",
    "SEGMENT",
    "SIZES",
    "Outcome",
    "command",
    "in_a_child",
    "peak_bytes",
    "run_face",
    "served",
]

SEGMENT = 16384
SIZES: dict[str, Any] = {
    "commit_log_file_size_bytes": SEGMENT,
    "consume_queue_file_size_bytes": 640,
    "index_slots": 31,
    "index_entries": 200,
    "max_message_size_bytes": 4096,
}
#: Processor seconds of one face, and seconds on the clock: other processes may have the cores.
CPU_S, WALL_S = 10, 120
#: Memory of one face beyond what its process has before, and beyond the files, bytes.
MEMORY_BYTES = 256 << 20
#: Messages that a face reads of a topic, a count.
READ_MAX = 2000
TYPED = (rocketstore.RocketStoreError, OSError)


def served(store: rocketstore.Store) -> Iterator[Known]:
    for topic in store.topics(system=True):
        for count, message in enumerate(store.consumer(topic)):
            if count == READ_MAX:
                break
            yield (
                message.topic,
                message.queue_id,
                message.queue_offset,
                message.physical_offset,
                bytes(message.body),
            )


def _read(path: Path, mode: Any, **options: Any) -> Iterator[Known]:
    with rocketstore.open(path, mode, **options) as store:
        if mode != "r":
            store.writer("later").put(b"later")
        yield from served(store)
        for key in ("k0", "k1", "k2"):
            for message in store.query("orders", key=key):
                where = message.queue_id, message.queue_offset, message.physical_offset
                yield (message.topic, *where, bytes(message.body))


def _scan(path: Path) -> Iterator[Known]:
    columns = ["topic", "queue_id", "queue_offset", "physical_offset"]
    for rows in rocketstore.scan(path, columns=columns, system_topics=True, on_damage="skip"):
        len(rows)
    yield from ()


def _metrics(path: Path) -> Iterator[Known]:
    from prometheus_client import CollectorRegistry, generate_latest

    from rocketstore.metrics import StoreCollector

    with rocketstore.open(path, "r") as store:
        registry = CollectorRegistry()
        registry.register(StoreCollector({"it": store}))
        generate_latest(registry)
    yield from ()


def command(*arguments: str) -> Callable[[Path], Iterator[Known]]:
    def run(path: Path) -> Iterator[Known]:
        from rocketstore.cli import main

        sys.argv = ["rocketstore", arguments[0], os.fspath(path), *arguments[1:]]
        main()
        yield from ()

    return run


def _rebuild(path: Path) -> Iterator[Known]:
    tools.rebuild(path, workers=1)
    yield from _read(path, "r")


def _repair(path: Path) -> Iterator[Known]:
    tools.repair(path)
    yield from _read(path, "r")


def _verify(path: Path) -> Iterator[Known]:
    tools.verify(path)
    yield from ()


Faces = dict[str, Callable[[Path], Iterator[Known]]]
FACES: Faces = {
    "r": lambda path: _read(path, "r"),
    "untrusted": lambda path: _read(path, "r", untrusted=True),
    "r+": lambda path: _read(path, "r+"),
    "rw": lambda path: _read(path, "rw", **SIZES),
    "scan": _scan,
    "verify": _verify,
    "repair": _repair,
    "rebuild": _rebuild,
    "metrics": _metrics,
    "recover": command("recover"),
    "stat": command("stat"),
}


# ---- one face in a child ----


@dataclass
class Outcome:
    """What became of one face: its error, what it cost, what it served."""

    error: str = ""
    typed: bool = True
    traceback: str = ""
    said: bool = False
    signal: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    memory_bytes: int = 0
    served: list[list[Any]] = field(default_factory=list)

    def costs(self, most_s: float, most_bytes: int) -> Iterator[str]:
        """What it took beyond a bound, and how it may not end."""
        if self.signal == signal.SIGKILL:
            yield "hang"
        elif self.signal:
            yield f"signal {self.signal}"
        if self.cpu_s > most_s:
            yield f"took {self.cpu_s:.0f} s"
        if self.memory_bytes > most_bytes:
            yield f"took {self.memory_bytes >> 20} MiB"
        if not self.typed:
            yield f"untyped {self.error}"

    def faults(self, held: dict[int, Known], file_bytes: int, *, foreign: bool) -> Iterator[str]:
        yield from self.costs(CPU_S, MEMORY_BYTES + file_bytes)
        for topic, queue_id, queue_offset, where, body in self.served:
            known = held.get(where)
            found = (topic, queue_id, queue_offset, where, bytes.fromhex(body))
            if topic == "later" or known == found:
                continue
            # RocketMQ leaves record checksums that do not hold: only the body's is believed.
            if not foreign or known is None or known[3:] != found[3:]:
                yield f"served {found}, stored {known}"
                return


class _Heard(logging.Handler):
    count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += record.levelno >= logging.WARNING


def run_face(name: str, path: Path, faces: Faces | None = None) -> Outcome:
    """Forks; the child opens the store and tells through a pipe what it saw."""
    reading, writing = os.pipe()
    began = time.monotonic()
    child = os.fork()
    if not child:
        os.close(reading)
        _child((faces or FACES)[name], path, writing)
    os.close(writing)
    killed = False
    chunks = []
    os.set_blocking(reading, False)
    peak = before = peak_bytes(child)
    while True:
        with contextlib.suppress(BlockingIOError):
            chunk = os.read(reading, 1 << 20)
            if not chunk:
                break
            chunks.append(chunk)
            continue
        peak = max(peak, peak_bytes(child))
        if not killed and (time.monotonic() - began > WALL_S or peak - before > 2 << 30):
            os.kill(child, signal.SIGKILL)
            killed = True
        time.sleep(0.005)
    os.close(reading)
    _, status, usage = os.wait4(child, 0)
    found = json.loads(b"".join(chunks) or b"{}")
    return Outcome(
        **{"memory_bytes": peak - before, **found},
        signal=status & 0x7F,
        cpu_s=usage.ru_utime + usage.ru_stime,
        wall_s=time.monotonic() - began,
    )


def peak_bytes(process: int | str = "self", *, anew: bool = False) -> int:
    """Most memory that a process had, bytes. `anew`: forgets what this one had."""
    if anew:
        Path("/proc/self/clear_refs").write_text("5")
    with contextlib.suppress(OSError), open(f"/proc/{process}/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    return 0


def _child(face: Callable[[Path], Iterator[Known]], path: Path, writing: int) -> None:
    heard = _Heard()
    logging.getLogger().handlers[:] = [heard]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (2 * CPU_S, 2 * CPU_S))
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    found: dict[str, Any] = {"served": []}
    before = peak_bytes(anew=True)
    try:
        for *place, body in face(path):
            found["served"].append([*place, body.hex()])
    except BaseException as error:
        found |= {
            "error": f"{type(error).__name__}: {str(error)[:300]}",
            "typed": isinstance(error, TYPED),
            "traceback": "".join(traceback.format_exception(error))[-3000:],
        }
    found["memory_bytes"] = peak_bytes() - before
    found["said"] = bool(heard.count)
    data = memoryview(json.dumps(found).encode())
    while data:
        data = data[os.write(writing, data) :]
    os._exit(0)


def in_a_child(work: Callable[[], Any], wall_s: float) -> tuple[Any, str]:
    """What `work` gives in a forked process, as JSON carries it, and how that died: "" if it did not."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        with contextlib.suppress(BaseException), os.fdopen(writing, "w", encoding="utf-8") as pipe:
            try:
                json.dump(work(), pipe)
            except BaseException:
                traceback.print_exc()
                raise
        os._exit(0)
    os.close(writing)
    timer = threading.Timer(wall_s, os.kill, (child, signal.SIGKILL))
    timer.start()
    with os.fdopen(reading, encoding="utf-8") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    timer.cancel()
    if status or not answer:
        return None, f"signal {status & 0x7F}" if status else "no answer"
    return json.loads(answer), ""
