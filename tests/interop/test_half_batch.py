"""A writer of ours that died amid its first file or a batch, with RocketMQ as the next writer."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import rocketstore
from tests.interop.crashes import same, subset
from tests.interop.exchange import put_theirs
from tests.interop.messages import SMALL, Sent, config_of
from tests.interop.oracle import Oracle
from tests.interop.views import Tally, View, of_oracle, of_ours
from tests.support.small_store import parts, segments
from tests.support.waiting import wait_until

pytestmark = pytest.mark.java


BODY = b"p" * 400
PARTS = 5
BEFORE = [Sent(body=b"before%d" % n) for n in range(3)]
MAGIC = slice(4, 8)


def half_batch(path: Path) -> int:
    """A killed store whose last batch lacks its first magic, which is stored last; its begin."""
    crashed = path.with_name("crashed")
    with rocketstore.open(path, config=config_of(SMALL)) as ours:
        for sent in BEFORE:
            sent.put(ours)
        assert bodies(of_ours(ours)) == [sent.body for sent in BEFORE]
        shutil.copytree(path, crashed)
        result = ours.writer("Orders").put_batch([BODY] * PARTS)
        start = result.physical_offset
    log = (path / "commitlog" / f"{0:020d}").read_bytes()
    batch = bytearray(log[start : start + result.size])
    part = result.size // PARTS
    assert batch[MAGIC] == batch[part:][MAGIC] != bytes(4)
    batch[MAGIC] = bytes(4)
    with open(crashed / "commitlog" / f"{0:020d}", "r+b") as file:
        file.seek(start)
        file.write(batch)
    shutil.rmtree(path)
    crashed.rename(path)
    return start


def message_of(size: int) -> Sent:
    """As long on disk as a part of the batch with a body of `size`."""
    return Sent(body=b"a" * size, born_host="127.0.0.1:10911", store_host="127.0.0.1:10911")


def bodies(view: View) -> list[bytes]:
    return [message["body"] for _, message in sorted(view.messages().items())]


@pytest.mark.parametrize("ends", ["clean", "killed"])
@pytest.mark.parametrize("size", [len(BODY), 100, 3000], ids=["as long", "shorter", "longer"])
def test_rocketmq_goes_on(version: str, tally: Tally, tmp_path: Path, ends: str, size: int) -> None:
    """It sees nothing of the batch and puts over it. Nothing acknowledged is lost and no queue has a hole;
    later parts, sent but never acknowledged, may be there again: it does not zero what it cuts."""
    path = tmp_path / "store"
    start = half_batch(path)
    with Oracle(version) as writer:
        theirs = writer.start(path, SMALL)
        view = of_oracle(theirs.dump())
        assert bodies(view) == [sent.body for sent in BEFORE]
        [(_, answer)] = put_theirs(theirs, [message_of(size)])
        assert answer["physical_offset"] == start
        theirs.settle()
        if ends == "clean":
            theirs.shutdown()
        else:
            writer.halt()
    image = tmp_path / "image"
    shutil.copytree(path, image)
    with rocketstore.open(path, config=config_of(SMALL)) as ours:
        view = of_ours(ours)
    with Oracle(version) as reader:
        theirs = reader.start_again(image, SMALL)
        theirs_view = of_oracle(theirs.dump())
        theirs.shutdown()
    subset(theirs_view, view, tally)
    wanted = [sent.body for sent in BEFORE] + [message_of(size).body]
    found = bodies(view)
    assert found[: len(wanted)] == wanted
    assert bodies(theirs_view)[: len(wanted)] == wanted
    later = found[len(wanted) :]
    assert later in ([], [BODY] * (PARTS - 1))
    if later:
        tally.know("unacknowledged parts of a cut batch behind a message that RocketMQ put over it")
    assert view.bounds == {("Orders", 0): (0, len(found))}


def test_nothing_comes_back_after_our_recovery(version: str, tally: Tally, tmp_path: Path) -> None:
    """Our recovery zeroes what it cuts: no later writer meets a part."""
    path = tmp_path / "store"
    start = half_batch(path)
    with rocketstore.open(path, config=config_of(SMALL)) as ours:
        assert ours.recovery.cut is not None
        view = of_ours(ours)
    assert bodies(view) == [sent.body for sent in BEFORE]
    assert not any((path / "commitlog" / f"{0:020d}").read_bytes()[start:])
    with Oracle(version) as writer:
        theirs = writer.start(path, SMALL)
        same(of_oracle(theirs.dump()), view, tally)
        put_theirs(theirs, [message_of(len(BODY))])
        theirs.settle()
        writer.halt()
    with rocketstore.open(path, config=config_of(SMALL)) as ours:
        wanted = [*(sent.body for sent in BEFORE), message_of(len(BODY)).body]
        assert bodies(of_ours(ours)) == wanted


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
