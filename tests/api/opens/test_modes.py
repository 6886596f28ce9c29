"""Opening: what is made, what must be there, who may write, what a reader leaves alone."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import rocketstore
from rocketstore import ConfigError, Store, StoreClosedError, StoreConfig, StoreLockedError
from rocketstore.engine import preflight
from tests.support.forking import fork
from tests.support.small_store import SMALL, dispatched, everything, open_small, parts


def image(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_rw_makes_the_directories(tmp_path: Path) -> None:
    """S001-01 S004-24: the log is <store>/commitlog, and missing parents are made."""
    root = tmp_path / "a" / "b"
    with open_small(root) as store:
        store.writer("orders").put(b"x")
        assert (root / "commitlog" / ("0" * 20)).is_file()
        assert (root / "abort").exists()
    assert not (root / "abort").exists()


def test_modes_that_need_a_store(tmp_path: Path) -> None:
    for mode in ("r", "r+"):
        with pytest.raises(FileNotFoundError, match="no store here"):
            open_small(tmp_path / "none", mode)
    assert not (tmp_path / "none").exists()
    with pytest.raises(ConfigError, match="mode"):
        open_small(tmp_path, "w")


def test_wrong_places(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotADirectoryError):
        open_small(tmp_path / "file")
    with pytest.raises(ConfigError, match="other files"):
        open_small(tmp_path)


def test_a_store_that_another_process_makes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two looks at the directory it becomes a store: that is nobody's other file."""
    listed: list[object] = []

    def list_directory(path: os.PathLike[str]) -> list[str]:
        if not listed:
            listed.append(path)
            (tmp_path / "commitlog").mkdir()
        return os_listdir(path)

    os_listdir = os.listdir
    monkeypatch.setattr(preflight.os, "listdir", list_directory)
    with open_small(tmp_path) as store:
        store.writer("orders").put(b"x")
    assert listed == [tmp_path]


def test_options_and_config(tmp_path: Path) -> None:
    """S003-05: one frozen configuration, an arrival listener, and options that win."""
    heard: list[tuple[object, ...]] = []
    arrived = threading.Event()

    def listener(*arrival: object) -> None:
        heard.append(arrival)
        arrived.set()

    config = StoreConfig(**SMALL, durability="memory")
    with rocketstore.open(tmp_path, config=config, durability="os", on_arrival=listener) as store:
        assert str(store.config.durability) == "os"
        result = store.writer("orders", queue_id=2).put(b"x", tags="paid")
        assert arrived.wait(20)
    code = rocketstore_tags_code("paid")
    assert heard == [("orders", 2, 1, code, result.store_timestamp_ms)]
    with pytest.raises(ConfigError, match="did you mean flush_interval_ms"):
        rocketstore.open(tmp_path, flush_intervall_ms=5)
    for elsewhere in ("segment_bytes", "segmentBytes"):  # of the command line, and of Spark
        with pytest.raises(ConfigError, match="did you mean commit_log_file_size_bytes"):
            rocketstore.open(tmp_path, **{elsewhere: 1 << 20})


def rocketstore_tags_code(tags: str) -> int:
    from rocketstore._native.format.codec import tags_code

    return tags_code(tags)


def test_two_writers_never(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        with pytest.raises(StoreLockedError, match="mode='r'"):
            open_small(tmp_path)
        store.writer("orders").put(b"still works")
    open_small(tmp_path).close()


def test_second_process_is_refused(tmp_path: Path) -> None:
    code = (
        "import sys, rocketstore\n"
        "try: rocketstore.open(sys.argv[1])\n"
        "except rocketstore.StoreLockedError as error: print('locked', error)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(rocketstore.__path__[0]).parent)}
    with open_small(tmp_path):
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)],
            capture_output=True, text=True, env=environment, check=True,
        )  # fmt: skip
    assert done.stdout.startswith("locked")


