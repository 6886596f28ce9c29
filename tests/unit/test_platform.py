"""Where the package refuses to be imported, and what it says then."""

from __future__ import annotations

import pytest

from rocketstore._native import refusal

pytestmark = pytest.mark.quick

GOOD = ("linux", "6.1.0-18-amd64", "x86_64", 64, 4096)


@pytest.mark.parametrize(
    "system",
    [
        GOOD,
        ("linux", "4.18.0", "x86_64", 64, 4096),
        ("linux", "5.15.167.4-microsoft-standard-WSL2", "x86_64", 64, 4096),
        ("linux", "10.0", "aarch64", 64, 65536),
        ("linux", "6.8.0", "aarch64", 64, 16384),
    ],
)
def test_these_systems_will_do(system: tuple[str, str, str, int, int]) -> None:
    assert refusal(*system) is None


@pytest.mark.parametrize(
    ("system", "why"),
    [
        (("darwin", "23.1.0", "arm64", 64, 16384), "Linux only, not on darwin"),
        (("win32", "", "AMD64", 64, 0), "Linux only, not on win32"),
        (("linux", "4.17.19", *GOOD[2:]), "needs Linux 4.18 or newer, not '4.17.19'"),
        (("linux", "3.10.0-1160.el7", *GOOD[2:]), "needs Linux 4.18"),
        (("linux", "unknown", *GOOD[2:]), "needs Linux 4.18"),
        (("linux", "6.1", "x86_64", 32, 4096), "64-bit Python, this one has 32 bits"),
        (("linux", "6.1", "riscv64", 64, 4096), "x86_64 and aarch64, not on riscv64"),
        (("linux", "6.1", "x86_64", 64, 2048), "4 to 64 KiB, not of 2048 bytes"),
        (("linux", "6.1", "aarch64", 64, 131072), "4 to 64 KiB"),
    ],
)
def test_these_are_refused_with_a_reason(system: tuple[str, str, str, int, int], why: str) -> None:
    told = refusal(*system)
    assert told is not None
    assert why in told
