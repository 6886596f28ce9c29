"""The native column put trusts no offset that it is given."""

from __future__ import annotations

from pathlib import Path

import pytest

import rocketstore


@pytest.mark.parametrize(
    "offsets", [[0, 4096], [1 << 40, (1 << 40) + 8], [-8, 8], [8, 4], [0, -1], [0, 8, 4, 16], []]
)
def test_columns_end_where_their_bytes_end(offsets: list[int], tmp_path: Path) -> None:
    """Memory of the process never becomes a message, whoever calls."""
    import numpy as np

    data = np.zeros(16, dtype=np.uint8)
    with rocketstore.open(tmp_path / "store") as store:
        with pytest.raises(rocketstore.MessageRejectedError, match="offsets: "):
            store.writer("t")._put_column(data, np.array(offsets, dtype=np.int64))
        assert store.end_offset == 0