def test_a_reader_of_a_dead_store_changes_nothing(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        for n in range(30):
            store.writer("orders").put(b"%d" % n, keys=f"k{n}")
    (tmp_path / "abort").touch()  # as after a crash
    before = image(tmp_path)
    with open_small(tmp_path, "r") as store:
        assert len(everything(store)) == 30
        assert store.query("orders", "k7")[0].body == b"7"
    assert image(tmp_path) == before


def test_a_reader_follows_a_writer(tmp_path: Path) -> None:
    with open_small(tmp_path) as writer, open_small(tmp_path, "r") as reader:
        assert reader.recovery.mode == "following"
        for n in range(20):
            writer.writer("orders").put(b"%d" % n)
        with reader.consumer("orders", queue_id=0) as consumer:
            got: list[rocketstore.Message] = []
            while len(got) < 20:
                batch = consumer.poll(timeout_s=10)
                assert batch
                got += batch
        assert [m.body for m in got] == [b"%d" % n for n in range(20)]
        assert reader.end_offset == writer.end_offset


def test_a_reader_begins_where_the_group_of_its_writer_is(tmp_path: Path) -> None:
    """Also where the group committed since the reader was opened."""
    with open_small(tmp_path) as writer, open_small(tmp_path, "r") as reader:
        for n in range(20):
            writer.writer("orders", queue_id=0).put(b"%d" % n)
        with writer.consumer("orders", group="billing") as consumer:
            consumer.poll(7)
            consumer.commit()
        with reader.consumer("orders", group="billing") as consumer:
            assert consumer.positions == {0: 7}
            assert [m.body for m in consumer.poll(1)] == [b"7"]


def test_file_sizes_come_from_the_files(tmp_path: Path) -> None:
    """An option that was given and disagrees is an error; what was not given follows the files."""
    with open_small(tmp_path) as store:
        store.writer("orders").put(b"x")
        dispatched(store)
    with rocketstore.open(tmp_path) as store:
        assert store.config.commit_log_file_size_bytes == 4096
        assert store.config.consume_queue_file_size_bytes == 200
    for name, value in (
        ("commit_log_file_size_bytes", 8192),
        ("consume_queue_file_size_bytes", 400),
    ):
        with pytest.raises(ConfigError, match=name):
            rocketstore.open(tmp_path, "rw", config=StoreConfig().replace(**{name: value}))
    open_small(tmp_path).close()


def test_close_is_idempotent_and_stops_all_threads(tmp_path: Path) -> None:
    """S000-102: every worker has ended when close returns."""
    store = open_small(tmp_path, durability="memory", on_arrival=lambda *_: None)
    store.writer("orders").submit(b"x").add_done_callback(lambda _: None)
    store.close()
    store.close()
    assert not [t.name for t in threading.enumerate() if t.name.startswith("rocketstore")]
    with pytest.raises(StoreClosedError):
        store.end_offset  # noqa: B018


def test_a_forked_child_cannot_use_the_store(store: Store, writer: rocketstore.Writer) -> None:
    writer.put(b"x")
    log, end = store._open().commit_log.log, store.end_offset
    consumer = store.consumer("orders", offset="earliest")
    assert consumer._prefetch()
    pid = fork()
    if pid == 0:
        code = 1
        try:
            assert store.closed
            for refused in (
                lambda: writer.put(b"from the child"),
                lambda: log.wait_flushed(end + 1, timeout_ms=100),
                lambda: consumer._take(),
                lambda: next(consumer),
            ):
                with pytest.raises(StoreClosedError, match="forked child"):
                    refused()
            store.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert writer.put(b"y").queue_offset == 1
    assert [message.body for message in consumer._take()] == [b"x"]


def test_repr_and_pickle(tmp_path: Path) -> None:
    import pickle

    store = open_small(tmp_path)
    assert "mode='rw'" in repr(store)
    for thing in (store, store.writer("orders"), store.writer("orders").submit(b"x")):
        with pytest.raises(TypeError):
            pickle.dumps(thing)
    result = store.writer("orders").put(b"x")
    assert pickle.loads(pickle.dumps(result)) == result
    store.close()
    assert "closed" in repr(store)


def test_progress_of_recovery(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        for _ in range(30):
            store.writer("orders").put(b"x" * 500)
    (tmp_path / "abort").touch()
    (tmp_path / "rocketstore" / "checkpoint").unlink()
    told: list[tuple[str, int, int]] = []
    open_small(tmp_path, on_recovery=lambda *step: told.append(step)).close()
    assert told
    assert all(0 <= done <= total for _, done, total in told)


def test_arrival_listener_that_raises(tmp_path: Path) -> None:
    """K-85: user code runs in a thread of its own; its errors stop nothing."""
    calls = threading.Semaphore(0)

    def listener(*_: object) -> None:
        calls.release()
        raise RuntimeError("user code")

    with open_small(tmp_path, on_arrival=listener) as store:
        for n in range(3):
            assert store.writer("orders").put(b"x").queue_offset == n
        for _ in range(3):
            assert calls.acquire(timeout=20)
        assert parts(store).commit_log.failure is None
