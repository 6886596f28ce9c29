"""Property text: what RocketMQ's own reader finds in it, and the text that we write."""

from __future__ import annotations

import codecs
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketstore._native.format import codec
from rocketstore.errors import MessageRejectedError

pytestmark = pytest.mark.quick

SEPARATORS = {"\x01", "\x02"}
TEXT = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters=SEPARATORS), min_size=1, max_size=40
)


def decode_as_rocketmq(text: bytes) -> dict[str, str]:
    """The reader of RocketMQ 4.9.1 and later, word for word (format.md 2.6)."""
    found = {}
    for piece in text.split(b"\x02"):
        name, separator, value = piece.partition(b"\x01")
        if len(piece) >= 3 and separator and name and value:
            found[name.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
    return found


@given(properties=st.dictionaries(TEXT, TEXT, max_size=8))
def test_decode_undoes_encode(properties: dict[str, str]) -> None:
    text = codec.encode_properties(properties)
    assert codec.decode_properties(text) == properties
    assert decode_as_rocketmq(text) == properties
    assert not text or text.endswith(b"\x02")


@given(pieces=st.lists(st.sampled_from([b"\x01", b"\x02", b"a", b"bc", b"12345678", b"\xff"])))
def test_any_text_is_read_as_rocketmq_reads_it(pieces: list[bytes]) -> None:
    text = b"".join(pieces)
    assert codec.decode_properties(text) == decode_as_rocketmq(text)


def test_separators_are_found_at_every_distance() -> None:
    """Eight bytes are looked at in one step: no place within a step may be missed."""
    for name_size in range(1, 26):
        for value_size in range(1, 26):
            text = b"n" * name_size + b"\x01" + b"\x03" * value_size + b"\x02x\x01y"
            expected = {"n" * name_size: "\x03" * value_size, "x": "y"}
            assert codec.decode_properties(text) == expected


def test_a_missing_last_separator_loses_nothing() -> None:
    """4.9.1 … 5.1.4 leave it out (Q-02)."""
    assert codec.decode_properties(b"a\x01b\x02c\x01d") == {"a": "b", "c": "d"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("", "x"),
        ("x", ""),
        ("a\x01", "x"),
        ("a\x02b", "x"),
        ("a", "x\x01"),
        ("a", "1234567\x02"),
        ("a", "\ud800"),
    ],
)
def test_what_cannot_be_stored_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(MessageRejectedError) as caught:
        codec.encode_properties({"fine": "yes", name: value})
    assert f"property {name!r}" in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("pair", [("a", 1), (b"a", "b"), ("a", None)])
def test_other_types_are_refused(pair: tuple[object, object]) -> None:
    with pytest.raises(TypeError, match="must be str"):
        codec.encode_properties(dict([pair]))  # type: ignore[list-item]


def java_hash(text: str) -> int:
    hashed = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(units), 2):
        hashed = (31 * hashed + int.from_bytes(units[i : i + 2], "big")) & 0xFFFFFFFF
    return hashed - 2**32 if hashed >> 31 else hashed


def one_per_surrogate(error: UnicodeError) -> tuple[str, int]:
    """Java replaces the three bytes of an encoded surrogate together, Python one by one."""
    assert isinstance(error, UnicodeDecodeError)
    lead, *rest = error.object[error.start : error.start + 3]
    if lead == 0xED and rest and 0xA0 <= rest[0] <= 0xBF:
        whole = len(rest) == 2 and 0x80 <= rest[1] <= 0xBF
        return "\ufffd", error.start + (3 if whole else 2)
    return "\ufffd", error.end


codecs.register_error("tests.one_per_surrogate", one_per_surrogate)


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_hash_of_any_text(text: str) -> None:
    assert codec.java_hash(text) == java_hash(text)
    assert codec.tags_code(text) == java_hash(text)


@given(text=st.text(st.characters(max_codepoint=127), min_size=20, max_size=60))
def test_hash_of_long_ascii(text: str) -> None:
    """Eight characters a step, and what is left over."""
    assert codec.java_hash(text) == java_hash(text)


def test_hash_of_bytes_that_are_not_utf8(rng: random.Random) -> None:
    """Never fails, and agrees with what Java's decoder makes of them."""
    leads = [0x41, 0x80, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE2, 0xED, 0xEF, 0xF0, 0xF1, 0xF4]
    leads += [0xF5, 0xF7, 0xF8, 0xFF, 0x8F, 0x90, 0x9F, 0xA0]
    for _ in range(20_000):
        data = bytes(rng.choice(leads) for _ in range(rng.randrange(9)))
        expected = data.decode("utf-8", "tests.one_per_surrogate")
        assert codec.java_hash(data) == java_hash(expected), data.hex()


@pytest.mark.parametrize(
    ("data", "replaced"),
    [
        (b"\xed\xa0\x80", "�"),
        (b"\xed\xa0", "�"),
        (b"\xe4\xb8a", "�a"),
        (b"\xc0\xaf", "��"),
        (b"\xf0\x9f\x98", "�"),
        (b"\xf4\x90\x80\x80", "����"),
        (b"\xf8\x88\x80\x80\x80", "�����"),
    ],
)
def test_replacements_of_java(data: bytes, replaced: str) -> None:
    assert codec.java_hash(data) == java_hash(replaced)


def test_tags_code_is_sign_extended_and_zero_without_a_tag() -> None:
    assert codec.tags_code("polygenelubricants") == -(2**31)
    assert codec.tags_code("") == 0
