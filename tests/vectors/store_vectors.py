"""A small store and what readers find in it: statuses, recoveries, lookups by time."""

import struct
from typing import Any

from encoders import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, STORE_MS, Message, encode, queue_entry


def checkpoint(*values: int) -> bytes:
    return struct.pack(f">{len(values)}q", *values).ljust(4096, b"\0")


def mini_record(number: int, body: bytes, queue_offset: int, store_ms: int) -> bytes:
    """A record of 100 bytes at the place of record `number`, ten of which fit into a file."""
    file, row = divmod(number, 10)
    return encode(Message(topic="T1", body=body, queue_offset=queue_offset,
                          physical_offset=file * 1024 + row * 100, store_ms=store_ms,
                          born_host="127.0.0.1:40000",
                          store_host="127.0.0.1:10911"))  # fmt: skip


def mini_log(first_queue_offset: int) -> dict[str, bytes]:
    """25 records of 100 bytes in commit log files of 1024 bytes."""
    logs = {start: bytearray(1024) for start in (0, 1024, 2048)}
    for number in range(25):
        file, row = divmod(number, 10)
        record = mini_record(
            number, b"hello%02d" % number, first_queue_offset + number, STORE_MS + number
        )
        logs[file * 1024][row * 100 : row * 100 + 100] = record
    for start in (0, 1024):
        struct.pack_into(">iI", logs[start], 1000, 24, MAGIC_BLANK)
    return {f"commitlog/{start:020d}": bytes(data) for start, data in logs.items()}


def mini_queue(entries: bytes, file_size: int) -> dict[str, bytes]:
    return {f"consumequeue/T1/0/{start:020d}":
            entries[start : start + file_size].ljust(file_size, b"\0")
            for start in range(0, len(entries), file_size)}  # fmt: skip


