"""`examples/etcd_failover.py` refuses what a machine could not use once it is chosen."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.waiting import PATIENCE_S

EXAMPLE = ROOT / "examples" / "etcd_failover.py"
KEY = b"15 bytes of key"


@pytest.mark.parametrize(
    ("listen", "key", "said"),
    [
        ("0.0.0.0:10921", None, "listen = '0.0.0.0:10921'"),
        ("127.0.0.1", None, "listen = '127.0.0.1'"),
        ("127.0.0.1:0", "none", "No such file"),
        # The newline does not count, as in `rocketstore follow`.
        ("127.0.0.1:0", "key", "key = '15 bytes'"),
    ],
)
def test_wrong_arguments_are_named_at_the_begin(
    tmp_path: Path, listen: str, key: str | None, said: str
) -> None:
    (tmp_path / "key").write_bytes(KEY + b"\n")
    words = ["--name", "a", "--listen", listen, "--etcd", "http://127.0.0.1:1"]
    words += ["--key-file", str(tmp_path / key)] if key else []
    done = subprocess.run(
        [sys.executable, EXAMPLE, *words, tmp_path / "store"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
