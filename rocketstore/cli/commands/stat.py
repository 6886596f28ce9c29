"""`rocketstore stat`: what is in a store, and how far each part has got."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocketstore import ReadFailedError, ReplicationError, StoreBehindError
from rocketstore.cli import exit_codes
from rocketstore.cli.hints import in_commands
from rocketstore.cli.output import console, print_rows, size_text, table
from rocketstore.cli.parameters import STORE, commit_log_dir_option, open_to_read
from rocketstore.cli.standard_streams import printable
from rocketstore.tools import guests_of, offsets_fault
from rocketstore.values import is_system_group, is_system_topic

if TYPE_CHECKING:
    from rich.console import Console

    from rocketstore import Store

__all__ = ["command", "facts"]

#: Whether dispatch is stopped is asked of the bounds of a queue, even one that is not there.
ANY_TOPIC = "any"
PARTS = ("commitlog", "consumequeue", "index", "rocketstore", "config")


@click.command
@STORE
@click.option("--group", default=None, help="Show the lag of this consumer group in every topic.")
@click.option("--system", is_flag=True, help="Show topics and groups that services use, too.")
@commit_log_dir_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of tables.")
def command(store: str, group: str | None, system: bool, commit_log_dir: str, as_json: bool) -> int:
    """Shows positions, role, topics, queues, sizes, consumer groups and their lag, the processes
    that have the store open for writing, and what opening found.

    A group is shown by the offsets that it has stored; one that never committed is not known to a
    store. Exit code 3 where the open found damage or missing segments, a queue has no units of
    messages, the file of offsets or of the role cannot be read, or stored offsets are not as the
    last stop left them; 1 where the queues lack messages that the log holds.

    \b
    Examples:
      rocketstore stat data/orders
      rocketstore stat data/orders --group billing
      rocketstore stat data/orders --json | jq .positions
    """
    with open_to_read(store, commit_log_dir=commit_log_dir, index_enabled=False) as opened:
        found = facts(opened, Path(store), group, system=system)
        report = in_commands(str(opened.recovery))
        lost = opened.recovery.lost or opened.recovery.offsets_in_doubt
    if found["offsets_fault"]:
        file = Path(store, "config", "consumerOffset.json")
        click.echo(printable(f"rocketstore: {file}: {found['offsets_fault']}"), err=True)
    if found["replication"]["fault"]:
        click.echo(printable(f"rocketstore: {found['replication']['fault']}"), err=True)
    if found["behind"]:
        click.echo(printable(f"rocketstore: {found['behind']}"), err=True)
    unread = [
        f"{row['topic']}/{row['queue_id']}: the queue has no unit of the offset "
        f"{row['no_unit_at']}, where a consumer raises; 'rocketstore rebuild' makes its units again"
        for row in found["queues"]
        if row["no_unit_at"] is not None
    ]
    for text in unread:
        click.echo(printable(f"rocketstore: {text}"), err=True)
    if as_json:
        click.echo(json.dumps(found))
    else:
        _print(store, found, report)
    if lost or unread or found["offsets_fault"] or found["replication"]["fault"]:
        return exit_codes.DAMAGED
    return exit_codes.FAILED if found["behind"] else exit_codes.OK


def facts(
    store: Store, path: Path, group: str | None = None, *, system: bool = False
) -> dict[str, Any]:
    """Everything that `stat` shows, as plain values. A queue of a system topic with a fault is shown
    in any case."""
    # The last position first: a writer works meanwhile, and no lag may become negative.
    dispatched = store.dispatched_offset
    flushed = store.flushed_offset
    visible = store.visible_offset
    end = store.end_offset
    queues, behind = _queues(store, _behind(store))
    found: dict[str, Any] = {
        "positions": {
            "begin": store.begin_offset,
            "end": end,
            "visible": visible,
            "flushed": flushed,
            "dispatched": dispatched,
        },
        "lag_bytes": {
            "flush": max(0, end - flushed),
            "dispatch": max(0, visible - dispatched),
        },
        "behind": behind,
        "queues": [row for rows in queues.values() for row in rows],
        "groups": [
            {"group": each, "topic": topic, "lag": _lag(store, each, topic, queues[topic])}
            for each, topic in sorted(
                (each, topic) for topic in queues for each in store.groups(topic, system=True)
            )
        ],
        "holds": _holds(store),
        "offsets_fault": offsets_fault(path),
        "files": {name: _usage(*_directories(store, path, name)) for name in PARTS},
        "replication": _replication(store),
        "sharing": _sharing(store, path),
        "segment_bytes": store.config.commit_log_file_size_bytes,
        "recovery": _plain(store.recovery),
    }
    if group is not None:
        committed = [row["topic"] for row in found["groups"] if row["group"] == group]
        lag = {topic: _lag(store, group, topic, rows) for topic, rows in queues.items()}
        found["group"] = {"name": group, "committed": committed, "lag": lag}
    if not system:
        found["queues"] = [
            row
            for row in found["queues"]
            if row["no_unit_at"] is not None or not is_system_topic(row["topic"])
        ]
        found["groups"] = [row for row in found["groups"] if not is_system_group(row["group"])]
    return found


def _holds(store: Store) -> dict[str, Any]:
    """Where each hold of retention begins; `None`: the name is the fault of their file."""
    try:
        return {**store.retention.holds}
    except (ReadFailedError, OSError) as error:
        return {str(error): None}


def _replication(store: Store) -> dict[str, Any]:
    """The role of the store; its `fault`: why that cannot be read, or the copy does not go on."""
    try:
        status = store.replication
    except ReplicationError as error:
        return {"role": None, "term": None, "fenced_by": None, "fault": str(error)}
    found = {name: getattr(status, name) for name in ("role", "term", "fenced_by")}
    return {**found, "fault": f"the copy stopped: {status.stopped}" if status.stopped else ""}


def _sharing(store: Store, path: Path) -> dict[str, Any]:
    """The process that has the store, and those that put by way of it; 0 and none where the store is nobody's."""
    pid = store.stats().host_pid
    try:
        guests = [one._asdict() for one in guests_of(path)] if pid else []
    except OSError:  # of another user
        guests = []
    return {"host_pid": pid, "guests": guests}