def mini_entries() -> list[bytes]:
    return [queue_entry(number // 10 * 1024 + number % 10 * 100, 100, 0) for number in range(25)]


def packed(files: dict[str, bytes]) -> dict[str, dict[str, Any]]:
    """Each file as `hex` followed by zeros up to `size`."""
    return {name: {"size": len(data), "hex": data.rstrip(b"\0").hex()}
            for name, data in files.items()}  # fmt: skip


def mini_store() -> dict[str, Any]:
    """The 25 records with queue files of 10 entries."""
    files = mini_log(0) | mini_queue(b"".join(mini_entries()), 200)
    files["checkpoint"] = checkpoint(*[STORE_MS + 24] * 3)
    names = ("topic", "queue_offset", "max_messages", "status", "next_offset", "found")
    return {
        "settings": {"mappedFileSizeCommitLog": 1024, "mappedFileSizeConsumeQueue": 200},
        "note": "each file is `hex` followed by zeros up to `size`",
        "files": packed(files),
        "reads": [dict(zip(names, row, strict=True)) for row in READS],
        "scenarios": scenarios(),
    }


# getMessage on the undamaged mini store; the same answers from 4.9.8 and 5.3.3.
READS: list[tuple[str, int, int, str, int, list[int]]] = [
    ("T1", -1, 32, "OFFSET_TOO_SMALL", 0, []),
    ("T1", 0, 32, "FOUND", 10, list(range(10))),
    ("T1", 7, 2, "FOUND", 9, [7, 8]),
    ("T1", 19, 32, "FOUND", 20, [19]),
    ("T1", 24, 32, "FOUND", 25, [24]),
    ("T1", 25, 32, "OFFSET_OVERFLOW_ONE", 25, []),
    ("T1", 26, 32, "OFFSET_OVERFLOW_BADLY", 25, []),
    ("T1", 1000, 32, "OFFSET_OVERFLOW_BADLY", 25, []),
    ("NoSuchTopic", 5, 32, "NO_MESSAGE_IN_QUEUE", 0, []),
]


def scenarios() -> list[dict[str, Any]]:
    """Damage, then what a start makes of it: log min, log max, queue T1/0 min, queue max."""
    log0, log1, log2 = (f"commitlog/{start:020d}" for start in (0, 1024, 2048))
    queue2 = f"consumequeue/T1/0/{400:020d}"
    abort, magic = ["create", "abort"], ["write", log0, 304, "00000000"]
    late = ["write", "checkpoint", 0, struct.pack(">3q", *[STORE_MS + 3020] * 3).hex()]
    spare = [["zeros", f"commitlog/{start:020d}", 1024] for start in (3072, 4096)]
    whole, cut, shifted = [0, 2548, 0, 25], [0, 300, 0, 3], [1024, 2548, 0, 25]
    no_times = ["write", "checkpoint", 0, "00" * 24]
    newer = ["write", log2, 200, mini_record(22, b"hello99", 22, STORE_MS + 10_000).hex()]
    rows: list[tuple[str, list[Any], list[int], list[int], str]] = [
        ("clean", [], whole, whole, "nothing to do"),
        ("after_crash", [abort], whole, whole, "same bytes, abort file present"),
        ("bad_body_last_file", [["write", log2, 288, "ff"]], [0, 2248, 0, 22], [0, 2248, 0, 22],
         "record 22 and all after it are cut"),
        ("torn_tail", [["write", log2, 450, "00" * 50]], [0, 2448, 0, 24], [0, 2448, 0, 24],
         "half a record"),
        ("old_damage", [magic], cut, whole,
         "a clean start reads three files in 4.9.8 and only the last one in 5.3.3"),
        ("old_damage_crash", [magic, abort], cut, cut,
         "checkpoint less 3 s is before every file: all are read, two are deleted"),
        ("old_damage_crash_late", [magic, late, abort], whole, whole,
         "the checkpoint covers the last file: the damage is not seen"),
        ("queue_entry_lost", [["write", queue2, 80, "00" * 20]], whole, [0, 2548, 0, 24],
         "5.3.3 does not rebuild the entry that starts where the queue ends"),
        ("queue_lost", [["delete", "consumequeue"]], whole, whole, "rebuilt from the log"),
        ("middle_file_lost", [["delete", log1]], whole, whole, "the gap is not noticed"),
        ("first_file_lost", [["delete", log0]], shifted, shifted,
         "queue minimum stays 0: the first queue file holds no live entry"),
        ("last_file_lost", [["delete", log2]], [0, 2024, 0, 20], [0, 2024, 0, 20],
         "the log ends where the filler of the file before starts"),
        ("preallocated", spare, whole, whole, "unused files are deleted"),
        ("blank_too_long", [["write", log0, 1000, "00000040"], no_times, abort],
         whole, [0, 1000, 0, 10],
         "5.3.2 and later want a blank to end inside its file; a short one (8) passes"),
        ("stale_tail", [newer, abort], whole, whole,
         "cut before record 22, one put, crash: the old records 23 and 24 are back"),
        ("log_lost", [["delete", "commitlog"]], [-1, 0, 0, 0], [-1, 0, 0, 0],
         "queues are deleted too"),
    ]  # fmt: skip
    names = ("id", "damage", "expect_4.9.8", "expect_5.3.3", "note")
    return [dict(zip(names, row, strict=True)) for row in rows]


def pre_blank() -> list[dict[str, Any]]:
    """A queue rebuilt by a crash start from a log that does not hold its first ten messages.
    Queue files of 20 entries. `min` and `reads` are those after one more, clean, start."""
    blank, entries = queue_entry(0, 0x7FFFFFFF, 0), mini_entries()
    later = {name: data for name, data in mini_log(0).items() if not name.endswith("0" * 20)}
    rows: list[tuple[dict[str, bytes], list[bytes], int, list[Any], str]] = [
        (later, entries[10:], 10,
         [(0, "OFFSET_TOO_SMALL", 10, 0), (10, "FOUND", 20, 10)],
         "the log begins at 1024"),
        (mini_log(10), entries, 0,
         [(0, "MESSAGE_WAS_REMOVING", 20, 0), (9, "MESSAGE_WAS_REMOVING", 20, 0),
          (10, "FOUND", 20, 10)],
         "the log begins at 0: pre-blanks look live and hide messages 10 to 19"),
    ]  # fmt: skip
    names = ("queue_offset", "status", "next_offset", "count")
    return [
        {
            "settings": {"mappedFileSizeCommitLog": 1024, "mappedFileSizeConsumeQueue": 400},
            "note": note,
            "log": packed(log),
            "queue": packed(mini_queue(blank * 10 + b"".join(live), 400)),
            "min": lowest,
            "max": 10 + len(live),
            "reads": [dict(zip(names, row, strict=True)) for row in reads],
        }
        for log, live, lowest, reads, note in rows
    ]


def mixed_versions() -> dict[str, Any]:
    """A v2 record between two v1 records: what each release keeps of the log at its start."""
    log = b""
    for topic, magic in (("T", MAGIC_V1), ("%RETRY%" + "g" * 128, MAGIC_V2), ("T", MAGIC_V1)):
        log += encode(Message(topic=topic, body=b"a", magic=magic, physical_offset=len(log),
                              queue_offset=int(len(log) > 100)))  # fmt: skip
    return {"log_hex": log.hex(), "file_size": 1024, "log_max_4.9.8": 93,
            "log_max_5.3.3": len(log)}  # fmt: skip


def time_lookup() -> dict[str, Any]:
    """Queue offsets for a time. The 4.9.8 column holds while all entries are in one queue file."""
    rows = [(-1, 0, 0, 0), (0, 0, 2, 1), (1, 3, 2, 2), (199, 3, 2, 3), (200, 3, 4, 3),
            (201, 5, 4, 4), (499, 5, 4, 5), (500, 5, 6, 5), (501, 7, 6, 6), (899, 7, 6, 7),
            (900, 7, 7, 7), (901, 8, 7, 7)]  # fmt: skip
    names = ("timestamp", "lower_5.3.3", "upper_5.3.3", "4.9.8")
    return {
        "store_ms_of_entries": [STORE_MS + ms for ms in (0, 0, 0, 200, 200, 500, 500, 900)],
        "rows": [dict(zip(names, (STORE_MS + ms, *rest), strict=True)) for ms, *rest in rows],
    }
