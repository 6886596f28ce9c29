"""What the command line says and returns when something is wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import rocketstore
from rocketstore.cli import app, exit_codes, main, standard_streams
from tests.structure.source_tree import ROOT


def test_help_has_examples_and_exit_codes(invoke) -> None:
    result = invoke("--help")
    assert result.exit_code == 0
    for text in ("Examples:", "rocketstore ingest", "Exit codes:", "locked by another process"):
        assert text in result.output


@pytest.mark.parametrize("name", ["bench", "get", "ingest", "query", "stat", "tail", "verify"])
def test_every_command_explains_itself(invoke, name: str) -> None:
    result = invoke(name, "--help")
    assert result.exit_code == 0
    assert f"Usage: cli {name}" in result.output


@pytest.mark.parametrize(
    "words",
    [
        ("nonsense",),
        ("get", "store", "minus"),
        ("query", "store", "t", "k", "--begin", "yesterday"),
        ("query", "store", "t", "k", "--begin", "2026-01-01T00:00:00"),
        ("query", "{store}", "orders", "o-7", "--begin", str(2**63)),
        ("query", "{store}", "orders", "o-7", "--end", "9" * 5000),
        ("query", "{store}", "orders", "o-7", "--begin", "2026-01-02T00:00:00Z", "--end", "7"),
        ("ingest", "store", "--topic", "t", "--durability", "hope"),
        ("ingest", "store", "--topic", "t", "--queues", "2", "--queue-id", "0"),
        ("ingest", "store"),
        ("verify", "store", "--index-slots", str(10**20)),
        ("tail", "{store}", "orders", "--tag", ""),
        ("tail", "{store}", "orders", "--tag", "even||"),
        ("tail", "{store}", "orders", "--tag", "\udcff"),
        ("tail", "{store}", "orders/0"),
        ("tail", "{store}", "orders/0", "-f"),
        ("tail", "{store}", "orders", "-f", "--queue-id", str(2**31)),
        ("query", "{store}", "orders/0", "o-7"),
        ("ship", "{store}", "s3://"),
        ("ship", "{store}", "gs:"),
        ("verify", "store", "--index-entries", str(10**20)),
        ("recover", "store", "--index-slots", str(2**28 + 1)),
        *(("bench", "--seconds", number) for number in ("nan", "inf", "-inf", "0", "-1")),
    ],
)
def test_wrong_arguments_are_code_2(invoke, store_path: Path, words: tuple[str, ...]) -> None:
    result = invoke(*(word.format(store=store_path) for word in words))
    assert result.exit_code == exit_codes.USAGE


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("sta", " Did you mean 'stat'?"),
        ("recuild", " Did you mean 'rebuild'?"),
        ("repuild", " Did you mean 'rebuild' or 'repair'?"),
        ("nonsense", ""),
    ],
)
def test_a_command_that_is_mistyped(invoke, typed: str, meant: str) -> None:
    result = invoke(typed, "store")
    assert result.exit_code == exit_codes.USAGE
    assert result.stderr.splitlines()[-1] == f"Error: No such command {typed!r}.{meant}"


@pytest.mark.parametrize(
    "words", [("tail", "t"), ("stat",), ("verify",), ("get", 0), ("query", "t", "k")]
)
def test_no_store_is_one_line_and_code_1(invoke, tmp_path: Path, words: tuple[object, ...]) -> None:
    result = invoke(words[0], tmp_path / "nothing", *words[1:])
    assert result.exit_code == exit_codes.FAILED
    assert result.stderr.startswith("rocketstore: ")
    assert "nothing" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("stat",),
        ("recover",),
        ("repair",),
        ("repair", "--dry-run"),
        ("rebuild",),
        ("tail", "t"),
        ("get", 0),
        ("query", "t", "k"),
        ("ship", "archive"),
        ("verify",),
    ],
)
def test_what_is_no_store_is_named_as_it_is(
    invoke, tmp_path: Path, words: tuple[object, ...]
) -> None:
    """No advice on modes of the library, which no command has."""
    foreign, empty = tmp_path / "foreign", tmp_path / "empty"
    foreign.mkdir()
    (foreign / "letters").touch()
    empty.mkdir()
    for path, text in (
        (tmp_path / "missing", f"{tmp_path}/missing is not the directory of a store"),
        (foreign, f"{foreign}: holds other files and no store: 'letters'"),
        (empty, f"{empty}: an empty directory, no store"),
    ):
        result = invoke(words[0], path, *words[1:])
        assert (result.exit_code, result.stderr) == (1, f"rocketstore: {text}\n")
        assert not path.exists() or len(list(path.iterdir())) <= 1


def test_a_missing_extra_is_one_line_that_names_it(
    invoke, store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.fs", None)
    result = invoke("ship", store_path, "s3://lake/orders")
    assert result.exit_code == 1
    assert result.stderr.startswith("rocketstore: ")
    assert result.stderr.endswith("pip install 'rocketstore[arrow]'\n")
    assert len(result.stderr.splitlines()) == 1


def test_a_store_open_for_writing_elsewhere_is_code_4(
    invoke, store_path: Path, tmp_path: Path
) -> None:
    lines = tmp_path / "lines"
    lines.write_text("a\n")
    with rocketstore.open(store_path):
        child = subprocess.run(
            [sys.executable, "-m", "rocketstore.cli", "ingest", store_path, lines, "--topic", "t"],
            capture_output=True,
            text=True,
            check=False,
        )
    assert child.returncode == exit_codes.LOCKED
    assert "is locked by" in child.stderr
    assert len(child.stderr.splitlines()) == 1


def test_a_reader_that_goes_away_is_no_traceback(start, store_path: Path) -> None:
    with rocketstore.open(store_path, "r+") as store:
        child = start("tail", store_path, "orders", "-f", "-n", 9, "--format", "%s")
        assert child.stdout is not None
        assert child.stdout.readline() == "first 14\n"
        child.stdout.close()
        writer = store.writer("orders")
        while child.poll() is None:
            writer.put(b"more")
    assert child.returncode == exit_codes.NO_READER
    assert child.stderr is not None
    assert child.stderr.read() == ""
    child.stdout = None


def test_a_signal_while_modules_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(standard_streams, "open_closed", interrupted)
    assert main() == exit_codes.INTERRUPTED


def test_ctrl_c_while_the_library_is_loaded(tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    entry = metadata.EntryPoint("rocketstore", project["scripts"]["rocketstore"], "console_scripts")
    (tmp_path / "click.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    child = subprocess.run(
        [sys.executable, "-c", f"import sys; from {entry.module} import main; sys.exit(main())"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
        # A test run in the background ignores Ctrl-C, and its children would, too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert entry.attr == "main"
    assert (child.returncode, child.stdout, child.stderr) == (exit_codes.INTERRUPTED, "", "")


@pytest.mark.parametrize("module", ["rocketstore", "rocketstore.cli"])
def test_python_runs_it_by_its_name(module: str) -> None:
    command = [sys.executable, "-m", module, "--version"]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    said = f"rocketstore, version {rocketstore.__version__}\n"
    assert (child.returncode, child.stdout, child.stderr) == (0, said, "")


def test_without_click_it_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "import importlib.util as u, sys; find = u.find_spec;"
        "u.find_spec = lambda name, *a: None if name == 'click' else find(name, *a);"
        "import rocketstore.cli; sys.exit(rocketstore.cli.main())"
    )
    child = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert child.returncode == 1
    assert child.stderr == (
        "rocketstore: the command line needs click: pip install 'rocketstore[cli]'\n"
    )


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (rocketstore.StoreLockedError("p", "pid 1"), 4),
        (rocketstore.CorruptRecordError(0, "body crc"), 3),
        (rocketstore.MissingSegmentsError("gone"), 3),
        (rocketstore.MessageNotFoundError("no"), 1),
        (OSError(28, "No space left on device", "f"), 1),
    ],
)
def test_each_error_has_its_code(error: BaseException, code: int) -> None:
    assert exit_codes.exit_code(error) == code


def test_an_error_is_one_line_with_its_cause() -> None:
    error = rocketstore.StoreFailedError("cannot\nsync")
    error.__cause__ = OSError(5, "Input/output error")
    assert exit_codes.in_one_line(error) == ("cannot sync (because: [Errno 5] Input/output error)")
    assert exit_codes.in_one_line(OSError(13, "Permission denied", "x")) == "x: Permission denied"


def test_a_cause_that_says_the_same_is_not_said_again() -> None:
    full = rocketstore.DiskFullError(28, "no room for a file", "x")
    full.__cause__ = OSError(28, "No space left on device", "y")
    assert exit_codes.in_one_line(full) == "x: no room for a file"
    failed = rocketstore.ReadFailedError("place: [Errno 20]  cannot read")
    failed.__cause__ = OSError(20, "cannot read")
    assert exit_codes.in_one_line(failed) == "place: [Errno 20] cannot read"
    missing = rocketstore.MessageNotFoundError("no record begins at physical offset 5 (magic)")
    missing.__cause__ = rocketstore.CorruptRecordError(5, "magic")
    assert exit_codes.in_one_line(missing) == "no record begins at physical offset 5 (magic)"


def test_the_list_of_commands_has_all_of_them_and_imports_none() -> None:
    """What `--help` lists is what there is; a command is imported when it is chosen."""
    folder = Path(app.__file__).parent / "commands"
    assert sorted(app.COMMANDS) == sorted(
        path.stem for path in folder.glob("*.py") if path.stem != "__init__"
    )
    code = (
        "import sys; from rocketstore.cli.app import run; sys.argv = ['rocketstore', '--help'];"
        "assert run() == 0; loaded = {name.split('.')[0] for name in sys.modules};"
        "assert not loaded & {'asyncio', 'numpy', 'pyarrow', 'pyspark', 'rich'}, loaded;"
        "assert not [name for name in sys.modules if name.startswith('rocketstore.cli.commands.')]"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Exit codes:" in done.stdout
