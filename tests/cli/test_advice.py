"""What the library advises, in words for who has commands only."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import rocketstore
from rocketstore import errors
from rocketstore.cli import exit_codes, hints
from rocketstore.cli.hints import in_commands
from rocketstore.spark import errors as spark_errors

SOURCES = Path(rocketstore.__file__).parent


def test_all_advice_is_worded_for_commands() -> None:
    assert spark_errors.HINTS.keys() == hints.WORDS.keys() >= errors.HINTS.keys()


@pytest.mark.parametrize("spark", [False, True], ids=["library", "jobs"])
def test_all_advice_is_given(spark: bool) -> None:
    """An entry that no error uses would stand in the table for nothing."""
    folder = SOURCES / "spark" if spark else SOURCES
    texts = [path.read_text() for path in folder.rglob("*.py") if "cli" not in path.parts]
    for code in spark_errors.HINTS.keys() - errors.HINTS.keys() if spark else errors.HINTS:
        quoted = (f"HINTS['{code}']", f'HINTS["{code}"]')
        assert any(use in text for text in texts for use in quoted), code


@pytest.mark.parametrize("said", spark_errors.HINTS.values())
def test_nothing_is_left_of_modes_and_arguments(said: str) -> None:
    text = in_commands(f"nothing; {said} at all", spark=True)
    assert "mode=" not in text
    assert "force=" not in text
    assert "commit_log_dir" not in text
    assert not any(option in text for option in ("failOnDataLoss", "createStore", "lockTimeout"))


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("was removed (failOnDataLoss=false: go on after it)", "was removed; try again"),
        (
            "no zlib stream; decompress=false leaves it as it is",
            "no zlib stream; export and replay leave it so with --as-stored",
        ),
        ("codec; or decompress=false", "codec; or --as-stored of export and replay"),
        ("another target, or mode='append'", "another target, or --append"),
        (
            "no UTF-8; badRows=drop leaves such rows out, divert keeps them",
            "no UTF-8; --bad-rows drop of import leaves such rows out, divert keeps them",
        ),
        (
            "1 shards; give the option shards to add some, or write elsewhere",
            "1 shards; import --shards adds some, or write elsewhere",
        ),
        ("each message twice; give to_topic", "each message twice; give --to-topic"),
        ("replay them with to_topic, or name", "replay them with --to-topic, or name"),
    ],
    ids=["trimmed", "compression", "codec", "target", "row", "shards", "itself", "delayed"],
)
def test_options_of_spark_are_flags(said: str, shown: str) -> None:
    assert in_commands(said, spark=True) == shown


@pytest.mark.parametrize("words", [("recover",), ("ingest", "--topic", "t", "/dev/null")])
def test_missing_segments(invoke, store_path: Path, words: tuple[str, ...]) -> None:
    (store_path / "commitlog" / "00000000000002097152").write_bytes(bytes(1 << 20))
    result = invoke(words[0], store_path, *words[1:])
    assert result.exit_code == exit_codes.DAMAGED
    assert "or go on without by recover --force" in result.stderr
    assert "lost for good, by repair --fill-missing" in result.stderr


def test_what_recovery_notes(invoke, store_path: Path) -> None:
    (store_path / "commitlog" / "00000000000002097152").write_bytes(bytes(1 << 20))
    result = invoke("recover", store_path, "--force")
    assert "--commit-log-dir has to name all of them" in result.stdout
    assert "commit_log_dir" not in result.stdout


def test_a_store_that_is_open_elsewhere(start, invoke, store_path: Path) -> None:
    child = start("ingest", store_path, "--topic", "t", "--durability", "os")
    assert child.stdin is not None
    child.stdin.write("line\n")
    child.stdin.flush()
    with rocketstore.open(store_path, "r") as store, store.consumer("t") as consumer:
        while not consumer.poll(1, timeout_s=60):
            assert child.poll() is None
    result = invoke("recover", store_path)
    assert result.exit_code == exit_codes.LOCKED
    assert result.stderr.endswith("; tail, get, query and stat read it meanwhile\n")


def test_what_a_note_says_of_commands(start, invoke, store_path: Path) -> None:
    """Beside a writer: a reader alone makes the units itself."""
    child = start("ingest", store_path, "--topic", "t", "--durability", "os")
    child.stdin.write("line\n")
    child.stdin.flush()
    with rocketstore.open(store_path, "r") as store, store.consumer("t") as consumer:
        while not consumer.poll(1, timeout_s=60):
            assert child.poll() is None
    (store_path / "consumequeue" / "orders" / "0" / f"{0:020d}").unlink()
    result = invoke("tail", store_path, "orders")
    assert result.exit_code == exit_codes.DAMAGED
    assert result.stderr.endswith("; 'rocketstore rebuild' makes them anew\n")


def test_another_size_of_segments(invoke, store_path: Path) -> None:
    result = invoke("ingest", store_path, "/dev/null", "--topic", "t", "--segment-bytes", 1 << 17)
    assert result.exit_code == exit_codes.FAILED
    assert result.stderr == (
        "rocketstore: --segment-bytes = 131072: the files of this store have 1048576\n"
    )


def test_a_store_that_is_removed(invoke, store_path: Path) -> None:
    (store_path / "rocketstore" / "removal").touch()
    result = invoke("stat", store_path)
    assert result.exit_code == exit_codes.FAILED
    assert result.stderr.endswith("; ingest would finish it and make a new store\n")


@pytest.mark.parametrize("words", [("verify",), ("tail", "orders"), ("repair", "--dry-run")])
def test_a_directory_of_the_log_that_is_not_there(
    invoke, store_path: Path, words: tuple[str, ...]
) -> None:
    option = ("--commit-log-dir", "commitlog,more")
    result = invoke(words[0], store_path, *words[1:], *option)
    assert result.exit_code == exit_codes.USAGE
    assert "Invalid value for --commit-log-dir: 'more' is no directory, seen from" in result.stderr
    shutil.copytree(store_path / "index", store_path / "more")
    assert invoke(words[0], store_path, *words[1:], *option).exit_code != exit_codes.USAGE


def test_an_empty_name_is_shown(invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke("stat", "")
    assert result.stderr == "rocketstore: '' is not the directory of a store\n"
    assert os.listdir(tmp_path) == []
