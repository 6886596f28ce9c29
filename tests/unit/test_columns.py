"""The native column scanner against Message objects, over records that are built here."""

from __future__ import annotations

import itertools
import json
import random
import string
import time
from typing import Any, get_args

import numpy as np
import pytest

from rocketstore._native.format.column_scanner import CODED, NUMBERS, TEXTS, ColumnScanner
from rocketstore._native.format.scanner import read_message
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.columns import COLUMNS, CodedName, Int32Name, Int64Name, TextName, columns_of
from tests.support import paths
from tests.unit.conftest import record

VECTORS = json.loads((paths.VECTORS / "vectors.json").read_text())
START = 1 << 20
SIZE = 1 << 20
BOTH = 3


def random_fields(rng: random.Random) -> dict[str, Any]:
    pieces = [b"TAGS\1paid\2", b"TAGS\1l\xc3\xa4te\2", b"KEYS\1a b\2", b"x\1y\2", b"x\1z\2"]
    pieces += [
        b"bad\xff\1v\xed\xa0\x80\2",
        b"\1novalue\2",
        b"noseparator\2",
        b"KEYS\1c\2",
        b"e\1\2",
    ]
    return {
        "topic": rng.choice(("orders", "other", "w" * 200, "t" * 127)),
        "body": rng.randbytes(rng.choice((0, 1, 12, 13, 200, 3000))),
        "properties": b"".join(rng.choices(pieces, k=rng.randrange(6))),
        "queue_id": rng.randrange(-1, 5),
        "queue_offset": rng.randrange(2**62),
        "flag": rng.randrange(-9, 9),
        "sys_flag": rng.choice((0, 1, 8, 0x80000000)),
        "born_timestamp_ms": rng.randrange(-(2**63), 2**63),
        "store_timestamp_ms": rng.choice((rng.randrange(2**50), -(2**63), 2**63 - 1)),
        "born_host": rng.choice(("1.2.3.4:5", "[2001:db8::7]:-1", "[::ffff:1.2.3.4]:9")),
        "store_host": rng.choice(("1.2.3.4:5", "[::1]:65535")),
        "reconsume_times": rng.randrange(-3, 3),
        "prepared_transaction_offset": rng.randrange(-(2**40), 2**40),
        "record_crc": rng.random() < 0.5,
    }


def made_file(rng: random.Random, count: int) -> tuple[MappedFile, list[int], int]:
    """A file of random records, their positions, and the position behind the last."""
    file, positions, at = MappedFile.anonymous(START, SIZE), [], 0
    for _ in range(count):
        data = record(START + at, **random_fields(rng))
        file.write(at, data)
        positions.append(at)
        at += len(data)
    return file, positions, at


def scanner(names: Any = COLUMNS, room: int = 8192, **options: Any) -> ColumnScanner:
    return ColumnScanner(names, room=room, verify=BOTH, **options)


def rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    columns = columns_of(found, tuple(found))
    lists = {name: column.tolist() for name, column in columns.items()}
    return [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]


def expected(file: MappedFile, position: int) -> dict[str, Any]:
    message = read_message(file, position, file.size, verify=0)
    row = {
        name: getattr(message, name)
        for name in COLUMNS
        if name not in ("body_size", "body_view", "keys")
    }
    keys = message.properties.get("KEYS")
    return row | {"body_size": len(message.body), "body_view": message.body, "keys": keys}


def test_every_column_of_random_records(rng: random.Random) -> None:
    file, positions, end = made_file(rng, 300)
    found = scanner().read(file, 0, end, file.size, 1 << 30)
    assert set(found) == {*NUMBERS, *CODED, *TEXTS} == set(COLUMNS)
    assert rows(found) == [expected(file, position) for position in positions]


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_alone_is_the_same(name: str, rng: random.Random) -> None:
    file, positions, end = made_file(rng, 60)
    found = rows(scanner([name]).read(file, 0, end, file.size, 1 << 30))
    assert found == [{name: expected(file, position)[name]} for position in positions]


@pytest.mark.parametrize("row", VECTORS["records"], ids=lambda row: row["id"])
def test_known_records(row: dict[str, Any]) -> None:
    """Each record of the vectors, in a file where it says that it is."""
    data = bytes.fromhex(row["hex"])
    offset = int.from_bytes(data[28:36], "big")
    position = offset % 64
    file = MappedFile.anonymous(offset - position, len(data) + 128)
    file.write(position, data)
    found = scanner().read(file, position, position + len(data), file.size, 1 << 30)
    assert rows(found) == [expected(file, position)]


