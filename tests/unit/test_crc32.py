"""Every CRC kernel gives what zlib gives, for every length, place and beginning."""

from __future__ import annotations

import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketstore._native.format import codec
from rocketstore._native.format.codec import crc32c

pytestmark = pytest.mark.quick
KERNELS = codec.crc_kernels()


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_short_length_at_every_place_in_a_line(kernel: str, rng: random.Random) -> None:
    data = memoryview(rng.randbytes(664))
    for length in range(601):
        for place in (0, 1, 7, 8, 15, 16, 31, 33, 63):
            piece = data[place : place + length]
            value = rng.getrandbits(32)
            assert codec.crc32(piece, value, kernel) == zlib.crc32(piece, value), (length, place)


@pytest.mark.parametrize("kernel", KERNELS)
def test_random_lengths_and_places_up_to_70_kib(kernel: str, rng: random.Random) -> None:
    data = memoryview(rng.randbytes(70 * 1024 + 64))
    for _ in range(300):
        place = rng.randrange(64)
        length = int((70 * 1024) ** rng.random())
        piece = data[place : place + length]
        assert codec.crc32(piece, 0, kernel) == zlib.crc32(piece), (length, place)


@pytest.mark.parametrize("kernel", KERNELS)
@given(pieces=st.lists(st.binary(max_size=200), max_size=6))
def test_a_checksum_continues_over_pieces(kernel: str, pieces: list[bytes]) -> None:
    value = 0
    for piece in pieces:
        value = codec.crc32(piece, value, kernel)
    assert value == zlib.crc32(b"".join(pieces))


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_single_bit_changes_the_checksum_wherever_it_is(kernel: str, rng: random.Random) -> None:
    data = bytearray(rng.randbytes(333))
    before = codec.crc32(data, 0, kernel)
    for position in range(len(data)):
        data[position] ^= 1 << rng.randrange(8)
        after = codec.crc32(data, 0, kernel)
        assert after not in (before, 0), position
        assert after == zlib.crc32(data)
        before = after


def test_the_best_kernel_is_the_default_and_the_plain_one_is_always_there() -> None:
    assert KERNELS[0] == "slicing"
    assert codec.crc32(b"123456789") == codec.crc32(b"123456789", 0, KERNELS[-1]) == 0xCBF43926


def test_an_unknown_kernel_is_refused_and_the_known_ones_are_named() -> None:
    with pytest.raises(ValueError, match="slicing"):
        codec.crc32(b"", 0, "guess")


def test_any_contiguous_buffer_will_do_and_nothing_else() -> None:
    assert codec.crc32(bytearray(b"abc")) == codec.crc32(memoryview(b"abc")) == zlib.crc32(b"abc")
    with pytest.raises(BufferError):
        codec.crc32(memoryview(b"abcdef")[::2])
    with pytest.raises(TypeError):
        codec.crc32("abc")  # type: ignore[arg-type]


def test_a_large_buffer_is_summed_without_the_gil_to_the_same_number() -> None:
    data = bytes(range(256)) * 1024
    assert codec.crc32(data) == zlib.crc32(data)


@given(data=st.binary(max_size=300))
def test_rocketmq_drops_the_top_bit(data: bytes) -> None:
    """The stored body CRC is a CRC-31: compared with zlib's it is wrong every second time."""
    assert codec.crc31(data) == zlib.crc32(data) & 0x7FFFFFFF


def test_crc31_of_nothing_is_zero_and_top_bits_do_occur() -> None:
    assert codec.crc31(b"") == 0
    assert zlib.crc32(b"a") >> 31 == 1
    assert codec.crc31(b"a") == zlib.crc32(b"a") - 2**31


def test_castagnoli_check_value() -> None:
    """RFC 3720 B.4: 32 bytes of zeros, of ones, rising; and the usual nine digits."""
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E
    assert crc32c(b"6789", crc32c(b"12345")) == 0xE3069283
