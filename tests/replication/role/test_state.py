"""replication.json: the role and the history of a store."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketstore import ReplicationError
from rocketstore.log.layout.destroy import OWN_NAMES
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.replication.role.state import (
    ReplicationState,
    as_master,
    as_replica,
    fenced,
    load_state,
    promoted,
    save_state,
)
from tests.support.small_store import open_small


def test_state_comes_back(layout: StoreLayout) -> None:
    state = fenced(as_master(None, begin=0, end=90), 4)
    save_state(layout, state)
    assert load_state(layout) == state


def test_store_without_a_file_has_no_state(layout: StoreLayout) -> None:
    assert load_state(layout) is None


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b"null", b'{"version": 2}', b"[" * 100_000, b"\xff",
        b'{"version": 1, "role": "slave", "store_id": "", "epochs": [], "fenced_by": null}',
        b'{"version": 1, "role": "master", "store_id": "00", "epochs": [], "fenced_by": null}',
        b'{"version": 1, "role": "master", "store_id": "", "epochs": [7], "fenced_by": null}',
        b'{"version": 1, "role": "master", "store_id": "", "epochs": [], "fenced_by": true}',
        b'{"version": 1, "role": "master", "store_id": "", "fenced_by": null, "epochs":'
        b' [{"term": 1, "run": -1, "start": 0, "id": "0011223344556677"}]}',
    ],
)  # fmt: skip
def test_damaged_file_is_an_error(layout: StoreLayout, content: bytes) -> None:
    """Without it a replica would take puts."""
    layout.replication.write_bytes(content)
    with pytest.raises(ReplicationError, match=r"replication\.json does not tell the role"):
        load_state(layout)


def test_store_id_is_of_the_first_master() -> None:
    first = as_master(None, begin=0, end=10)
    copy = as_replica(None, first.store_id, first.epochs)
    assert promoted(copy, begin=0, end=10).store_id == first.store_id
    assert as_master(None, begin=0, end=10).store_id != first.store_id


def test_promotion_ends_a_fence_and_is_above_it() -> None:
    master = fenced(fenced(as_master(None, begin=0, end=10), 5), 3)
    again = promoted(master, begin=0, end=10)
    assert (master.fenced_by, again.fenced_by, again.term) == (5, None, 6)


def test_copy_of_a_rocketmq_becomes_a_master_with_a_history(layout: StoreLayout) -> None:
    save_state(layout, ReplicationState(role="replica"))
    copy = load_state(layout)
    made = promoted(copy, begin=4096, end=9000)
    assert [(one.term, one.run, one.start) for one in made.epochs] == [(1, 0, 4096)]
    assert len(made.store_id) == 16


def test_destroy_takes_the_state_along(tmp_path: Path) -> None:
    store = open_small(tmp_path / "store")
    layout = StoreLayout(tmp_path / "store")
    save_state(layout, as_master(None, begin=0, end=0))
    layout.cut.write_text("{}")
    store.destroy()
    assert not layout.root.exists()
    assert {layout.replication.name, layout.cut.name} <= set(OWN_NAMES)