def test_messages_give_the_columns_of_their_records(rng: random.Random) -> None:
    """In any order, again and again, as far as there is room."""
    file, positions, end = made_file(rng, 300)
    names = [name for name in COLUMNS if name != "body_view"]
    one, most = scanner(names, 70), 1 << 30
    whole = rows(scanner(names).read(file, 0, end, file.size, most))
    for _ in range(5):
        chosen = rng.choices(range(len(positions)), k=rng.randrange(71))
        messages = [read_message(file, positions[n], file.size, verify=0) for n in chosen]
        assert one.fitting(messages, most) == len(messages)
        assert rows(one.take(messages)) == [whole[n] for n in chosen]
    messages = [read_message(file, position, file.size, verify=0) for position in positions]
    assert one.fitting(messages, most) == 70
    assert one.fitting(messages, 0) == 1
    sizes = [message.size for message in messages]
    assert one.fitting(messages, sum(sizes[:9])) == 9
    assert one.fitting(messages, sum(sizes[:9]) - 1) == 8
    with pytest.raises(ValueError, match="more than there is room for"):
        one.take(messages)
    with pytest.raises(ValueError, match="of one file"):
        scanner(["body_view"]).take(messages[:1])
    with pytest.raises(ValueError, match="leave out"):
        scanner(names, tags=[b"no such tag"]).take(messages[:1])
    with pytest.raises(TypeError):
        one.take([None])  # type: ignore[list-item]


def test_reads_stop_at_rows_and_bytes(rng: random.Random) -> None:
    file, positions, end = made_file(rng, 100)
    for room, byte_limit in ((1, 1 << 20), (7, 1 << 20), (100, 1), (100, 5000)):
        one, at, seen = scanner(["physical_offset"], room), 0, []
        while at < end:
            found = one.read(file, at, end, file.size, byte_limit)
            assert 1 <= one.rows <= room
            assert one.rows == 1 or one.row_bytes <= byte_limit
            assert one.status == ("end" if one.end_position == end else "full")
            seen += found["physical_offset"].tolist()
            at = one.end_position
        assert seen == [START + position for position in positions]


def test_a_thousand_topics_and_hosts() -> None:
    """More words than a dictionary begins with; each is asked for once."""
    file, at = MappedFile.anonymous(START, SIZE), 0
    asked: list[str] = []
    for n in range(1000):
        data = record(START + at, topic=f"topic{n % 500}", born_host=f"10.0.{n // 250}.{n % 250}:1")
        file.write(at, data)
        at += len(data)

    def accept(topic: str) -> bool:
        asked.append(topic)
        return not topic.endswith("7")

    one = scanner(["topic", "born_host"], accept=accept)
    for _ in range(2):
        found = rows(one.read(file, 0, at, file.size, 1 << 30))
        wanted = [n for n in range(1000) if n % 10 != 7]
        assert [row["topic"] for row in found] == [f"topic{n % 500}" for n in wanted]
        assert [row["born_host"] for row in found] == [
            f"10.0.{n // 250}.{n % 250}:1" for n in wanted
        ]
        assert one.records == 1000
    assert sorted(asked) == sorted({f"topic{n}" for n in range(500)})


def test_topics_that_differ_in_one_character_anywhere() -> None:
    """Of all lengths that are hashed in another way."""
    topics = [
        "o" * at + other + "o" * (size - at - 1)
        for size in range(1, 26)
        for at in range(size)
        for other in "ox"
    ]
    file, at = MappedFile.anonymous(START, SIZE), 0
    for topic in topics:
        data = record(START + at, topic=topic)
        file.write(at, data)
        at += len(data)
    found = rows(scanner(["topic"]).read(file, 0, at, file.size, 1 << 30))
    assert [row["topic"] for row in found] == topics


def test_what_is_no_record_ends_a_read(rng: random.Random) -> None:
    file, positions, end = made_file(rng, 20)
    one = scanner(["body"])
    one.read(file, 0, SIZE, SIZE, 1 << 30)
    assert (one.status, one.end_position, one.rows) == ("zeros", end, 20)
    file.write(end, (SIZE - end).to_bytes(4, "big") + bytes.fromhex("cbd43194"))
    one.read(file, 0, SIZE, SIZE, 1 << 30)
    assert (one.status, one.end_position) == ("blank", end)
    one.read(file, 0, end - 1, end - 1, 1 << 30)
    assert (one.status, one.end_position, one.rows) == ("truncated", positions[-1], 19)
    broken = positions[10]
    file.write(broken + 40, b"\xff" * 4)
    file.write(broken + 28, b"\xff")
    one.read(file, 0, end, SIZE, 1 << 30)
    assert (one.status, one.end_position, one.rows) == ("physical offset", broken, 10)


@pytest.mark.parametrize("name", [*CODED, *TEXTS])
def test_every_column_is_read_by_row_slice_and_loop(name: str, rng: random.Random) -> None:
    file, _, end = made_file(rng, 50)
    column = columns_of(scanner([name]).read(file, 0, end, file.size, 1 << 30), (name,))[name]
    rows = column.tolist()
    count = len(rows)
    assert len(column) == count == 50
    assert list(column) == rows
    assert [column[row] for row in range(-count, count)] == rows + rows
    assert column[np.int32(3)] == rows[3]
    for part in (slice(0, 2), slice(None, None, -7), slice(45, 99), slice(7, 3)):
        assert column[part] == rows[part]
    for row in (count, -count - 1):
        with pytest.raises(IndexError, match=f"row = {row}: the column has 50 rows"):
            column[row]
    for wrong in ("0", 1.0, None):
        with pytest.raises(TypeError, match=r"row = .*: an int or a slice, not"):
            column[wrong]


