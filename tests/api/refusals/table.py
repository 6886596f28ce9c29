"""Each argument that a call refuses: its name, the error, the text, the values, the calls.

A call is a line of Python with `x` for the value. Where a row has no text, the error begins with the argument and
the value as they were given: `limit = 0: …`. `test_table.py` makes each call with each value.
"""

from __future__ import annotations

import array
import ctypes
import datetime
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from rocketstore import (
    ConfigError,
    InvalidTopicError,
    MessageRejectedError,
)


class Row(NamedTuple):
    argument: str
    error: type[Exception]
    #: A pattern of the text; empty: the argument and its value.
    said: str
    values: tuple[Any, ...]
    calls: tuple[str, ...]


PUT = 'store.writer("orders").put(b"x", {}=x)'
MESSAGE = 'store.put_message("orders", b"x", {}=x)'
FRAMES = 'encode_frames(([0, 1], b"x"), topics=["orders"], {}=x)'
DELAYED = 'store.put_message("SCHEDULE_TOPIC_XXXX", b"x", properties={"DELAY": x})'
CONSUMER = 'store.consumer("orders", {}=x)'
OPEN = 'rocketstore.open("x", {}=x)'
BROKER = "StoreConfig.from_rocketmq({{'{0}': x}})"

OPTIONS: Final[tuple[tuple[str, tuple[Any, ...], str], ...]] = (
    ("path", ("", 5, b"store", "a\0b"), "rocketstore.open(x)"),
    ("mode", ("w", 5, []), 'rocketstore.open("x", x)'),
    ("config", ({"a": 1}, "x"), OPEN),
    ("force", ("yes", 1), OPEN),
    ("untrusted", ("yes", 1), 'rocketstore.open("x", "r", untrusted=x)'),
    ("on_arrival", (5,), OPEN),
    ("on_recovery", (5,), OPEN),
    ("visible", ("soon", 5), OPEN),
    ("durability", ("none", 5), 'store.writer("t", durability=x)'),
    ("queues", (0, "4", 65537), 'store.writer("t", queues=x)'),
    ("queue_id", (-1, "0", 1.5, 2**31, True, "1"), 'store.writer("t", queue_id=x)'),
    ("queue_id", (-1, "0", 1.5, 2**31, True, "1"), MESSAGE),
    ("properties", (5, None, ["a=b"]), "StoreConfig.from_rocketmq(x)"),
    ("maxMessageSize", (5, None, True), BROKER),
    ("unknownOfBroker", (5,), BROKER),
    ("flush_interval_ms", (0, "5"), "store.configure(flush_interval_ms=x)"),
    ("index_slots", (0, 10**20, 1.5, "x"), 'tools.verify(".", index_slots=x)'),
    ("index_entries", (1, -1, 10**20, True), 'tools.verify(".", index_entries=x)'),
    ("commit_log_dir", (5, None), 'tools.verify(".", commit_log_dir=x)'),
)
SAID_BY_OPTIONS: Final = (
    ("durability", 'must be "memory", "os", "disk" or'),
    ("visible", 'must be "auto", "flushed" or "committed'),
    ("delay_levels", "must be text"),
)

