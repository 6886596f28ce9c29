"""Looks for files that keep RocketMQ from starting, or that it starts without."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from rocketstore.log.index.segment import is_index_name
from rocketstore.log.layout.ownership import FILE_QUEUE, IN_THE_WAY, LINKED_QUEUE
from rocketstore.log.layout.paths import StoreLayout, is_safe_name, parse_segment_name
from rocketstore.log.layout.state_files import read_json_file
from rocketstore.log.queues.directories import is_queue_id, queues_in
from rocketstore.tools._verify.facts import LogFacts
from rocketstore.tools._verify.in_the_way import entries_of, is_in_the_way
from rocketstore.tools.report import FaultKind, Findings
from rocketstore.values.bounded_json import LIMITS, TooLargeError

__all__ = ["REFUSES", "check_side_file", "check_side_files", "check_strays", "document_of"]

#: How a fault begins that keeps a broker from starting.
REFUSES: Final = "RocketMQ refuses to start: "

#: Side files of a broker, one JSON object each (format.md 1.4). `consumerOffset.json` is checked
#: with the offsets in it.
SIDE_FILES: Final = (
    "consumerFilter.json",
    "consumerOrderInfo.json",
    "delayOffset.json",
    "lmqConsumerOffset.json",
    "messageRequestMode.json",
    "subscriptionGroup.json",
    "timermetrics",
    "topicQueueMapping.json",
    "topics.json",
)
#: What is wrong where something that is no file has the name of a segment.
IN_THE_LOG: Final = "no file, but it lies in place of one of the log: move it out of the store"


def check_strays(layout: StoreLayout, facts: LogFacts, findings: Findings) -> None:
    """Names that RocketMQ does not expect where it lists files (format.md 1.2, K-44), and what lies
    in place of files and directories of the store."""
    for directory in layout.logs:
        _strays_of(directory, findings, "broker", IN_THE_LOG)
    for root in (layout.consume_queue, layout.batch_consume_queue):
        _no_topics_of(root, facts, findings)
        for _, _, queue in queues_in(root):
            _strays_of(queue, findings, "derived", IN_THE_WAY)
    for entry in entries_of(layout.index):
        if is_index_name(entry.name) or not entry.is_file(follow_symlinks=False):
            continue
        if _is_number(entry.name):
            text = "no index file, but RocketMQ takes it for one; move it out of the store"
            findings.add("broker", entry.path, 0, text, code="stray")
        else:
            text = (
                "no index file; RocketMQ logs an error and goes on without it, so does rocketstore"
            )
            findings.notice("broker", entry.path, text)


def _no_topics_of(root: Path, facts: LogFacts, findings: Findings) -> None:
    """What lies where directories of topics and queues are expected, and is none: notices, since
    RocketMQ passes over most of it, but faults where the log has messages of that queue."""
    needed = {*facts.queues, *facts.batches}
    topics = [entry for entry in entries_of(root) if entry.is_dir(follow_symlinks=False)]
    for topic in topics:
        if not is_safe_name(topic.name):
            findings.notice("derived", topic.path, "no topic can have this name: it is passed over")
            continue
        for entry in entries_of(topic.path):
            if not entry.is_dir(follow_symlinks=False) and is_queue_id(entry.name):
                _no_directory(entry, (topic.name, int(entry.name)) in needed, findings)
    if not any(entry.name == "CURRENT" for entry in entries_of(root)):  # else RocksDB's
        for entry in entries_of(root):
            if not entry.is_dir(follow_symlinks=False):
                _no_directory(entry, any(topic == entry.name for topic, _ in needed), findings)


def _no_directory(entry: os.DirEntry[str], needed: bool, findings: Findings) -> None:
    text = LINKED_QUEUE if entry.is_symlink() else FILE_QUEUE
    if needed:
        findings.add("derived", entry.path, 0, text, code="in-the-way")
    else:
        findings.notice("derived", entry.path, text)


def _strays_of(directory: str | Path, findings: Findings, kind: FaultKind, text: str) -> None:
    """`kind` and `text`: of the fault where something else has the name of a file."""
    for entry in entries_of(directory):
        if is_in_the_way(entry):
            findings.add(kind, entry.path, 0, text, code="in-the-way")
        elif entry.is_dir(follow_symlinks=False):
            findings.notice("broker", entry.path, "a directory; RocketMQ passes over it since 5.1")
        elif parse_segment_name(entry.name) is None:
            text = f"{REFUSES}this is none of its files; move it out of the store"
            findings.add("broker", entry.path, 0, text, code="stray")


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal() and int(name) < 1 << 63


def check_side_files(layout: StoreLayout, findings: Findings) -> None:
    """JSON files of a broker that hold nothing to read (Q-42)."""
    for name in SIDE_FILES:
        check_side_file(layout.config / name, findings, "RocketMQ starts without what it held")


def check_side_file(path: Path, findings: Findings, without: str) -> bool:
    """Whether a JSON file of a broker, or its `.bak`, can be read; `without`: what happens else.

    As RocketMQ loads it: the file; its `.bak` where that is empty or no JSON; and an error where
    the `.bak`, too, has bytes that are no JSON.
    """
    if not path.exists() or isinstance(document_of(path), dict):
        return True
    copy = path.with_name(path.name + ".bak")
    if isinstance(document_of(copy), dict):
        findings.notice("config", str(path), f"no JSON object; {copy.name} is used instead")
        return True
    if copy.exists() and copy.stat().st_size:
        text = f"{REFUSES}neither this file nor its .bak is a JSON object; restore one of them"
        findings.add("broker", str(path), 0, text, code="side-file")
    else:
        text = f"no JSON object, nor is there a good .bak: {without}; restore one of them"
        findings.add("config", str(path), 0, text, code="side-file")
    return False


def document_of(path: Path) -> object:
    """What one file holds; None where it is absent, empty, or no JSON. Nothing is said of one that is
    too large to be read."""
    try:
        return read_json_file(path, LIMITS["side file"])
    except TooLargeError:
        return {}
    except (FileNotFoundError, ValueError):
        return None