def test_views_point_into_the_file(rng: random.Random) -> None:
    file, _, end = made_file(rng, 50)
    found = scanner(["body_view", "body"]).read(file, 0, end, file.size, 1 << 30)
    columns = columns_of(found, ("body", "body_view"))
    view = columns["body_view"]
    assert view.tolist() == columns["body"].tolist()
    for row, body in enumerate(columns["body"].tolist()):
        size, inline = int.from_bytes(view.views[16 * row :][:4].tobytes(), "little"), 12
        assert size == len(body)
        assert view.views[16 * row + 4 :][: min(4, size)].tobytes() == body[:4]
        if size > inline:
            at = int.from_bytes(view.views[16 * row + 12 :][:4].tobytes(), "little")
            assert at == view.positions[row]


def test_wrong_arguments() -> None:
    file = MappedFile.anonymous(0, 4096)
    with pytest.raises(ValueError, match="colour"):
        scanner(["colour"])
    with pytest.raises(ValueError, match="room"):
        scanner(["body"], room=0)
    for place in ((-1, 0, 0), (2, 1, 4096), (0, 10, 5), (0, 10, 5000)):
        with pytest.raises(ValueError, match="is no part"):
            scanner(["body"]).read(file, *place, 1)
    for byte_limit in (0, 1 << 31):
        with pytest.raises(ValueError, match="byte_limit"):
            scanner(["body"]).read(file, 0, 0, 0, byte_limit)


def test_hostile_bytes_never_lead_outside(rng: random.Random) -> None:
    """Bits of sound records turned over: a read ends with a name, whatever it finds."""
    for _ in range(150):
        file, positions, end = made_file(rng, 5)
        for _ in range(rng.randrange(1, 8)):
            position = rng.randrange(end)
            file.write(position, bytes([file.read(position, 1)[0] ^ (1 << rng.randrange(8))]))
        one = ColumnScanner(COLUMNS, room=8192, verify=rng.choice((0, 1, 2, 3)))
        found = one.read(file, 0, end, end, 1 << 30)
        assert len(rows(found)) == one.rows
        assert one.end_position in (*positions, end)


NAMES = ["".join(pair) for pair in itertools.product(string.printable[:90], repeat=2)]


def read_properties(file: MappedFile, end: int) -> dict[str, Any]:
    return scanner(["properties"]).read(file, 0, end, file.size, 1 << 30)


@pytest.mark.parametrize("count", [1, 2, 31, 32, 33, 34, 63, 64, 65, 1000, 6500])
def test_names_that_come_again_are_one_with_the_last_value(count: int, rng: random.Random) -> None:
    """Where the first stands, in texts of few and of many pieces."""
    file, at = MappedFile.anonymous(START, SIZE), 0
    texts = [rng.choices(NAMES[:most], k=count) for most in (1, 2, count // 2 + 1, count, 6500)]
    texts.append(rng.sample(NAMES, count))
    for names in texts:
        pairs = [f"{name}\1{n % 10}\2" for n, name in enumerate(names)]
        data = record(START + at, properties="".join(pairs).encode())
        file.write(at, data)
        at += len(data)
    found = [list(row["properties"].items()) for row in rows(read_properties(file, at))]
    wanted = [{name: str(n % 10) for n, name in enumerate(names)} for names in texts]
    assert found == [list(row.items()) for row in wanted]


def test_as_many_properties_as_a_text_can_hold() -> None:
    pieces = [f"{chr(33 + n % 90)}\1{n % 10}\2" for n in range(8191)]
    data = record(START, properties="".join(pieces).encode(), record_crc=False)
    file = MappedFile.anonymous(START, SIZE)
    file.write(0, data)
    (row,) = rows(read_properties(file, len(data)))
    assert row["properties"] == {piece[0]: piece[2] for piece in pieces}
    assert list(row["properties"]) == [piece[0] for piece in pieces[:90]]


def test_four_times_the_names_take_about_four_times_as_long() -> None:
    """Each name compared with each would be sixteen times as long."""
    took = []
    for count in (1600, 6400):
        text = "".join(f"{name}\1v\2" for name in NAMES[:count]).encode()
        file, at = MappedFile.anonymous(START, SIZE), 0
        for _ in range(16):
            data = record(START + at, properties=text)
            file.write(at, data)
            at += len(data)
        best = 1e9
        for _ in range(7):
            begun = time.thread_time()
            read_properties(file, at)
            best = min(best, time.thread_time() - begun)
        took.append(best)
    assert took[1] < 9 * took[0], took


def test_type_checkers_know_the_type_of_each_column() -> None:
    """The names in the types are those of the scanner, each in the group of its type."""
    numbers = {kind: {n for n, k in NUMBERS.items() if k == kind} for kind in NUMBERS.values()}
    assert numbers == {
        "int64": set(get_args(Int64Name)),
        "int32": set(get_args(Int32Name)),
        "uint32": {"sys_flag"},
    }
    assert set(get_args(CodedName)) == set(CODED)
    assert set(get_args(TextName)) | {"body", "body_view", "properties"} == set(TEXTS)
