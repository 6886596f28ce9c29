"""The checksum kernels compared with zlib's, at the sizes of small and large bodies."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import pytest

from rocketstore._native.format import codec

KERNELS: dict[str, Callable[[bytes], int]] = {
    "zlib": zlib.crc32,
    "best": codec.crc32,
    **{
        name: lambda data, kernel=name: codec.crc32(data, 0, kernel)  # type: ignore[misc]
        for name in codec.crc_kernels()
    },
}


@pytest.mark.parametrize("size", [20, 100, 1024, 64 * 1024, 4 * 1024 * 1024])
@pytest.mark.parametrize("kernel", KERNELS)
def test_crc32(benchmark: Any, kernel: str, size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    data = data[:size]
    benchmark.extra_info["size"] = size
    assert benchmark(KERNELS[kernel], data) == zlib.crc32(data)
