"""Commands in the documents and in help texts are ones that the command line takes."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from rocketstore.cli.app import cli
from tests.structure.source_tree import ROOT

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
