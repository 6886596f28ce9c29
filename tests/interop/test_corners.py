"""Places where two readings of the format would differ: ends of files, limits, odd bytes."""

from __future__ import annotations

import shutil
import zlib
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore._native.format.codec import encode_record
from tests.interop.exchange import put_theirs, they_write, we_write
from tests.interop.messages import SMALL, Sent, config_of
from tests.interop.oracle import Oracle, since
from tests.interop.same_bytes import assert_same_bytes
from tests.interop.views import Tally, of_oracle, of_ours

pytestmark = pytest.mark.java

SEGMENT: int = SMALL["mappedFileSizeCommitLog"]
BLANK = 8
EMPTY_RECORD = len(encode_record(topic="Orders", body=b""))
#: Room for the longest property text.
ROOMY = {**SMALL, "mappedFileSizeCommitLog": 128 << 10, "maxMessageSize": 64 << 10}


def of_size(size: int) -> Sent:
    """A message whose record has so many bytes."""
    return Sent(body=b"x" * (size - EMPTY_RECORD))


def both(oracle: Oracle, tally: Tally, path: Path, steps: Any, **options: Any) -> None:
    """Both ways; the logs end at the same place."""
    theirs = they_write(oracle, tally, path / "theirs", steps, **options)
    ours = we_write(oracle, tally, path / "ours", steps, **options)
    assert theirs.end == ours.end
    assert theirs.bounds == ours.bounds


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_the_last_record_of_a_segment(
    oracle: Oracle, tally: Tally, tmp_path: Path, over: int
) -> None:
    """A record and a blank of 8 fill the segment exactly, with a byte to spare, or do not fit by one."""
    left = 2000
    steps = [of_size(3000) for _ in range(4)]
    steps.append(of_size(SEGMENT - 4 * 3000 - left))
    steps += [of_size(left - BLANK + over), of_size(500)]
    both(oracle, tally, tmp_path, steps)


def test_a_batch_across_the_end(oracle: Oracle, tally: Tally, tmp_path: Path) -> None:
    """It rolls as a whole."""
    parts = [Sent(body=b"part" * 100, properties=(("KEYS", f"k{n}"),)) for n in range(5)]
    steps = [*(of_size(5000) for _ in range(3)), parts, of_size(700)]
    they_write(oracle, tally, tmp_path / "theirs", steps)
    with rocketstore.open(tmp_path / "ours", config=config_of(SMALL)) as ours:
        writer = ours.writer("Orders")
        for _ in range(3):
            writer.put(b"x" * 5000)
        batch = writer.put_batch([b"part" * 100] * 5, tags="a", keys=("k1", "k2"))
        assert batch.physical_offset == SEGMENT
        view = of_ours(ours)
    with oracle.open(tmp_path / "ours", SMALL) as theirs:
        tally.same(of_oracle(theirs.dump()), view)
        assert len(theirs.query("Orders", "k2", 0, 1 << 60)) == 5


def test_odd_bodies_and_long_properties(oracle: Oracle, tally: Tally, tmp_path: Path) -> None:
    """Empty and one-byte bodies; a CRC of 0 and one with the top bit, which is masked; 32,767 bytes."""
    zero = bytes.fromhex("9d0ad96d")
    assert zlib.crc32(zero) == 0
    top = next(body for n in range(99) if zlib.crc32(body := b"%d" % n) >> 31)
    bodies = [b"", b"\0", zero, top, b"", bytes(1000), b"\xff" * 1000]
    steps = [Sent(body=body, properties=(("TAGS", "täg 🚀"),)) for body in bodies]
    steps.append(Sent(body=b"b", properties=(("x", "v" * 32_764),)))
    both(oracle, tally, tmp_path, steps, settings=ROOMY)


def test_compressed_bodies(oracle: Oracle, tally: Tally, tmp_path: Path) -> None:
    """As clients send them; both keep the bytes, and ours unpacks them on demand."""
    lz4, zstandard = pytest.importorskip("lz4.frame"), pytest.importorskip("zstandard")
    plain = b"rocketmq " * 300
    zipped = zlib.compress(plain)
    steps = [
        Sent(body=zipped, sys_flag=0x1),
        Sent(body=zipped, sys_flag=0x301),
        Sent(body=lz4.compress(plain), sys_flag=0x101),
        Sent(body=zstandard.compress(plain), sys_flag=0x201),
    ]
    both(oracle, tally, tmp_path, steps)
    for name in ("theirs", "ours"):
        with rocketstore.open(tmp_path / name, "r", config=config_of(SMALL)) as store:
            found = [rocketstore.decompress(m) for m in store.consumer("Orders")]
            assert found == [plain] * 4


