"""A place names the log that it was made in."""

from __future__ import annotations

import pytest

from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.log.layout.log_place import LogPlace, place_at, place_in, stands, tail_bytes

SIZE = 1 << 14


def log(*fills: bytes, begin: int = 0) -> tuple[MappedFile, ...]:
    """Files that begin with these bytes; zeros follow."""
    files = []
    for number, fill in enumerate(fills):
        file = MappedFile.anonymous(begin + number * SIZE, SIZE)
        file.write(0, fill)
        files.append(file)
    return tuple(files)


def test_a_place_stands_while_its_log_grows() -> None:
    files = log(b"a" * 5000)
    place = place_at(files, 5000)
    files[0].write(5000, b"more")
    assert stands(log(b"a" * 5000 + b"b" * 100, b"c"), place)
    assert stands(files, place)
    assert place_in(list(place)) == place


@pytest.mark.parametrize(
    ("files", "why"),
    [
        (log(b"a" * 4000), "cut"),
        (log(b"a" * 4000 + b"b" * 9000), "cut and grown again"),
        (log(b"a" * 904 + b"x" + b"a" * 4095), "the first byte that is covered"),
        (log(b"a" * 4999 + b"x"), "the last byte that is covered"),
        ((), "no log any more"),
        (log(b"a" * 9000)[:0] + log(b"", b"a" * 50), "its file is empty"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_another_log_has_it_not(files: tuple[MappedFile, ...], why: str) -> None:
    assert stands(files, place_at(log(b"a" * 5000), 5000)) is False, why


def test_bytes_before_those_that_are_covered_do_not_count() -> None:
    assert stands(log(b"a" * 903 + b"x" + b"a" * 4096), place_at(log(b"a" * 5000), 5000))


def test_a_place_that_was_trimmed_cannot_be_compared() -> None:
    place = place_at(log(b"a" * 10, b"b" * 10), SIZE)
    assert stands(log(b"x" * 10, begin=SIZE), place) is None
    assert stands(log(b"x" * 10, begin=SIZE), place_at(log(b"a", b"b"), SIZE + 1)) is False
    assert stands(log(b"a"), place_at((), 0)) is None


def test_a_gap_at_the_end_of_a_file_shows_no_log() -> None:
    place = place_at(log(b"a" * 10), SIZE)
    assert stands(log(b"a" * 10, b"b"), place)
    assert stands(log(b"b" * 10), place) is False
    assert stands(log(b""), place) is False
    assert stands(log(b"", b"b"), place_at(log(b"a" * 10, b"b"), SIZE)) is False


@pytest.mark.parametrize("before", [4096, 4097, 5000, 8191, 8192])
def test_a_blank_alone_shows_no_log(before: int) -> None:
    """Records of one size leave it at the same place in each log."""
    blank = b"\0\0\x30\0\xcb\xd4\x31\x94"
    place = place_at(log(b"a" * before + blank), SIZE)
    assert stands(log(b"a" * before + blank, b"b"), place)
    assert stands(log(b"b" * before + blank), place) is False


def far_record(begin: int, time: int, body: int) -> bytes:
    """A record without a checksum, in front of which is another one."""
    header = b"\0\0\x30\0\xda\xa3\x20\xa7" + bytes(20) + begin.to_bytes(8, "big") + bytes(4)
    return b"a" * begin + header + time.to_bytes(8, "big") + bytes(43) + b"z" * body


@pytest.mark.parametrize("body", [4096, 5000, 12_000])
@pytest.mark.parametrize("at", ["its end", "the end of its file"])
def test_a_long_body_alone_shows_no_log(body: int, at: str) -> None:
    """Two messages that end alike, at the same offset and at different times."""
    one, other = (log(far_record(700, time, body), b"c") for time in (1, 2))
    end = SIZE if at == "the end of its file" else 700 + 91 + body
    assert stands(one, place_at(one, end))
    assert stands(other, place_at(one, end)) is False


def test_the_magic_of_a_record_in_a_body_shows_no_header() -> None:
    fill = far_record(700, 1, 9000) + b"\xda\xa3\x20\xa7" + b"z" * 100
    place = place_at(log(fill), len(fill))
    assert stands(log(fill), place)
    assert stands(log(fill.replace(b"\1", b"\2")), place) is False


def test_bytes_of_one_file() -> None:
    files = log(b"a" * SIZE, b"b" * 10)
    assert tail_bytes(files, SIZE + 3) == b"bbb"
    assert tail_bytes(files, SIZE, 2) == b"aa"
    assert tail_bytes(files, 0) == tail_bytes(files, 2 * SIZE + 1) == tail_bytes((), 7) == b""


@pytest.mark.parametrize(
    "value",
    [None, [], [1], [1, 2, 3], [-1, 0], [True, 0], [0, 1 << 32], [1 << 63, 0], "ab", [0.0, 1]],
)
def test_what_is_no_place(value: object) -> None:
    assert place_in(value) is None


def test_the_form_in_files() -> None:
    assert place_in([7, 9]) == LogPlace(7, 9)