#: Argument, values, call: each a TypeError.
TYPES: Final[tuple[tuple[str, tuple[Any, ...], str], ...]] = (
    ("physical_offset", ("0", 1.0), "store.get(x)"),
    ("end_offset", ("0", 1.0), "store.wait_flushed(x)"),
    ("before_offset", ("0", 1.0), "store.trim(before_offset=x)"),
    ("queue_id", ("0", 1.0), 'store.min_queue_offset("orders", x)'),
    ("queue_id", ("0", 1.0), 'store.max_queue_offset("orders", x)'),
    ("queue_id", ("0", 1.0), 'store.offset_at("orders", x, 0)'),
    ("when", ("0", 1.0), 'store.offset_at("orders", 0, x)'),
    ("limit", ("0", 1.0), 'store.query("orders", "k", limit=x)'),
    ("queue_id", ("0", 1.0), CONSUMER),
    ("max_messages", ("0", 1.0, "x"), 'store.consumer("orders", queue_id=0).poll(x)'),
    ("max_messages", ("0", 1.0), 'store.consumer("orders", queue_id=0)._prefetch(x)'),
    ("begin_offset", ("0", 1.0), "scan(store, begin_offset=x)"),
    ("end_offset", ("0", 1.0), "scan(store, end_offset=x)"),
    ("queues", ("0", 1.0), "scan(store, queues=[x])"),
    ("flag", ("0", 1.0, 1.9), PUT),
    ("flag", (1.9,), MESSAGE),
    ("born_time", ("0", 1.0), PUT),
    ("sys_flag", ("0", 1.0, 1.9), MESSAGE),
    ("reconsume_times", ("0", 1.0, 1.9), MESSAGE),
    ("prepared_transaction_offset", (1.9,), MESSAGE),
    ("keys", (5, object), PUT),
    ("properties", ([("a", "b")], "a"), PUT),
    ("topic", (b"orders", None, 1), "store.writer(x)"),
    ("topic", (b"orders", None, 1), 'store.put_message(x, b"x")'),
    ("topic", (b"orders", None, 1), "store.consumer(x)"),
    ("topic", (b"orders", None, 1), 'store.query(x, "k")'),
    ("topic", (b"orders", None, 1), "store.queues(x)"),
    ("topic", (b"orders", None, 1), "store.max_queue_offset(x, 0)"),
    ("topic", (b"orders", None, 1), "store.offset_at(x, 0, 0)"),
    ("timeout_s", ("x",), 'store.writer("t").put(b"x", durability="memory", timeout_s=x)'),
    ("timeout_s", ([],), "store.wait_flushed(0, x)"),
    ("timeout_s", ("x",), "store.flush(x)"),
    ("timeout_s", ("x",), 'store.consumer("t").poll(timeout_s=x)'),
    ("timeout_s", ("x",), 'store.consumer("t").poll_columns(timeout_s=x)'),
    ("timeout_s", ("x",), 'next(store.consumer("t").follow(x))'),
    ("tags", (5, b"paid"), 'store.consumer("t", tags=x)'),
    ("tags", (["a"],), PUT),
    ("keys", (5,), 'store.writer("t").put(b"x", keys=["a", x])'),
    ("shard_key", (5,), PUT),
    ("message", (b"body",), "rocketstore.decompress(x)"),
    ("born_host", (5,), MESSAGE),
    ("tags", (5,), "scan(store, tags=x)"),
    ("group", (5,), 'store.consumer("t", group=x)'),
    ("queue_id", ("x",), 'store.consumer("t").seek("earliest", queue_id=x)'),
    ("offset", ([],), 'store.consumer("t", queue_id=0).seek(x)'),
    ("max_messages", ("x",), 'store.consumer("t").poll_columns(x)'),
    ("columns", (5,), 'store.consumer("t").poll_columns(columns=x)'),
    ("columns", ("body",), "scan(store, columns=x)"),
    ("topics", (5,), "scan(store, topics=x)"),
    ("topic_pattern", (5,), "scan(store, topic_pattern=x)"),
    ("chunk_bytes", ("x",), "scan(store, chunk_bytes=x)"),
    ("threads", (1.5,), "scan(store, threads=x)"),
    ("split_bytes", ("x",), "scan(store).split(x)"),
    ("queues", ("4",), 'shard_queue_id("a", x)'),
    ("shard_key", (b"a",), "shard_queue_id(x, 4)"),
    ("workers", ("4", True), 'tools.rebuild(".", workers=x)'),
)

#: Argument, values, call: each a ValueError.
VALUES: Final[tuple[tuple[str, tuple[Any, ...], str], ...]] = (
    ("flag", (2**31, 2**70), MESSAGE),
    ("sys_flag", (2**32, -1), MESSAGE),
    ("reconsume_times", (-(2**31) - 1,), MESSAGE),
    ("prepared_transaction_offset", (2**63,), MESSAGE),
    ("born_host", ("here",), MESSAGE),
    ("store_host", ("[1.2.3.4]:5",), MESSAGE),
    ("born_host", ("1.2.3:4",), FRAMES),
    ("timeout_s", (float("nan"),), "store.flush(x)"),
    ("durability", ("none", 3), PUT),
    ("durability", (b"disk",), 'store.writer("t").submit(b"x", durability=x)'),
    ("queue_id", (-1,), CONSUMER),
    ("queue_id", (-1,), 'store.min_queue_offset("t", x)'),
    ("queue_id", (-1,), 'store.max_queue_offset("t", x)'),
    ("queue_id", (-1,), 'store.offset_at("t", x, 0)'),
    ("queue_id", (9,), 'store.consumer("orders").seek("earliest", queue_id=x)'),
    ("boundary", ("middle", 3), 'store.offset_at("t", 0, 0, x)'),
    ("end_offset", (-1,), "store.wait_flushed(x)"),
    ("before_offset", (-1,), "store.trim(before_offset=x)"),
    ("limit", (0,), 'store.query("t", "k", limit=x)'),
    ("end", (5,), 'store.query("t", "k", begin=10, end=x)'),
    ("offset", ("first", 3), CONSUMER),
    ("offset", ("first",), 'store.consumer("t").seek(x)'),
    ("reset", ("first", []), CONSUMER),
    ("tags", ([],), CONSUMER),
    ("max_messages", (65537,), 'store.consumer("t").poll_columns(x)'),
    ("topic_pattern", ("(",), "scan(store, topic_pattern=x)"),
    ("verify", ([],), "scan(store, verify=x)"),
    ("on_damage", ("ignore", 3), "scan(store, on_damage=x)"),
    ("chunk_bytes", (0,), "scan(store, chunk_bytes=x)"),
    ("threads", (65,), "scan(store, threads=x)"),
    ("end", (5,), "scan(store, begin=10, end=x)"),
    ("queues", (0,), 'shard_queue_id("a", x)'),
    ("workers", (257, 10**20), 'tools.rebuild(".", workers=x)'),
)

