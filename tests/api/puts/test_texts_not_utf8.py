"""Tags, keys and properties that are not UTF-8, as another client may write them: found by what is
shown, which is what Java shows."""

from __future__ import annotations

import itertools
import random
import shutil
from pathlib import Path

import pytest

import rocketstore
from rocketstore._native.format.codec import java_hash
from rocketstore.tools import verify
from rocketstore.values.java_text import java_text
from tests.support.small_store import open_small

MARK = "\ufffd"
#: Bytes of a tag, a key and a property; what Java's decoder makes of them.
TEXTS = [
    (b"\xed\xa0\xbd", MARK),
    (b"\xed\xa0\xbd\xed\xb8\x80", MARK * 2),
    (b"\xed\xa0", MARK),
    (b"\xc0\x80", MARK * 2),
    (b"\xff\xfe\x80", MARK * 3),
    (b"a\xe2\x82b", f"a{MARK}b"),
    (b"\xf0\x9f\x98", MARK),
    (b"\xf4\x90\x80\x80", MARK * 4),
    ("gr\u00f6\u00dfe".encode(), "gr\u00f6\u00dfe"),
    (MARK.encode(), MARK),
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one message for each text, whose derived files are made of those bytes."""
    path = tmp_path_factory.mktemp("texts") / "s"
    with open_small(path, record_crc=False) as store:
        for number, (raw, _) in enumerate(TEXTS):
            name = chr(65 + number) * len(raw)
            store.put_message(
                "t", b"%d" % number, properties={"TAGS": name, "KEYS": name, "p": name}
            )
    (log,) = (path / "commitlog").iterdir()
    found = log.read_bytes()
    for number, (raw, _) in enumerate(TEXTS):
        for prefix in (b"TAGS\x01", b"KEYS\x01", b"p\x01"):
            name = prefix + bytes([65 + number]) * len(raw)
            assert found.count(name) == 1
            found = found.replace(name, prefix + raw)
    log.write_bytes(found)
    shutil.rmtree(path / "consumequeue")
    shutil.rmtree(path / "index")
    with open_small(path, record_crc=False):
        pass
    return path


def shown_as(text: str) -> list[bytes]:
    return [b"%d" % number for number, (_, shown) in enumerate(TEXTS) if shown == text]


@pytest.mark.parametrize(("raw", "shown"), TEXTS, ids=[raw.hex() for raw, _ in TEXTS])
def test_messages_are_found_by_what_is_shown(path: Path, raw: bytes, shown: str) -> None:
    number = [text for text, _ in TEXTS].index(raw)
    with rocketstore.open(path, "r") as store:
        message = next(m for m in store.consumer("t") if m.body == b"%d" % number)
        assert (message.tags, message.keys, message.properties["p"]) == (shown, (shown,), shown)
        expected = shown_as(shown)
        assert [bytes(m.body) for m in store.consumer("t", tags=shown)] == expected
        assert sorted(bytes(m.body) for m in store.query("t", shown)) == expected
        scanned = [
            (body, tags)
            for columns in rocketstore.scan(store, tags=shown)
            for body, tags in zip(columns["body"].tolist(), columns["tags"].tolist(), strict=True)
        ]
        assert scanned == [(body, shown) for body in expected]
        polled = store.consumer("t", tags=[shown]).poll_columns(columns=["tags", "keys"])
        assert polled["tags"].tolist() == polled["keys"].tolist() == [shown] * len(expected)
        rows = sum(columns.rows for columns in rocketstore.scan(store, tags=f"none || {shown}"))
        assert rows == len(expected)


def test_verify_finds_no_faults(path: Path) -> None:
    assert verify(path).faults == ()


def test_what_is_shown_is_what_is_hashed() -> None:
    """The text of Python and the hash of C replace alike: of all short sequences of bytes that
    matter, and of random ones."""
    pool = [
        0x41,
        0x80,
        0x8F,
        0x90,
        0x9F,
        0xA0,
        0xBF,
        0xC0,
        0xC2,
        0xE0,
        0xED,
        0xEF,
        0xF0,
        0xF4,
        0xF5,
    ]
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    texts = [bytes(t) for n in (1, 2, 3) for t in itertools.product(pool, repeat=n)]
    texts += [bytes(chance.choice(pool) for _ in range(chance.randint(4, 9))) for _ in range(5000)]
    for raw in texts:
        value = 0
        for unit in memoryview(java_text(raw).encode("utf-16-le")).cast("H"):
            value = (31 * value + unit) & 0xFFFFFFFF
        assert java_hash(raw) & 0xFFFFFFFF == value, raw.hex(" ")
