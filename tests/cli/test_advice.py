"""Commands that advice, documents and help texts name are ones that the command line takes."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import rocketstore
from rocketstore import errors
from rocketstore.cli import exit_codes, hints
from rocketstore.cli.app import cli
from rocketstore.cli.hints import in_commands
from rocketstore.spark import errors as spark_errors
from tests.structure.source_tree import ROOT

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


BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: Of a line: up to a comment, a pipe or a redirection outside of quotes.
END = {"#", "|", ">", "<", "&&"}


def words_of(line: str) -> Iterator[list[str]]:
    """Arguments of each `rocketstore` in a line of a shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|<>&")
    lexer.whitespace_split = True
    words = list(lexer)
    while "rocketstore" in words:
        words = words[words.index("rocketstore") + 1 :]
        ends = [number for number, word in enumerate(words) if word in END]
        yield words[: min(ends, default=len(words))]


def commands(group: click.Group) -> Iterator[click.Command]:
    yield group
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        yield from commands(command) if isinstance(command, click.Group) else [command]


def lines() -> Iterator[tuple[str, str]]:
    """Each with where it stands."""
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for block in BLOCK.findall(path.read_text(encoding="utf-8")):
            yield from ((path.name, line) for line in block.splitlines())
    for command in commands(cli):
        for text in (command.help, command.epilog):
            yield from (("help", line.strip()) for line in (text or "").splitlines())


def examples() -> list[tuple[str, list[str]]]:
    starts = re.compile(r"^(rocketstore |[a-z].* \| rocketstore )")
    return [
        (place, words) for place, line in lines() if starts.match(line) for words in words_of(line)
    ]


def test_there_are_examples() -> None:
    found = examples()
    assert {"cli.md", "performance.md", "help"} <= {place for place, _ in found}
    assert {words[0] for _, words in found} >= {*cli.list_commands(click.Context(cli))}


@pytest.mark.parametrize(("place", "words"), examples())
def test_an_example_is_understood(place: str, words: list[str], tmp_path: Path) -> None:
    """As far as the last argument: nothing is run."""
    command: click.Command = cli
    words = [str(tmp_path) if word == "/data" else word for word in words]
    while isinstance(command, click.Group) and words[0] != "--help":
        found = command.get_command(click.Context(command), words[0])
        assert found is not None, words
        command, words = found, words[1:]
    if words != ["--help"]:
        command.make_context("example", words).close()


def test_the_shell_completes_commands_and_options(invoke) -> None:
    for words, number, wanted in (
        ("rocketstore re", 1, ["rebuild", "recover", "repair"]),
        ("rocketstore tail --q", 2, ["--queue-id"]),
        ("rocketstore spark st", 2, ["stats"]),
    ):
        env = {"COMP_WORDS": words, "COMP_CWORD": str(number)}
        env["_ROCKETSTORE_COMPLETE"] = "bash_complete"
        result = invoke(env=env, prog_name="rocketstore")
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout.split() == [f"plain,{word}" for word in wanted]


def test_extras_of_the_readme_are_those_that_there_are() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = readme.split("## Installing")[1].split("\n## ")[0]
    named = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert sorted(named) == sorted(project["optional-dependencies"])
