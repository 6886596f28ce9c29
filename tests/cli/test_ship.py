"""ship: what it copies, and how it says what went wrong."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

import rocketstore
from tests.archive.changed_log import shipped_and_trimmed, taken_back
from tests.support.column_tools import fill_at_random, rows_of

pytest.importorskip("pyarrow", reason="needs pyarrow: make arrow")


def test_ship_copies_and_says_so(invoke, tmp_path: Path, rng: random.Random) -> None:
    fill_at_random(tmp_path / "s", rng, 300)
    uri = f"file://{tmp_path}/archive"
    result = invoke("ship", tmp_path / "s", uri)
    assert result.exit_code == 0, result.stderr
    count = len(list((tmp_path / "archive").glob("[0-9]*")))
    assert f"{count} segments, {64 * count:,}" in result.output
    assert f"{uri} has {count} segments up to {count << 16:,}" in result.output
    report = json.loads(invoke("ship", tmp_path / "s", uri, "--json").output)
    assert (report["segments"], report["archived_segments"]) == (0, count)
    left = rocketstore.scan(tmp_path / "s", begin_offset=count << 16)
    topics = [topic for batch in left for topic in batch["topic"]]
    assert topics
    assert dict(report["left_messages"]) == {one: topics.count(one) for one in set(topics)}
    assert (report["left_begin"], report["left_end"]) == (count << 16, left.end_offset)
    assert f"left behind, since their segment is not full: {len(topics)} message" in result.stderr
    here = rocketstore.scan(tmp_path / "s", end_offset=count << 16)
    assert rows_of(rocketstore.scan(uri)) == rows_of(here)


def test_a_tail_goes_too(invoke, tmp_path: Path, rng: random.Random) -> None:
    fill_at_random(tmp_path / "s", rng, 300)
    result = invoke("ship", "--tail", tmp_path / "s", tmp_path / "archive")
    assert result.exit_code == 0, result.stderr
    assert "of it of a segment that is not full" in " ".join(result.output.split())
    assert "left behind" not in result.stderr
    uri = f"file://{tmp_path}/archive"
    assert rows_of(rocketstore.scan(uri)) == rows_of(rocketstore.scan(tmp_path / "s"))
    again = json.loads(invoke("ship", "--tail", "--json", tmp_path / "s", uri).output)
    assert (again["bytes"], again["tail_bytes"] > 0) == (0, True)


def test_force_ships_where_nothing_is_in_common(invoke, tmp_path: Path) -> None:
    case = shipped_and_trimmed(tmp_path)
    taken_back(case)
    result = invoke("ship", case.root, case.uri)
    assert result.exit_code == 1
    assert "no segment in common" in " ".join(result.stderr.split())
    report = json.loads(invoke("ship", "--force", "--json", case.root, case.uri).output)
    assert report["segments"] > 0


def test_an_empty_uri_is_a_mistake(
    invoke, tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a variable that is not set, and not the current directory."""
    fill_at_random(tmp_path / "s", rng, 300)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    result = invoke("ship", tmp_path / "s", "")
    assert result.exit_code == 2
    assert "is empty" in result.stderr
    assert list((tmp_path / "here").iterdir()) == []


def test_a_path_is_as_good_as_its_uri(
    invoke, tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_at_random(tmp_path / "s", rng, 300)
    monkeypatch.chdir(tmp_path)
    report = json.loads(invoke("ship", "s", "of 50% & more", "--json").output)
    assert report["segments"] > 0
    place = tmp_path / "of 50% & more"
    assert len(list(place.glob("[0-9]*"))) == report["segments"]
    again = json.loads(invoke("ship", "s", place, "--json").output)
    assert (again["segments"], again["archived_segments"]) == (0, report["segments"])
    assert rows_of(rocketstore.scan(place.as_uri()))


def test_what_was_removed_too_early_is_said(invoke, tmp_path: Path, rng: random.Random) -> None:
    uri = f"file://{tmp_path}/archive"
    fill_at_random(tmp_path / "s", rng, 300)
    end = rocketstore.ship(tmp_path / "s", uri).end_offset
    fill_at_random(tmp_path / "s", rng, 300)
    with rocketstore.open(tmp_path / "s") as store:
        store.trim(before_offset=end + (64 << 10))
    result = invoke("ship", tmp_path / "s", uri)
    assert result.exit_code == 0
    assert "64.0 KiB below are not in it" in result.stderr


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        (
            "s3:/lake",
            "'s3:/lake': a URI: s3://bucket/prefix, gs://…, hdfs://…, or file:///directory",
        ),
        (
            "Unknown://me:secret@x/y?secret=1",
            "'Unknown://x/y': a place that pyarrow.fs knows (the scheme 'Unknown' is none of "
            "s3, gs, gcs, abfs, abfss, hdfs, viewfs, file)",
        ),
        ("s3://lake/orders?x=1", "'s3://lake/orders': a place that pyarrow.fs knows ("),
    ],
    ids=["slashes", "scheme", "parameter"],
)
def test_what_names_no_place_is_a_wrong_argument(
    invoke, tmp_path: Path, uri: str, said: str
) -> None:
    rocketstore.open(tmp_path / "s").close()
    result = invoke("ship", tmp_path / "s", uri)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith(f"Error: Invalid value for URI: {said}")


def test_failures_have_exit_codes(invoke, tmp_path: Path, rng: random.Random) -> None:
    fill_at_random(tmp_path / "s", rng, 300)
    segment = tmp_path / "s" / "commitlog" / f"{0:020}"
    content = bytearray(segment.read_bytes())
    content[40] ^= 1  # the store time of the first record
    segment.write_bytes(content)
    result = invoke("ship", tmp_path / "s", f"file://{tmp_path}/archive")
    assert result.exit_code == 3
    assert "record at physical offset 0" in result.stderr
