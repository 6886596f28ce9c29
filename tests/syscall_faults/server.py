"""Runs cases, each in a forked child of a process without threads: `python -m tests.syscall_faults.server`.

Reads one line of JSON a case from standard input and answers with one line. Everything that is loaded
once is loaded before the first case; a child that hangs is killed and reported with its stacks.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import logging
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rocketstore.cli.app  # loads everything
from rocketstore.log.layout.positions_page import boot_id
from tests.support import native_probe
from tests.syscall_faults import tracing
from tests.syscall_faults.injecting import Case, Injector, Recorder
from tests.syscall_faults.journal import Journal, Run
from tests.syscall_faults.judging import held, judge, left_behind
from tests.syscall_faults.scenes import SCENES

HANG_S = 60
#: What a worker says when it ends with an error; every other class than these is a fault of ours.
WORKER_FAILED = re.compile(r"failed: (\w+)\(")


class Server:
    def __init__(self, built: Path, base: Path) -> None:
        self.table = native_probe.load_built(built)
        self.base = base
        self._found: dict[str, tuple[Path | None, list[str]]] = {}

    # ---- one case ----

    def run(self, case: Case) -> dict[str, Any]:
        began = time.monotonic()
        journal = Journal()
        with tempfile.TemporaryDirectory(dir=self.base) as directory:
            root = self._prepared(case.scene, Path(directory), journal)
            if case.site == tracing.OUTSIDE:
                status = self._traced(case, root, journal)
            else:
                status = self._in_child(lambda channel: self._act(case, root, channel), journal)
            if status != (signal.SIGKILL if case.answer == "KILL" and journal.fired else 0):
                journal.wrong.append(f"the process ended with {os.waitstatus_to_exitcode(status)}")
            if os.WIFSIGNALED(self._judged(case, root, journal)):
                journal.wrong.append("the oracle's process was killed")
        return {
            "fired": journal.fired,
            "wrong": journal.wrong,
            "errors": journal.errors,
            "acks": len(journal.acks),
            "rows": journal.rows,
            "logged": journal.logged,
            "seconds": time.monotonic() - began,
        }

    def _judged(self, case: Case, root: Path, journal: Journal) -> int:
        return self._in_child(lambda channel: self._judge(case, root, journal, channel), journal)

    def _prepared(self, name: str, directory: Path, journal: Journal) -> Path:
        root = directory / "store"
        if name not in self._found:
            self._found[name] = self._prepare(name)
        template, bodies = self._found[name]
        journal.sent += bodies
        if template is not None:
            subprocess.run(["cp", "-a", str(template), str(root)], check=True)
        return root

    def _prepare(self, name: str) -> tuple[Path | None, list[str]]:
        scene = SCENES[name]
        if scene.prepare is None:
            return None, []
        template = self.base / f"template-{name}"
        scene.prepare(template)
        copy = self.base / f"copy-{name}"
        subprocess.run(["cp", "-a", str(template), str(copy)], check=True)
        heard = Journal()
        self._in_child(lambda channel: _say(channel, "rows", held(copy)), heard)
        shutil.rmtree(copy)
        return template, heard.rows

    def _traced(self, case: Case, root: Path, journal: Journal) -> int:
        """As `_act`, under strace, which makes the fault. `nth` counts the calls of one thread."""
        waits, go = os.pipe()
        log = root.parent / "trace"
        tracers: list[subprocess.Popen[str]] = []

        def act(channel: int) -> None:
            faulthandler.enable()
            tracing.wait_to_be_traced(waits)
            run = Run(root, channel, **SCENES[case.scene].options)
            _Watch(run)
            SCENES[case.scene].act(run)
            run.say("ended", True)

        def start(pid: int) -> None:
            fault = f"{case.entry}:error={case.answer}:when={case.nth + 1}"
            tracers.append(tracing.trace(pid, log, fault if case.answer else None))
            os.write(go, b".")

        status = self._in_child(act, journal, start)
        os.close(waits)
        os.close(go)
        tracers[0].communicate(timeout=HANG_S)
        journal.fired += tracing.injected(log)
        journal.rows = [*tracing.calls_in(log).items()]
        return status

    def _in_child(
        self,
        act: Callable[[int], object],
        journal: Journal,
        started: Callable[[int], object] | None = None,
    ) -> int:
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            code = 98
            try:
                act(writer)
                code = 0
            except BaseException as error:
                import traceback

                traceback.print_exc()
                _say(writer, "wrong", f"the harness failed: {error!r}")
            finally:
                os._exit(code)
        os.close(writer)
        if started is not None:
            started(pid)
        self._listen(reader, pid, journal)
        return os.waitpid(pid, 0)[1]

    def _listen(self, reader: int, pid: int, journal: Journal) -> None:
        deadline = time.monotonic() + HANG_S
        rest = b""
        with os.fdopen(reader, "rb", buffering=0) as stream:
            while True:
                left = deadline - time.monotonic()
                if left <= 0 or not select.select([stream], [], [], left)[0]:
                    os.kill(pid, signal.SIGABRT)  # faulthandler tells where it hangs
                    journal.wrong.append("it hangs")
                    return
                data = stream.read(1 << 16)
                if not data:
                    return
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    journal.hear(line.decode())

    # ---- in the child ----

    def _act(self, case: Case, root: Path, channel: int) -> None:
        """The scene, then the oracle, in this process: what it leaves behind counts as well."""
        faulthandler.enable()
        scene = SCENES[case.scene]
        run = Run(root, channel, **scene.options)
        watch = _Watch(run)
        before = len(os.listdir("/proc/self/fd"))
        boot_id.cache_clear()  # a process of its own would ask for it
        self._arm(case, run)
        scene.act(run)
        self.table.install(None)
        self.table.fail_quiet("futex", 0, 0, 0)
        run.say("ended", True)
        run.store = None
        gc.collect()
        watch.stop()
        for text in left_behind(before):
            run.say("wrong", text)

    def _arm(self, case: Case, run: Run) -> None:
        if case.entry in self.table.QUIET:
            times = 1 << 40 if case.times < 0 else case.times
            self.table.install(None)
            self.table.fail_quiet(case.entry, _errno(case.answer), case.nth, times)
            run.say("fired", 1)
        else:
            self.table.install(Injector(case, run))

    def _judge(self, case: Case, root: Path, journal: Journal, channel: int) -> None:
        faulthandler.enable()
        scene = SCENES[case.scene]
        for text in judge(root, journal, scene.options, damaged=case.scene == "foreign"):
            _say(channel, "wrong", text)

    # ---- recording ----

    def record(self, name: str) -> tuple[list[list[Any]], list[str]]:
        """Every call of a scene when nothing fails: entry, site, how often; and what it raises."""
        heard = Journal()
        with tempfile.TemporaryDirectory(dir=self.base) as directory:
            root = self._prepared(name, Path(directory), heard)

            def act(channel: int) -> None:
                recorder = Recorder()
                run = Run(root, channel, **SCENES[name].options)
                boot_id.cache_clear()
                self.table.install(recorder)
                SCENES[name].act(run)
                self.table.install(None)
                rows = [[entry, site, n] for (entry, site), n in recorder.calls.items()]
                rows += [[entry, "", self.table.calls_made(entry)] for entry in self.table.QUIET]
                _say(channel, "rows", rows)

            status = self._in_child(act, heard)
        assert status == 0, heard.wrong
        return heard.rows, heard.errors


class _Watch:
    """Errors that nobody catches, and workers that end with one that is no error of the system or ours."""

    def __init__(self, run: Run) -> None:
        self._run = run
        sys.unraisablehook = lambda told: self._tell("unraisable", told.exc_value)
        threading.excepthook = lambda told: self._tell("in a thread", told.exc_value)
        logging.getLogger("rocketstore").addHandler(_Handler(run))

    def _tell(self, how: str, error: BaseException | None) -> None:
        self._run.say("wrong", f"{how}: {error!r}")

    def stop(self) -> None:
        sys.unraisablehook = sys.__unraisablehook__


class _Handler(logging.Handler):
    def __init__(self, run: Run) -> None:
        super().__init__(logging.WARNING)
        self._run = run

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self._run.say("logged", text)
        found = WORKER_FAILED.search(text)
        if found and not hasattr(rocketstore, found[1]) and found[1] not in OS_ERRORS:
            self._run.say("wrong", f"a worker ended with no typed error: {text}")


def _os_errors() -> set[str]:
    names, classes = set(), [OSError]
    while classes:
        one = classes.pop()
        names.add(one.__name__)
        classes += one.__subclasses__()
    return names


OS_ERRORS = _os_errors()


def _errno(name: str) -> int:
    from tests.syscall_faults.injecting import errno_of

    return errno_of(name)


def _say(channel: int, what: str, value: object) -> None:
    os.write(channel, (json.dumps([what, value]) + "\n").encode())


def main() -> None:
    built, base = Path(sys.argv[1]), Path(sys.argv[2])
    server = Server(built, base)
    gc.collect()
    gc.freeze()  # children neither walk nor copy what is there by now
    for line in sys.stdin:
        asked = json.loads(line)
        answer: object
        if "record" in asked:
            answer = server.record(asked["record"])
        else:
            answer = server.run(Case(**asked))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
