"""A locale that is not UTF-8: texts of the command line and names come out as they came in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

LOCALES = [
    {"LC_ALL": "C"},
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
]


@pytest.mark.parametrize("locale", LOCALES, ids=["c", "c-without-utf8"])
def test_texts_of_arguments_are_utf8(tmp_path: Path, locale: dict[str, str]) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[bytes]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG"))}
        arguments = [sys.executable, "-m", "rocketstore", *words]
        return subprocess.run(
            [argument.encode() for argument in arguments],
            env=kept | locale, cwd=tmp_path, capture_output=True, timeout=120, check=False,
        )  # fmt: skip

    (tmp_path / "in").write_bytes(b"one\n")
    words = ("ingest", "gr\u00fcn", "in", "--topic", "t", "--segment-bytes", "1048576")
    done = run(*words, "--tags", "gr\u00f6\u00dfe")
    assert done.returncode == 0, done.stderr
    found = run("tail", "gr\u00fcn", "t", "--tag", "gr\u00f6\u00dfe", "--format", "%g %s")
    assert (found.returncode, found.stdout.decode()) == (0, "gr\u00f6\u00dfe one\n")
    shown = run("stat", "gr\u00fcn")
    # An ASCII output gets the character's escape, never those of its bytes.
    assert shown.returncode == 0 and shown.stdout.splitlines()[0] in (
        "gr\u00fcn".encode(),
        rb"gr\xfcn",
    )
    refused = run("ingest", "gr\u00fcn", "in", "--topic", "t", "--tags", "a||\u00fc")
    assert refused.returncode == 2 and b"udc" not in refused.stderr
