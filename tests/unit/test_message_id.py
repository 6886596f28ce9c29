"""Hosts and offset message ids."""

from __future__ import annotations

import ipaddress
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketstore._native.format import codec

pytestmark = pytest.mark.quick

IP = st.ip_addresses().filter(lambda ip: ip.version == 4 or ip.ipv4_mapped is None)
PORT = st.integers(0, 65535)
I64 = st.integers(-(2**63), 2**63 - 1)


def host_text(ip: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> str:
    return f"{ip}:{port}" if ip.version == 4 else f"[{ip}]:{port}"


@given(ip=IP, port=st.integers(-(2**31), 2**31 - 1))
def test_unpack_undoes_pack_of_a_host(
    ip: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int
) -> None:
    packed = codec.pack_host(host_text(ip, port))
    assert packed == ip.packed + port.to_bytes(4, "big", signed=True)
    assert codec.unpack_host(packed) == host_text(ip, port)


@given(data=st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20))
def test_any_bytes_of_a_host_have_a_text(data: bytes) -> None:
    """Damaged records hold any port (format.md 2.3)."""
    text = codec.unpack_host(data)
    again = codec.pack_host(text)
    mapped = len(data) == 20 and data[:12] == bytes(10) + b"\xff\xff"
    assert again == (data[12:] if mapped else data)


def test_an_ipv4_mapped_address_becomes_ipv4() -> None:
    mapped = bytes(10) + b"\xff\xff\x0a\x01\x02\x03" + (80).to_bytes(4, "big")
    assert codec.pack_host("[::ffff:10.1.2.3]:80") == b"\x0a\x01\x02\x03\x00\x00\x00\x50"
    assert codec.unpack_host(mapped) == "10.1.2.3:80"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1.2.3.4",
        "::1:80",
        "[1.2.3.4]:80",
        "[::1]",
        "1.2.3:80",
        "1.2.3.4:x",
        "1.2.3.4:2147483648",
    ],
)
def test_a_bad_host_is_refused_and_shown(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        codec.pack_host(text)


@pytest.mark.parametrize("size", [0, 4, 7, 9, 16, 19, 21])
def test_a_host_has_8_or_20_bytes(size: int) -> None:
    with pytest.raises(ValueError, match="8 or 20"):
        codec.unpack_host(bytes(size))


@given(ip=IP, port=PORT, offset=I64)
def test_a_message_id_is_host_and_offset(
    ip: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int, offset: int
) -> None:
    raw = ip.packed + port.to_bytes(4, "big") + offset.to_bytes(8, "big", signed=True)
    assert codec.message_id(host_text(ip, port), offset) == raw.hex().upper()