def _queues(store: Store, behind: str) -> tuple[dict[str, list[dict[str, Any]]], str]:
    """Rows of the queues of each topic, and why some lack messages: those have no row."""
    found: dict[str, list[dict[str, Any]]] = {}
    for topic in store.topics(system=True):
        rows = found.setdefault(topic, [])
        for queue_id in store.queues(topic):
            try:
                low, high = store._bounds(topic, queue_id, catch_up=not behind)
            except StoreBehindError as error:
                behind = behind or str(error)
                continue
            row = {"topic": topic, "queue_id": queue_id, "min": low, "max": high}
            rows.append(
                {
                    **row,
                    "messages": high - low,
                    "no_unit_at": store._open().first_without_unit(topic, queue_id),
                }
            )
    return found, behind


def _behind(store: Store) -> str:
    """Why the queues lack messages that the log holds; empty where they have all."""
    try:
        store.max_queue_offset(ANY_TOPIC, 0)
    except StoreBehindError as error:
        return str(error)
    return ""


def _lag(store: Store, group: str, topic: str, queues: list[dict[str, Any]]) -> int:
    """Messages of a topic that the group has not committed yet; of a queue without an offset, all
    there is."""
    stored = store.committed(topic, group)
    return sum(
        row["max"] - min(max(stored.get(row["queue_id"], 0), row["min"]), row["max"])
        for row in queues
    )


def _directories(store: Store, path: Path, name: str) -> list[Path]:
    """Where a part of the store lies: the log may have several directories, or one elsewhere."""
    elsewhere = store.config.commit_log_dir.split(",") if name == "commitlog" else []
    return [path / each for each in elsewhere if each] or [path / name]


