"""What `import rocketstore` loads, and what a program meets that completes its names."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import rocketstore
from tests.structure.public_api import exported, imported, parse
from tests.support.paths import ROOT

pytestmark = pytest.mark.quick

#: Modules that `import rocketstore` may load beyond those of an interpreter without site packages.
LOADED = {"atexit", "rocketstore"}
#: Modules that open, put and get must not load: they start slowly, or belong to other uses.
HEAVY = ("numpy", "asyncio", "ctypes", "pyarrow", "rocketstore.columns")
HEAVY += ("rocketstore.aio", "rocketstore.archive", "rocketstore.shipping", "rocketstore.tools")

WORK = """
import rocketstore, sys
with rocketstore.open(sys.argv[1], commit_log_file_size_bytes=1 << 16) as store:
    result = store.writer("orders", tags="paid").put(b"x")
    assert store.get(result.physical_offset).body == b"x"
"""


def loaded_by(program: str, *arguments: str) -> set[str]:
    """Modules that a program loads beyond those which the interpreter itself has loaded."""
    watched = f"import sys\nfirst = set(sys.modules)\n{program}\nprint(*sys.modules.keys() - first)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", watched, *arguments],
        capture_output=True,
        check=True,
        text=True,
        env={"PYTHONPATH": ":".join([str(ROOT), *sys.path])},
    )
    return set(done.stdout.split())


def test_import_loads_these_modules_only() -> None:
    assert loaded_by("import rocketstore") - loaded_by("import importlib") == LOADED


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    return loaded_by(WORK, str(tmp_path_factory.mktemp("store") / "store"))


@pytest.mark.parametrize("heavy", HEAVY)
def test_open_put_and_get_do_not_load(heavy: str, used: set[str]) -> None:
    if heavy in ("numpy", "ctypes") and "numpy" in used:
        pytest.xfail("the native module of queue files imports NumPy")
    assert heavy not in used


def test_each_name_is_imported_from_where_type_checkers_find_it() -> None:
    typed = imported(parse("rocketstore"))
    assert sorted(typed) == sorted(exported())
    found = dict(rocketstore._MODULE_OF)
    assert found == {name: module for name, (module, _) in typed.items()}
    renamed = {name: there for name, (_, there) in typed.items() if there != name}
    assert renamed == {"open": "open_store"}


def test_completion_shows_what_users_use() -> None:
    shown = set(
        ast.literal_eval(
            subprocess.run(
                [sys.executable, "-c", "import rocketstore; print(dir(rocketstore))"],
                capture_output=True,
                check=True,
                text=True,
                cwd=ROOT,
            ).stdout
        )
    )
    modules = {"aio", "columns", "config", "errors", "message", "testing", "tools"}
    assert shown == {*exported(), *modules, "__version__"}


def test_a_public_module_comes_with_its_first_use() -> None:
    assert rocketstore.columns.COLUMNS
    with pytest.raises(AttributeError, match="module 'rocketstore' has no attribute 'store_facts'"):
        _ = rocketstore.store_facts


def test_every_public_module_is_there() -> None:
    folder = Path(rocketstore.__file__).parent
    for name in rocketstore._MODULES:
        assert (folder / name / "__init__.py").exists() or (folder / f"{name}.py").exists(), name
