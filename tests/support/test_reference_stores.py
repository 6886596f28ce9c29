"""A comparison that cannot see a fault proves nothing."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.paths import STORES
from tests.support.reference_stores import compare, find_stores, open_reference


def test_a_wrong_expectation_is_noticed(tmp_path: Path) -> None:
    text = (STORES / "clean-533.expect.json").read_text()
    expected = json.loads(text)
    expected["must"]["slots"][0][3] += 1
    expected["acked"][1]["body_sha1"] = "0" * 40
    expected["acked"][2]["properties"]["x"] = "y"
    expected["must"]["index"][0][1] += "no such key"
    expected["must"]["unqueued"] = [1]
    (tmp_path / "clean-533.expect.json").write_text(json.dumps(expected))
    (tmp_path / "clean-533.tar.xz").symlink_to(STORES / "clean-533.tar.xz")
    changed = find_stores(tmp_path)[0]
    with open_reference(changed, changed.unpack(tmp_path), "rw") as store:
        found = compare(changed, store, "rw")
    assert len(found.mismatches) == 5, found.mismatches