def _usage(*directories: Path) -> dict[str, int]:
    """Files below directories: how many, their length and what they take on the disk."""
    files = length = allocated = 0
    for entry in chain.from_iterable(map(_files, directories)):
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue  # A live writer removes files.
        files += 1
        length += status.st_size
        allocated += status.st_blocks * 512
    return {"files": files, "bytes": length, "allocated_bytes": allocated}


def _files(directory: Path) -> Iterator[os.DirEntry[str]]:
    try:
        entries = list(os.scandir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _files(Path(entry.path))
        else:
            yield entry


def _plain(value: Any) -> Any:
    """A report as types that JSON knows."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: _plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    return value if isinstance(value, int | float | str | None) else str(value)


def _print(path: str, found: dict[str, Any], report: str) -> None:
    out = console()
    positions = found["positions"]
    out.print(printable(path), style="bold", soft_wrap=True)
    found_at = table("position", numbers=["offset"])
    for name, offset in positions.items():
        found_at.add_row(name, f"{offset:,}")
    for name, lag in found["lag_bytes"].items():
        found_at.add_row(f"{name} lag", size_text(lag))
    out.print(found_at)
    role = _role_text(found["replication"])
    if role:
        out.print(f"\n{printable(role)}", soft_wrap=True)

    if found["sharing"]["host_pid"]:
        out.print(f"\nopen for writing in process {found['sharing']['host_pid']}")
    if found["sharing"]["guests"]:
        guests = [
            [
                *(printable(one["name"]), str(one["pid"]), f"{one['puts']:,}"),
                *(size_text(one["bytes"]), f"{one['in_flight']:,}", f"{one['heard_s']:.1f} s"),
            ]
            for one in found["sharing"]["guests"]
        ]
        figures = ["pid", "messages", "sent", "in flight", "silent for"]
        print_rows(out, ["guest"], figures, guests)

    files = table("files", numbers=["number", "length", "on disk"])
    for name, usage in found["files"].items():
        files.add_row(
            name,
            f"{usage['files']:,}",
            size_text(usage["bytes"]),
            size_text(usage["allocated_bytes"]),
        )
    out.print("\n", files, sep="")

    out.print("\n")
    numbers = ("queue_id", "min", "max", "messages")
    queues = [
        [printable(queue["topic"]), *(f"{queue[name]:,}" for name in numbers)]
        for queue in found["queues"]
    ]
    print_rows(out, ["topic"], ["queue", "min", "max", "messages"], queues)
    if found["groups"]:
        groups = [
            [printable(row["group"]), printable(row["topic"]), f"{row['lag']:,}"]
            for row in found["groups"]
        ]
        out.print("\n")
        print_rows(out, ["group", "topic"], ["lag"], groups)
    if found["holds"]:
        end = positions["end"]
        holds = [
            [
                printable(name),
                *(("-", "all") if at is None else (f"{at:,}", size_text(max(0, end - at)))),
            ]
            for name, at in found["holds"].items()
        ]
        out.print("\n")
        print_rows(out, ["hold"], ["from", "holds"], holds)
    if "group" in found:
        _print_group(out, found["group"], damaged=bool(found["offsets_fault"]))
    out.print(f"\n{report}", soft_wrap=True)


def _role_text(role: dict[str, Any]) -> str:
    """Empty for a store that never was a master or a copy, and where it cannot be read."""
    if role["role"] is None:
        return ""
    fenced = f", fenced by term {role['fenced_by']}" if role["fenced_by"] is not None else ""
    return f"{role['role']} of term {role['term']}{fenced}"


def _print_group(out: Console, group: dict[str, Any], *, damaged: bool) -> None:
    """Its lag in every topic, and where it has not committed anything. `damaged`: what it has
    cannot be read."""
    name = printable(group["name"])
    if not group["committed"]:
        why = (
            "their file cannot be read, or has something else there"
            if damaged
            else "it never committed any"
        )
        return out.print(f"\ngroup {name} has no stored offsets here: {why}")
    lags = table(f"group {name}", numbers=["lag", ""])
    for topic, lag in group["lag"].items():
        lags.add_row(topic, f"{lag:,}", "" if topic in group["committed"] else "nothing committed")
    return out.print("\n", lags, sep="")