NO_BODIES: Final[tuple[tuple[Any, str], ...]] = (
    (None, "expected bytes or a buffer, not NoneType; an empty body is b''"),
    ("text", r"expected bytes or a buffer, not str; .*\.encode\(\)"),
    ({"a": 1}, r"expected bytes or a buffer, not dict; .*json\.dumps"),
    (7, "expected bytes or a buffer, not int"),
    ([b"a"], "expected bytes or a buffer, not list"),
    (np.str_("text"), r"expected bytes or a buffer, not str_; .*\.encode\(\)"),
    (np.array(["a"], dtype=object), "expected bytes or a buffer, not an array of objects"),
    (np.zeros(2, "i4, O"), "expected bytes or a buffer, not an array of objects"),
)
#: Their memory has four bytes a letter, which no reader would take for the text.
TEXTS: Final[tuple[Any, ...]] = (
    np.array(["ab"]),
    np.array(["ab", "c"])[::2],
    *([array.array("u", "ab")] if sys.version_info < (3, 13) else []),  # it goes with 3.16
    np.array([("a", 1)], dtype=[("w", "U1"), ("u", "i4")]),
    ctypes.c_wchar("a"),
)
ONE_BODY = (
    'store.writer("orders").put(x)',
    'store.writer("orders").submit(x)',
    'store.put_message("orders", x)',
    'store.put_batch([NewMessage("orders", x)])',
)
BATCH = 'store.writer("orders").put_batch(x)'
SECOND_OF_BATCH = 'store.writer("orders").put_batch([b"a", x])'
KEYS = (
    PUT.format("keys"),
    'store.writer("orders").put_batch([b"x"], keys=x)',
    'store.writer("orders", keys=x)',
    'store.put_batch([NewMessage("orders", b"x", keys=x)])',
)
PROPERTIES = (
    'store.writer("orders").put(b"x", properties={})',
    'store.writer("orders", properties={})',
)
RESERVED = ("TAGS", "KEYS", "WAIT", "__SHARDINGKEY", "DELAY", "TRAN_MSG", "__CRC32#")
INNER = 'store.put_message("orders", b"x", properties={{"INNER_NUM": {}, "INNER_BASE": {}}})'
PORTS = ("99999", "65536", "-1", "+5", " 5", "\u0663", "1e3")
#: Java takes none of their ports.
HOSTS: Final = tuple(f"{host}:{port}" for host in ("1.2.3.4", "[::1]") for port in PORTS)
NAIVE = datetime.datetime(2026, 1, 1)


def closed_view() -> memoryview:
    view = memoryview(b"abc")
    view.release()
    return view


ROWS: Final[tuple[Row, ...]] = (
    *(Row(n, ConfigError, "", v, (call.format(n),)) for n, v, call in OPTIONS),
    Row("queue_id", ConfigError, "must be a whole number, 0 … 2147483647$", ("0",), (
        'store.writer("t", queue_id=x)',
    )),
    *(
        Row(n, ConfigError, said, (True, None, 1, b"disk"), (f"StoreConfig({n}=x)",))
        for n, said in SAID_BY_OPTIONS
    ),
    *(Row(n, TypeError, "", v, (call.format(n),)) for n, v, call in TYPES),
    *(Row(n, ValueError, "", v, (call.format(n),)) for n, v, call in VALUES),
    Row("keys", TypeError, "expected", (5, object), (PUT.format("keys"),)),
    Row("properties", TypeError, "expected", ([("a", "b")], "a"), (PUT.format("properties"),)),
    Row("keys", TypeError, ".*expected a str, or", (
        b"a", bytearray(b"a"), memoryview(b"a"),
    ), KEYS),
    Row("shard_key", TypeError, "expected a str$", (b"customer", 7, Path("x")), (
        'store.writer("orders", queues=4).put(b"x", shard_key=x)',
    )),
    *(
        Row(n, MessageRejectedError, "", ("", "a\x01", "\ud800"), (
            f'store.writer("t", queues=2).put(b"x", {n}=x)',
        ))
        for n in ("tags", "keys", "shard_key")
    ),
    *(
        Row(n, ValueError, "", HOSTS, (call.format(n),))
        for n, call in (("born_host", MESSAGE), ("store_host", MESSAGE), ("born_host", FRAMES))
    ),
    # Topics that could leave the directory.
    Row("topic", InvalidTopicError, "allowed are", ("", "..", "a/b", "a b", "a\0b", "ü"), (
        "store.writer(x)",
    )),
    Row("tags", MessageRejectedError, "control character 1 or 2", ("a\1b", "a\2b"), (
        PUT.format("tags"),
    )),
)  # fmt: skip


