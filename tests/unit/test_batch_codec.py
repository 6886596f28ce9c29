"""Client batches: elements back to back in one body (format.md 4.1)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketstore._native.format import codec
from rocketstore.errors import CorruptRecordError, MessageRejectedError, PropertiesTooLargeError

pytestmark = pytest.mark.quick

FLAG = st.integers(-(2**31), 2**31 - 1)
ELEMENTS = st.lists(st.tuples(FLAG, st.binary(max_size=60), st.binary(max_size=40)), max_size=6)
FIXED = 22


@given(elements=ELEMENTS)
def test_decode_undoes_encode(elements: list[tuple[int, bytes, bytes]]) -> None:
    body = codec.encode_batch(elements)
    assert len(body) == sum(FIXED + len(b) + len(p) for _, b, p in elements)
    assert codec.decode_batch(body) == elements


@given(elements=ELEMENTS.filter(bool), data=st.data())
def test_every_cut_inside_an_element_is_refused(
    elements: list[tuple[int, bytes, bytes]], data: st.DataObject
) -> None:
    body = codec.encode_batch(elements)
    starts = [len(codec.encode_batch(elements[:i])) for i in range(len(elements) + 1)]
    cut = data.draw(st.integers(0, len(body) - 1))
    if cut in starts:
        assert codec.decode_batch(body[:cut]) == elements[: starts.index(cut)]
        return
    with pytest.raises(CorruptRecordError) as caught:
        codec.decode_batch(body[:cut])
    assert caught.value.reason == "batch"
    assert caught.value.physical_offset == max(start for start in starts if start < cut)


def test_size_magic_and_crc_of_an_element_are_not_looked_at() -> None:
    body = bytearray(codec.encode_batch([(7, b"body", b"a\x01b\x02")]))
    body[:12] = b"\xff" * 12
    assert codec.decode_batch(bytes(body)) == [(7, b"body", b"a\x01b\x02")]


@pytest.mark.parametrize(
    ("position", "value"),
    [
        (16, b"\xff\xff\xff\xff"),
        (16, b"\x80\x00\x00\x00"),
        (16, b"\x7f\xff\xff\xff"),
        (24, b"\xff\xff"),
    ],
)
def test_negative_and_huge_lengths_are_refused(position: int, value: bytes) -> None:
    body = bytearray(codec.encode_batch([(0, b"body", b"")]))
    body[position : position + len(value)] = value
    with pytest.raises(CorruptRecordError, match="batch"):
        codec.decode_batch(bytes(body))


def test_a_properties_length_with_the_top_bit_is_negative_even_if_the_bytes_are_there() -> None:
    body = codec.encode_batch([(0, b"", b"")])[:-2] + b"\x80\x00" + bytes(0x8000)
    with pytest.raises(CorruptRecordError, match="batch"):
        codec.decode_batch(body)


def test_an_element_with_too_many_properties_is_refused() -> None:
    assert codec.decode_batch(codec.encode_batch([(0, b"", b"p" * 32767)]))[0][2] == b"p" * 32767
    with pytest.raises(MessageRejectedError, match="element 1"):
        codec.encode_batch([(0, b"", b""), (0, b"", b"p" * 32768)])


@pytest.mark.parametrize(
    ("element", "batch", "joined"),
    [
        (b"", b"", b""),
        (b"a\x01b", b"", b"a\x01b"),
        (b"", b"c\x01d\x02", b"c\x01d\x02"),
        (b"a\x01b", b"c\x01d", b"a\x01b\x02c\x01d"),
        (b"a\x01b\x02", b"c\x01d", b"a\x01b\x02c\x01d"),
    ],
)
def test_a_separator_stands_between_and_only_where_one_is_missing(
    element: bytes, batch: bytes, joined: bytes
) -> None:
    """4.8.0 … 4.9.2 leave it out, and a value swallows the next name (Q-43)."""
    assert codec.join_properties(element, batch) == joined


def test_joined_properties_beyond_32767_bytes_are_refused() -> None:
    """K-21: RocketMQ cuts the length to 16 bits and writes a record that nobody can read."""
    assert len(codec.join_properties(b"x" * 32760, b"y" * 6)) == 32767
    for element, batch in ((32760, 7), (32767, 1), (40000, 0), (0, 40000)):
        with pytest.raises(PropertiesTooLargeError):
            codec.join_properties(b"x" * element, b"y" * batch)