def test_wide_topics(oracle: Oracle, version: str, tally: Tally, tmp_path: Path) -> None:
    """From 128 characters on a record is V2, which only 5.x knows."""
    steps = [Sent(topic="T" * n, body=b"%d" % n) for n in (126, 127, 128, 200, 255)]
    if version == "4.9.8":
        with oracle.open(tmp_path / "theirs", SMALL) as theirs:
            results = theirs.put([sent.for_oracle() for sent in steps])
            assert [r["status"] for r in results] == ["PUT_OK"] * 2 + ["MESSAGE_ILLEGAL"] * 3
        with rocketstore.open(tmp_path / "ours", config=config_of(SMALL)) as ours:
            for sent in steps[:2]:
                sent.put(ours)
            for sent in steps[2:]:
                with pytest.raises(rocketstore.InvalidTopicError):
                    sent.put(ours)
        return
    both(oracle, tally, tmp_path, steps, settings={**SMALL, "autoMessageVersionOnTopicLen": True})


def test_our_record_crc(oracle: Oracle, version: str, tally: Tally, tmp_path: Path) -> None:
    """An ordinary property to them; 5.x checks it where it is told to, and takes it when it is put again."""
    steps = [Sent(body=b"x" * n, properties=(("KEYS", f"k{n}"), ("TAGS", "t"))) for n in range(80)]
    settings = dict(SMALL)
    if since(version, "5"):
        settings["forceVerifyPropCRC"] = True
    path = tmp_path / "store"
    view = we_write(oracle, tally, path, steps, settings=settings, record_crc=True)
    (path / "abort").touch()
    with oracle.open(path, settings) as theirs:  # recovers, as after a crash
        tally.same(of_oracle(theirs.dump()), view)
        put_theirs(theirs, steps[:10])
        theirs.settle()
        view = of_oracle(theirs.dump())
    with rocketstore.open(path, config=config_of(settings)) as ours:
        tally.same(view, of_ours(ours))


def test_delivery_times_as_tag_codes(
    oracle: Oracle, version: str, tally: Tally, tmp_path: Path
) -> None:
    """The units of delayed messages hold when they are due; ours do so too when we build them."""
    path = tmp_path / "store"
    with oracle.open(path, SMALL) as theirs:
        topic = "Orders" if version == "4.9.8" else "SCHEDULE_TOPIC_XXXX"
        steps = [
            Sent(
                topic=topic, queue_id=n % 3, body=b"%d" % n, properties=(("DELAY", f"{n % 3 + 1}"),)
            )
            for n in range(90)
        ]
        for result in theirs.put([sent.for_oracle() for sent in steps]):
            assert result["status"] == "PUT_OK"
        theirs.settle()
    rebuilt = tmp_path / "rebuilt"
    shutil.copytree(path, rebuilt)
    shutil.rmtree(rebuilt / "consumequeue")
    rocketstore.open(rebuilt, config=config_of(SMALL)).close()
    folder = Path("consumequeue/SCHEDULE_TOPIC_XXXX")
    files = sorted(f.relative_to(path) for f in (path / folder).rglob("*") if f.is_file())
    assert len(files) >= 3
    for file in files:
        if any((path / file).read_bytes()):
            assert_same_bytes(rebuilt / file, path / file, str(file))
    tally.messages += 90


def test_refusals(oracle: Oracle, version: str, tally: Tally, tmp_path: Path) -> None:
    """What one refuses, the other refuses, and says why with the same word."""
    most = SMALL["maxMessageSize"]
    bad = [
        Sent(body=bytes(most + 1)),
        Sent(properties=(("x", "v" * 32_765),)),
        Sent(topic="T" * 300),
    ]
    good = Sent(body=bytes(most))
    settings = dict(SMALL)
    if since(version, "5"):
        settings["autoMessageVersionOnTopicLen"] = False  # as in 4.9.8, where there is no choice
    with oracle.open(tmp_path / "theirs", settings) as theirs:
        statuses = [r["status"] for r in theirs.put([s.for_oracle() for s in [good, *bad]])]
    assert statuses.pop(0) == "PUT_OK"
    if since(version, "5"):
        assert statuses.pop() == "PUT_OK"
        tally.know("Q-48")  # stored with the wrong length: nothing behind it reaches a queue
        statuses.append("MESSAGE_ILLEGAL")
    else:
        assert statuses[1] == "MESSAGE_ILLEGAL"
        tally.know("Q-47")
        statuses[1] = "PROPERTIES_SIZE_EXCEEDED"
    with rocketstore.open(tmp_path / "ours", config=config_of(settings)) as ours:
        for sent, status in zip(bad, statuses, strict=True):
            with pytest.raises(rocketstore.MessageRejectedError) as caught:
                sent.put(ours)
            assert caught.value.status == status
            tally.messages += 1
        assert ours.end_offset == 0
        good.put(ours)