#: Other texts than "argument = value: …".
WORDS: Final[tuple[Row, ...]] = (
    *(Row("body", TypeError, f"^body: {said}", (body,), ONE_BODY) for body, said in NO_BODIES),
    *(
        Row("bodies[1]", TypeError, rf"^bodies\[1\]: {said}", (body,), (SECOND_OF_BATCH,))
        for body, said in NO_BODIES
    ),
    Row("body", TypeError, "array of texts.*encode its items", TEXTS, (
        ONE_BODY[0], SECOND_OF_BATCH,
    )),
    Row("body", MessageRejectedError, "^body: .*; give its bytes, as by .tobytes", (
        np.array(["2026-01-01"], "M8[D]"), closed_view(),
    ), ONE_BODY[:1]),
    Row("bodies[0]", MessageRejectedError, r"^bodies\[0\]: .*; give its bytes", (
        np.array(["2026-01-01"], "M8[D]"), closed_view(),
    ), ('store.writer("orders").put_batch([x])',)),
    Row("bodies", TypeError, "bodies: one .*, expected several bodies; one goes to put", (
        b"abc", bytearray(b"abc"), memoryview(b"abc"), "abc",
    ), (BATCH,)),
    Row("bodies", TypeError, "bodies: expected several bodies, not", (None, 5), (BATCH,)),
    # Python itself refuses no keyword of a call that takes columns by name.
    Row("topic", TypeError, r"^encode_frames\(\) has no argument 'topic'; did you mean topics\?", (
        ["t"],
    ), ('encode_frames([b"a"], topic=x)',)),
    Row("topic", InvalidTopicError, "^topic = 't{127}…': it has 128 bytes", ("t" * 128,), (
        "store.writer(x)", 'store.put_message(x, b"x")',
    )),
    # The first is how native code says "none"; the second is one beyond the field.
    Row("born_time", ValueError, "^born_time = -?9223372036854775808 does not", (-(2**63), 2**63), (
        MESSAGE.format("born_time"),
    )),
    Row("begin", ValueError, "^begin = datetime.*has no time zone", (NAIVE,), (
        'store.query("t", "k", begin=x)',
    )),
    Row("when", ValueError, "^when = datetime.*has no time zone", (NAIVE,), (
        'store.consumer("t").seek(when=x)',
    )),
    *(
        Row(name, MessageRejectedError, name, ({name: "1"},), (
            PROPERTIES[0].format("x"), PROPERTIES[1].format("x"),
        ))
        for name in RESERVED
    ),
    Row("properties", MessageRejectedError, "^property .*control character 1 or 2", (
        "a\1b", "a\2b",
    ), (
        PROPERTIES[0].format('{x: "v"}'), PROPERTIES[0].format('{"n": x}'),
    )),
    # RocketMQ cuts its log at such a record, and its dispatch leaves out what follows.
    Row("DELAY", MessageRejectedError, "DELAY", (
        "abc", "2147483648", "+-2", " 2", "٣", "1.0", "--1", "-",
    ), (DELAYED,)),
    # Counts of a batch that no recovery could read.
    Row("INNER_NUM", MessageRejectedError, "INNER_", ("x", "32768"), (INNER.format("x", '"0"'),)),
    Row("INNER_BASE", MessageRejectedError, "INNER_", ("x", "9223372036854775808"), (
        INNER.format('"1"', "x"),
    )),
    # RocketMQ 5.3 takes an inner batch only for a topic with batch queues, which are not written here.
    *(
        Row("sys_flag", MessageRejectedError, f"sys_flag = {flag:#x}: an inner batch", (flag,), (
            'store.put_message("orders", b"x", sys_flag=x, properties={"INNER_NUM": "3"})',
        ))
        for flag in (0x80, 0xC0, np.uint32(0x3C1))
    ),
)  # fmt: skip
