"""A store of ours that was killed between the making of its first file and its first put."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import rocketstore
from tests.interop.exchange import put_theirs
from tests.interop.messages import SMALL, Sent, config_of
from tests.interop.oracle import Oracle
from tests.interop.views import of_oracle, of_ours
from tests.support.small_store import parts, segments
from tests.support.waiting import wait_until

pytestmark = pytest.mark.java


def test_rocketmq_goes_on_in_an_empty_first_file(version: str, tmp_path: Path) -> None:
    """It believes no byte of it, puts from 0 on, and what it put is read by us."""
    crashed = tmp_path / "crashed"
    with rocketstore.open(tmp_path / "store", config=config_of(SMALL)) as ours:
        ours.writer("Orders")
        wait_until(lambda: parts(ours).preallocator.spare() is not None)
        shutil.copytree(tmp_path / "store", crashed)
    assert [file.stat().st_size for file in segments(crashed)] == [SMALL["mappedFileSizeCommitLog"]]
    with Oracle(version) as writer:
        theirs = writer.start(crashed, SMALL)
        assert not of_oracle(theirs.dump()).messages()
        [(_, answer)] = put_theirs(theirs, [Sent(body=b"theirs")])
        assert answer["physical_offset"] == 0
        theirs.settle()
        theirs.shutdown()
    with rocketstore.open(crashed, config=config_of(SMALL)) as ours:
        [message] = of_ours(ours).messages().values()
        assert message["body"] == b"theirs"
