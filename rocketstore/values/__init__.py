"""Plain values and checks that every part may use: immutable, and without a part of a store.

A module here imports nothing of the package but `errors` and its neighbours.

What there is:
    arguments: checks of the arguments of public functions, the types of bodies, columns, callbacks.
    bounded_json: the one reader of JSON, and what each text may weigh.
    clock: the system's clock, and one that a test moves by hand.
    compression: bodies that a client compressed: `plain_body` and `rocketstore.decompress`.
    delay_levels: how long each delay level waits.
    durability: the promises of a put, and texts of hosts and queue ids.
    foreign: names in a directory that are none of a store's.
    java_text: text of records that is not UTF-8.
    kept_errors: errors that are kept or raised again, without the frames of the first time.
    lazy: names of a package that are imported when they are first asked for.
    limits: limits of a process that are used up, and what raises them.
    plural: `1 record`, `2 records`; long lists cut short.
    public: the mark of exported classes, which names the package as their module.
    record_filter: which records a scan takes.
    reserved_names: names of properties and topics that belong to services.
    system_flags: bits of a record's `sys_flag`.
    threads: native threads, whose start has a bound.
    timestamps: points in time, as milliseconds or aware datetimes.

Begin with `arguments` and `timestamps`: every public call passes through them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketstore.values.lazy import first_use

if TYPE_CHECKING:
    from rocketstore.values.arguments import (
        ArrowArray,
        Body,
        Column,
        KeyRows,
        Listener,
        Numbers,
        Progress,
        SegmentFiles,
        TextRows,
        at_most,
        seconds,
        text,
        whole_number,
    )
    from rocketstore.values.bounded_json import LIMITS, parse_json
    from rocketstore.values.clock import ManualClock
    from rocketstore.values.compression import COMPRESSED, COMPRESSION_BITS, plain_body
    from rocketstore.values.durability import Durability, durability_of
    from rocketstore.values.foreign import foreign_names, no_store
    from rocketstore.values.kept_errors import without_frames
    from rocketstore.values.plural import bounded, counted
    from rocketstore.values.record_filter import RecordFilter, Wanted, topic_test
    from rocketstore.values.reserved_names import (
        RESERVED_PROPERTIES,
        SYSTEM_PREFIXES,
        SYSTEM_TOPICS,
        is_system_group,
        is_system_topic,
        of_one_store,
    )
    from rocketstore.values.system_flags import BATCH_BITS
    from rocketstore.values.threads import Pool, runs_here, start_thread
    from rocketstore.values.timestamps import Duration, Timestamp, timestamp_ms

__all__ = [
    "BATCH_BITS",
    "COMPRESSED",
    "COMPRESSION_BITS",
    "LIMITS",
    "RESERVED_PROPERTIES",
    "SYSTEM_PREFIXES",
    "SYSTEM_TOPICS",
    "ArrowArray",
    "Body",
    "Column",
    "Durability",
    "Duration",
    "KeyRows",
    "Listener",
    "ManualClock",
    "Numbers",
    "Pool",
    "Progress",
    "RecordFilter",
    "SegmentFiles",
    "TextRows",
    "Timestamp",
    "Wanted",
    "at_most",
    "bounded",
    "counted",
    "durability_of",
    "foreign_names",
    "is_system_group",
    "is_system_topic",
    "no_store",
    "of_one_store",
    "parse_json",
    "plain_body",
    "runs_here",
    "seconds",
    "start_thread",
    "text",
    "timestamp_ms",
    "topic_test",
    "whole_number",
    "without_frames",
]

if not TYPE_CHECKING:  # a type checker would take any name for one of this package
    __getattr__ = first_use(
        __name__,
        {
            "arguments": "ArrowArray Body Column KeyRows Listener Numbers Progress SegmentFiles"
            " TextRows at_most seconds text whole_number",
            "bounded_json": "LIMITS parse_json",
            "clock": "ManualClock",
            "compression": "COMPRESSED COMPRESSION_BITS plain_body",
            "durability": "Durability durability_of",
            "foreign": "foreign_names no_store",
            "kept_errors": "without_frames",
            "plural": "bounded counted",
            "record_filter": "RecordFilter Wanted topic_test",
            "reserved_names": "RESERVED_PROPERTIES SYSTEM_PREFIXES SYSTEM_TOPICS is_system_group"
            " is_system_topic of_one_store",
            "system_flags": "BATCH_BITS",
            "threads": "Pool runs_here start_thread",
            "timestamps": "Duration Timestamp timestamp_ms",
        },
    )
