"""csrc on other machines: built for them, run under qemu, and compared with what it makes here."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CSRC = HERE.parents[1] / "csrc"
PARTS = [
    "records",
    "checksums",
    "properties",
    "message ids",
    "queue units",
    "index file",
    "log",
]
FLAGS = [
    "-std=gnu17",
    "-O2",
    "-fno-strict-aliasing",
    "-Wall",
    "-Wextra",
    "-Wconversion",
    "-Wshadow",
]

pytestmark = pytest.mark.proof


def sums(compiler: str, folder: Path, *runner: str, flags: tuple[str, ...] = ()) -> list[list[str]]:
    """What sums.c prints, for each kernel that the machine has."""
    program = folder / compiler
    sources = sorted(str(path) for path in CSRC.glob("*.c"))
    subprocess.run(
        [
            compiler,
            *FLAGS,
            "-Werror",
            *flags,
            f"-I{CSRC}",
            "-o",
            program,
            HERE / "sums.c",
            *sources,
        ],
        check=True,
        timeout=300,
    )
    done = subprocess.run([*runner, program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    size = len(PARTS) + 1
    kernels = [lines[at : at + size] for at in range(0, len(lines), size)]
    for kernel in kernels:
        assert [line.rsplit(" ", 1)[0] for line in kernel[1:]] == PARTS
    return kernels


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    kernels = sums("cc", tmp_path_factory.mktemp("here"))
    assert sys.byteorder == "little"
    for kernel in kernels:
        assert kernel[1:] == kernels[0][1:], kernel[0]
    return kernels[0][1:]


@pytest.mark.parametrize("machine", ["aarch64", "s390x"])
def test_the_same_on(machine: str, here: list[str], tmp_path: Path) -> None:
    """aarch64: no clmul, chars without sign; s390x: most significant byte first."""
    compiler, emulator = f"{machine}-linux-gnu-gcc", f"qemu-{machine}"
    for tool in (compiler, emulator):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool} (gcc-{machine}-linux-gnu, qemu-user)")
    kernels = sums(compiler, tmp_path, emulator, flags=("-static",))
    for kernel in kernels:
        assert kernel[1:] == here, kernel[0]
    assert len(kernels) == (2 if machine == "aarch64" else 1)


def test_other_bytes_give_other_sums(here: list[str], tmp_path: Path) -> None:
    """The sums see what they are for: one field with its bytes the wrong way round."""
    changed = tmp_path / "csrc"
    shutil.copytree(CSRC, changed)
    path = changed / "rs_queue_file.h"
    text = path.read_text()
    line = "rs_store64s(at + RS_UNIT_AT_TAGS_CODE, unit.tags_code);"
    assert line in text
    path.write_text(text.replace(line, "memcpy(at + RS_UNIT_AT_TAGS_CODE, &unit.tags_code, 8);", 1))
    program = tmp_path / "changed"
    sources = sorted(str(path) for path in changed.glob("*.c"))
    subprocess.run(
        ["cc", *FLAGS, f"-I{changed}", "-o", program, HERE / "sums.c", *sources],
        check=True,
        timeout=300,
    )
    done = subprocess.run([program], capture_output=True, text=True, timeout=300, check=True)
    got = done.stdout.splitlines()[1 : 1 + len(PARTS)]
    assert [mine for mine, theirs in zip(got, here, strict=True) if mine != theirs] == [
        mine for mine in got if mine.startswith("queue units")
    ]
