"""What goes wrong on the driver while a job `rebuild` is at work has a code, whatever it is."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rocketstore
from rocketstore import CorruptRecordError, ReadFailedError, StoreFailedError
from rocketstore.cli.exit_codes import in_one_line
from rocketstore.spark import jobs
from rocketstore.spark.errors import SparkFaceError

#: A driver alone: nothing is given to tasks here.
DRIVER: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CorruptRecordError(7, "magic"), "RS_CORRUPT_RECORD"),
        (ReadFailedError("the log does not go on at 7"), "RS_READ_FAILED"),
        (StoreFailedError("index files could not be synced"), "RS_WRITE_FAILED"),
        (OSError(28, "No space left on device"), "RS_WRITE_FAILED"),
        (FileNotFoundError(2, "commitlog"), "RS_NO_STORE"),
    ],
    ids=lambda given: given if isinstance(given, str) else type(given).__name__,
)
def test_errors_of_a_rebuild_have_a_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, code: str
) -> None:
    """They came as rocketstore.tools has them."""

    def fail(*_: object, **__: object) -> None:
        raise error

    # The module has the name of its function.
    monkeypatch.setattr(sys.modules[jobs.rebuild.__module__], "rebuild_here", fail)
    with pytest.raises(SparkFaceError, match=rf"^\[{code}\].*{tmp_path}.*{error.args[-1]}"):
        jobs.rebuild(DRIVER, tmp_path)


def test_a_rebuild_does_not_advise_to_make_a_store(tmp_path: Path) -> None:
    with pytest.raises(SparkFaceError, match="RS_NO_STORE") as refused:
        jobs.rebuild(DRIVER, tmp_path / "nowhere")
    assert "mode=" not in in_one_line(refused.value)


def test_options_of_a_rebuild_are_named(tmp_path: Path) -> None:
    rocketstore.open(tmp_path).close()
    with pytest.raises(SparkFaceError, match=r"^\[RS_BAD_OPTION\] .*index_slots = 0"):
        jobs.rebuild(DRIVER, tmp_path, index_slots=0)
    for parts in (0, 257):
        with pytest.raises(ValueError, match=rf"parts = {parts}: 1 … 256"):
            jobs.rebuild(DRIVER, tmp_path, parts=parts)
