"""What each command of the CLI is given when it is shown a store that a hostile author wrote."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

import rocketstore
from rocketstore.cli.app import cli
from rocketstore.replication import Master
from tests.corruption.hostile_faces import TYPED, Faces
from tests.corruption.mutations import Known

__all__ = ["CALLS", "NO_STORE", "SLOW", "command_faces", "names"]

#: Takes no store, and why.
NO_STORE: Final = {"bench": "makes stores of its own", "serve": "runs until it is ended"}
ONE_CORE: Final = ("--master", "local[1]")
#: Command → the words after it, each of these in turn. `STORE`: the store; `SIDE/…`: a path in a directory
#: for what the command reads or writes besides; `MASTER`: the address of a sound master of the same history.
CALLS: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "compact": (
        ("STORE", "SIDE/compacted", "--topic", "orders"),
        ("STORE", "SIDE/compacted", "--topic", "orders", "--dry-run"),
    ),
    "follow": (("MASTER", "STORE", "--until-caught-up", "--connect-timeout", "1", "--json"),),
    "get": (("STORE", "0"),),
    "ingest": (("STORE", "SIDE/lines", "--topic", "later", "--durability", "os"),),
    "promote": (("STORE",), ("STORE", "--dry-run")),
    "query": (("STORE", "orders", "k6"),),
    "rebuild": (("STORE", "--workers", "1"), ("STORE", "--workers", "1", "--dry-run")),
    "recover": (("STORE",), ("STORE", "--dry-run"), ("STORE", "--force")),
    "repair": (("STORE",), ("STORE", "--dry-run"), ("STORE", "--force", "--fill-missing")),
    "ship": (("STORE", "SIDE/archive"), ("STORE", "SIDE/archive", "--tail", "--force")),
    "spark audit": (("STORE", *ONE_CORE),),
    "spark compact": (("STORE", "SIDE/new", *ONE_CORE),),
    "spark export": (("STORE", "SIDE/parquet", *ONE_CORE),),
    "spark import": (("SIDE/rows", "STORE", "--topic", "later", *ONE_CORE),),
    "spark offsets": (("STORE", "--group", "g"),),
    "spark rebuild": (("STORE", "--parts", "1", *ONE_CORE),),
    "spark replay": (("STORE", "SIDE/new", *ONE_CORE),),
    "spark stats": (("STORE", *ONE_CORE),),
    "stat": (("STORE",), ("STORE", "--json"), ("STORE", "--group", "g")),
    "tail": (("STORE", "orders", "-n", "9"),),
    "trim": (
        ("STORE", "--max-bytes", "1"),
        ("STORE", "--max-bytes", "1", "--keep-unconsumed-by", "all", "--keep-unshipped"),
        ("STORE", "--max-age", "7d", "--dry-run"),
    ),
    "verify": (("STORE",), ("STORE", "--json")),
}
#: Take a JVM, some ten seconds of it.
SLOW: Final = tuple(name for name in CALLS if name.startswith("spark ") and name != "spark offsets")
#: What a command does not do without, else than the product.
NEEDS: Final = {"ship": "pyarrow", **dict.fromkeys(SLOW, "pyspark")}


def names() -> set[str]:
    """Every command of the application; of a group, its commands."""
    context, found = click.Context(cli), set()
    for name in cli.list_commands(context):
        one = cli.get_command(context, name)
        found |= (
            {f"{name} {sub}" for sub in one.commands} if isinstance(one, click.Group) else {name}
        )
    return found


def command_faces(sound: Path, side: Path, turn: int) -> Faces:
    """The commands that can run here. `sound`: a master that a copy follows; `side`: a directory that is made
    anew for each run; `turn`: which of its calls each gets."""
    return {
        name: functools.partial(_run, name, calls[turn % len(calls)], sound, side)
        for name, calls in CALLS.items()
        if importlib.util.find_spec(NEEDS.get(name, "click")) is not None
    }


def _run(name: str, given: tuple[str, ...], sound: Path, side: Path, path: Path) -> Iterator[Known]:
    _make_side(side, name)
    words = [
        word.replace("STORE", os.fspath(path)).replace("SIDE", os.fspath(side)) for word in given
    ]
    sys.argv = ["rocketstore", *name.split(), *words]
    _refuse_untyped()
    if "MASTER" not in words:
        _main()
    else:
        shutil.copytree(sound, side / "master")
        with rocketstore.open(side / "master", replication=Master(listen="127.0.0.1:0")) as master:
            at = sys.argv.index("MASTER")
            sys.argv[at] = master.replication.address
            _main()
    yield from ()


def _main() -> None:
    from rocketstore.cli import exit_codes, main

    if main() == exit_codes.USAGE:
        raise RuntimeError(f"wrong arguments: {sys.argv}")


def _make_side(side: Path, name: str) -> None:
    shutil.rmtree(side, ignore_errors=True)
    side.mkdir()
    (side / "lines").write_text("one\ntwo\n")
    if name == "spark import":
        import pyarrow as pa
        import pyarrow.parquet as pq

        (side / "rows").mkdir()
        pq.write_table(pa.table({"body": [b"one", b"two"]}), side / "rows/rows.parquet")


def _refuse_untyped() -> None:
    """A command ends with a line for any ValueError; an author's bytes are not to raise one that says no more."""
    from rocketstore.cli import exit_codes

    known = exit_codes.exit_code

    def checked(error: BaseException) -> int:
        if not isinstance(error, TYPED):
            raise error
        return known(error)

    exit_codes.exit_code = checked
