"""`examples/demo.py`: all of its parts, small; a loss and a wrong body are counted."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from tests.support.paths import ROOT

EXAMPLE = ROOT / "examples" / "demo.py"


def example() -> Any:
    spec = importlib.util.spec_from_file_location("demo", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


demo = example()


@pytest.fixture
def topics(tmp_path: Path) -> Any:
    root = tmp_path / "sources"
    (root / "pack age").mkdir(parents=True)
    (root / "one.py").write_bytes(b"a\n\n\xffb\n" * 50)
    (root / "pack age" / "two.py").write_bytes(b"no newline at the end")
    (root / "pack age" / "three.py").write_bytes(b"x = 1\r\ny = 2\n" * 20)
    (root / "pack age" / "empty.py").touch()
    (root / "not python.txt").touch()
    return demo.library(root)


def added(parts: Any) -> Any:
    return demo.Found(*map(sum, zip(demo.Found(0), *parts, strict=True)))


def test_topics_and_keys_are_legal(topics: Any) -> None:
    found = {topic: [key for _, key in files] for topic, files in topics.items()}
    three = ["pack_age/empty.py", "pack_age/three.py", "pack_age/two.py"]
    assert found == {"one": ["one.py"], "pack_age": three}


@pytest.mark.proof
def test_all_parts_with_three_kills(
    topics: Any, random_seed: int, capsys: pytest.CaptureFixture[str], root: Path
) -> None:
    assert demo.run(root, topics, 3, random_seed) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"seed of the kills: {random_seed}")
    found = {line[:24].strip(): line for line in lines[1:6]}
    assert [*found] == [
        *("put source lines", "kill -9", "read by group", "read by key", "read by time")
    ]
    for part in ("put source lines", "read by group", "read by key"):
        assert " 191 messages" in found[part]
    assert f"3 writers killed, 0 lost, 0 wrong; the store is in {root}" in lines[-1]
    assert demo.run(root, {}, 0, random_seed) == 0, "a demo replaces its own store"


def test_writers_killed_while_they_open_lose_nothing(
    random_seed: int, monkeypatch: pytest.MonkeyPatch, root: Path
) -> None:
    with rocketstore.open(root, durability="os", commit_log_file_size_bytes=1 << 20) as store:
        store.writer("other").put(b"makes the first file")
    monkeypatch.setattr(demo, "OPENING_EVERY", 1)
    found = added(demo.kill_writers(root, 3, random.Random(random_seed)))
    assert (found.lost, found.wrong) == (0, 0)


def test_a_writer_that_ends_by_itself_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="ended by itself"):
        demo.kill_writer(tmp_path / "no store", "os", 0, False, 0.1)


def test_a_lost_message_is_counted(topics: Any, tmp_path: Path) -> None:
    """A demo that cannot see a loss shows nothing: one body is changed, one message is missing."""
    with rocketstore.open(tmp_path / "store", durability="os") as store:
        times: dict[str, list[int]] = {}
        assert demo.put_lines(store, topics, times) == (191, 0, 0)
        topics["one"][0][0].write_bytes(b"a\n\n\xffb\n" * 50 + b"one more\n")
        topics["pack_age"][-1][0].write_bytes(b"No newline at the end")
        for parts in (demo.by_group(store, topics), demo.by_key(store, topics)):
            assert added(parts) == (191, 1, 1)
        assert added(demo.by_time(store, topics, times))[1:] == (1, 1)


def test_a_wrong_time_is_counted(topics: Any, tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "store", durability="os") as store:
        times: dict[str, list[int]] = {}
        demo.put_lines(store, topics, times)
        times["one"][:] = [moment + 3_600_000 for moment in times["one"]]
        assert added(demo.by_time(store, topics, times)).lost > 0


def test_a_directory_that_is_not_the_demos_stays(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "precious").write_text("x")
    assert demo.main(["--store", str(tmp_path / "store"), "--files", "1"]) == 1
    assert (tmp_path / "store" / "precious").read_text() == "x"
