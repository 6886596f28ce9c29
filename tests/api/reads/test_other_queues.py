"""What a broker keeps beside plain consume queues: extension units, which hold the tags codes."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

import rocketstore
from rocketstore._native.format.codec import tags_code
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.tools import verify
from tests.support.live_writer import java_writer
from tests.support.made_store import MadeStore
from tests.support.small_store import dispatched, everything, open_small

#: The address of an extension unit at byte 28 n of its queue's extension files (format 6.5).
FIRST_ADDRESS = -(2**63)


def address_units(root: Path) -> None:
    """Makes of every unit's tags code an address, as a broker with enableConsumeQueueExt does."""
    for file in sorted((root / "consumequeue/orders/0").iterdir()):
        units = bytearray(file.read_bytes())
        for at in range(0, len(units), 20):
            if units[at + 8 : at + 12] != bytes(4):
                struct.pack_into(">q", units, at + 12, FIRST_ADDRESS + 28 * (at // 20))
        file.write_bytes(units)


def test_tags_are_found_behind_addresses(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        for n in range(25):
            store.writer("orders").put(b"%d" % n, tags=("a", "Aa", "BB")[n % 3])
        dispatched(store)
    address_units(tmp_path)
    with open_small(tmp_path) as store:
        assert store.recovery.mode == "clean", "nothing is dispatched again"
        for number, tags in enumerate(("a", "Aa", "BB")):
            found = [message.body for message in store.consumer("orders", tags=tags)]
            assert found == [b"%d" % n for n in range(number, 25, 3)]
        assert list(store.consumer("orders", tags="c")) == []
        store.writer("orders").put(b"25", tags="Aa")
        assert [m.body for m in store.consumer("orders", tags="Aa")][-1] == b"25"


def test_addresses_give_way_in_silence(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is dispatched again has its own tags code then; a queue full of addresses is no damage."""
    with open_small(tmp_path) as store:
        for n in range(25):
            store.writer("orders").put(b"%d" % n, tags="a")
        dispatched(store)
    before = {f: f.read_bytes() for f in (tmp_path / "consumequeue/orders/0").iterdir()}
    address_units(tmp_path)
    (tmp_path / "rocketstore/checkpoint").unlink()
    with open_small(tmp_path) as store:
        assert len(everything(store)) == 25
    assert {f: f.read_bytes() for f in (tmp_path / "consumequeue/orders/0").iterdir()} == before
    assert "rewritten" not in caplog.text


def extension_units(root: Path, codes: list[int]) -> None:
    """The units that these addresses lead to, as a broker writes them: one of 28 bytes for each message."""
    directory = root / "consumequeue_ext/orders/0"
    directory.mkdir(parents=True)
    size = 28 * 1000
    packed = b"".join(
        struct.pack(">hqqhq", 28, code, 1_700_000_000_000 + 10 * n, 8, 0)
        for n, code in enumerate(codes)
    )
    (directory / f"{0:020d}").write_bytes(packed.ljust(size, b"\0"))


@pytest.fixture
def addressed(tmp_path: Path) -> MadeStore:
    """A broker's store whose units hold addresses, with the units that they lead to."""
    made = MadeStore(tmp_path)
    made.fill(30)
    for file in sorted((tmp_path / "consumequeue/orders/0").iterdir()):
        units = bytearray(file.read_bytes())
        for at in range(0, len(units), 20):
            number = (int(file.name) + at) // 20
            if number < 30:
                struct.pack_into(">q", units, at + 12, FIRST_ADDRESS + 28 * number)
        file.write_bytes(units)
    extension_units(tmp_path, [tags_code(record.tags) for record in made.records])
    return made


def paid(store: rocketstore.Store) -> list[bytes]:
    return [message.body for message in store.consumer("orders", tags="paid")]


def test_addresses_lead_to_tags_codes(addressed: MadeStore) -> None:
    """Only records whose extension unit has the tags code are looked at: one whose unit has another is
    passed over, one without a unit is not."""
    root = addressed.root
    wanted = [record.body for record in addressed.records if record.tags == "paid"]
    layout = StoreLayout(root)
    layout.lock.touch()
    file = root / "consumequeue_ext/orders/0" / f"{0:020d}"
    with java_writer(layout):  # its units are read as they stand, and nothing is dispatched again
        with open_small(root, "r") as store:
            assert paid(store) == wanted
            assert list(store.consumer("orders", tags="other")) == []
            for record in addressed.records[::7]:
                when = store.get(record.physical_offset).store_timestamp_ms
                assert store.offset_at("orders", 0, when) == record.queue_offset
        with file.open("r+b") as content:
            content.write(bytes(28))
            content.seek(3 * 28)
            content.write(struct.pack(">hq", 28, 1))
        with open_small(root, "r") as store:
            assert paid(store) == [wanted[0], *wanted[2:]]
        file.unlink()
        with open_small(root, "r") as store:
            assert paid(store) == wanted


def test_a_unit_in_an_extension_file_is_verified(addressed: MadeStore) -> None:
    root = addressed.root
    assert verify(root).ok
    file = root / "consumequeue_ext/orders/0" / f"{0:020d}"
    with file.open("r+b") as content:
        content.write(bytes(28))  # it may be missing
        content.seek(3 * 28)
        content.write(struct.pack(">hq", 28, 1))
    (fault,) = verify(root).faults
    assert "extension unit has tags code 1 " in fault.reason
    assert fault.position == 3 * 20
    file.unlink()
    assert verify(root).ok
