"""The commands of docs/clusters.md by spark-submit, where nothing but the command says which Python."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rocketstore
from tests.support.paths import ROOT

pytestmark = pytest.mark.spark

DOCUMENT = ROOT / "docs" / "clusters.md"
BLOCK = re.compile(r"^```(sh|python notest)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: What scripts of Spark need of the PATH; no Python, and no Java.
NEEDED = ("bash", "sh", "dirname", "cat", "rm")


def recipes() -> list[str]:
    """The commands that need no cluster of their own, with what they have in the environment."""
    blocks = [text for kind, text in BLOCK.findall(DOCUMENT.read_text("utf-8")) if kind == "sh"]
    found = []
    for block in blocks:
        lines = block.replace("\\\n", " ").splitlines()
        commands = [line for line in lines if "spark-submit" in line or line.startswith("export ")]
        if commands and "--deploy-mode cluster" not in block:
            found.append("\n".join(commands))
    return found


def job() -> str:
    [found] = [text for _, text in BLOCK.findall(DOCUMENT.read_text("utf-8")) if "# job.py" in text]
    return str(found)


@pytest.mark.parametrize(("number", "said"), [(0, "5"), (1, '"messages": 5')])
def test_a_recipe_runs_with_a_path_that_has_no_python(
    tmp_path: Path, number: int, said: str
) -> None:
    from rocketstore.spark.java import find_java_home

    commands = recipes()
    assert len(commands) == 2
    with rocketstore.open(tmp_path / "orders", commit_log_file_size_bytes=1 << 20) as store:
        for n in range(5):
            store.writer("orders").put(b"%d" % n)
    (tmp_path / "bin").mkdir()
    for name in NEEDED:
        there = shutil.which(name)
        assert there is not None
        (tmp_path / "bin" / name).symlink_to(there)
    assert os.listdir(tmp_path / "bin") and shutil.which("python3", path=tmp_path / "bin") is None

    def here(text: str) -> str:
        text = text.replace("/opt/rocketstore/bin", str(Path(sys.executable).parent))
        return text.replace("/data/orders", str(tmp_path / "orders"))

    (tmp_path / "job.py").write_text(here(job()))
    command = here(commands[number]).replace("spark://head:7077", "local[1]")
    java = find_java_home() or os.environ.get("JAVA_HOME") or str(java_of_the_path())
    environment = {"PATH": str(tmp_path / "bin"), "PYTHONPATH": str(ROOT), "JAVA_HOME": java}
    ran = subprocess.run(
        ["bash", "-c", f"{command}{' --json' if number else ''}"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    lines = ran.stdout.splitlines()
    assert any(said in line if number else line == said for line in lines), ran.stderr[-3000:]


def java_of_the_path() -> Path:
    java = shutil.which("java")
    assert java is not None
    return Path(java).resolve().parent.parent
