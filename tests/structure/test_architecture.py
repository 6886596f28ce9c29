"""What each layer may use: csrc no system, only one module libc, the log no other way to change files."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from rocketstore._native import GROUPS
from tests.structure.source_tree import (
    ROOT,
    code_columns,
    imports,
    shown,
    sources,
    text_of,
    tracked_files,
)

pytestmark = pytest.mark.quick

NATIVE = ROOT / "rocketstore" / "_native"
CSRC = ROOT / "csrc"

COLUMNS_MAX = 100
COMMENT_COLUMNS_MAX = 120

C_HEADERS = {"stdint.h", "stddef.h", "stdbool.h", "stdatomic.h", "string.h", "assert.h"}
C_INTRINSICS = re.compile(r"^(immintrin|x86intrin|[a-z]mmintrin|arm_acle|arm_neon)\.h$")
C_SYMBOLS = {"memcpy", "memmove", "memset", "memcmp", "memmem", "__stack_chk_fail"}
C_FLAGS = ["-std=gnu17", "-O2", "-fvisibility=hidden", "-fno-strict-aliasing"]
C_FLAGS += ["-fstack-protector-strong", "-DNDEBUG"]
C_WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"]
CYTHON_LIBC = {"libc.stdint", "libc.stddef", "libc.string", "libc.limits", "libc.errno"}
SYSTEM_CALL_NAMES = """
    open openat open64 creat read write pread pread64 pwrite pwrite64 readv writev preadv preadv2
    pwritev pwritev2 mmap mmap64 munmap mremap madvise mlock mlock2 munlock msync mincore
    fsync fdatasync sync_file_range syncfs sync ftruncate ftruncate64 truncate fallocate
    fallocate64 posix_fallocate rename renameat renameat2 link linkat symlink unlink unlinkat
    mkdir rmdir fcntl fcntl64 flock lockf lseek lseek64 fstatfs fstatfs64 fstat fstat64 stat statx
    clock_gettime memfd_create eventfd nanosleep usleep fork syscall ioctl dup dup2
"""
#: What only `_native.os.syscalls` may call.
SYSTEM_CALLS = frozenset(SYSTEM_CALL_NAMES.split())
OS_CHANGE_NAMES = """
    open write writev pwrite pwritev rename renames replace unlink remove removedirs mkdir
    makedirs rmdir truncate ftruncate link symlink fsync fdatasync sync chmod fchmod chown fchown
    lchown posix_fallocate mkfifo mknod utime setxattr removexattr sendfile fdopen
"""
#: What these may not use to change files: every change goes through `_native.os.syscalls`, which
#: follows no link of a stranger. Not in the list: places that a caller names for Spark, archives,
#: tests and demos.
THROUGH_SYSCALLS = [
    f"rocketstore/{room}"
    for room in ("log", "stats", "engine", "services", "replication", "tools", "consuming", "puts")
]
OS_CHANGES = frozenset(OS_CHANGE_NAMES.split())
PATH_CHANGES = {"write_text", "write_bytes", "touch", "symlink_to", "hardlink_to", "unlink"}
PATH_CHANGES |= {"mkdir", "rmdir", "rename"}


def test_files_of_stores_are_changed_only_through_syscalls() -> None:
    wrong = []
    for path in sources(*THROUGH_SYSCALLS, suffixes=(".py",)):
        for node in ast.walk(ast.parse(text_of(path))):
            if isinstance(node, ast.Call) and (call := changing_call(node)):
                wrong.append(f"{shown(path)}:{node.lineno} {call}")
    assert not wrong, "\n" + "\n".join(wrong)


def changing_call(node: ast.Call) -> str | None:
    function = node.func
    if isinstance(function, ast.Name):
        reads = len(node.args) < 2 or ast.unparse(node.args[1]) == "'rb'"
        return "open" if function.id == "open" and not reads else None
    if not isinstance(function, ast.Attribute):
        return None
    owner = function.value.id if isinstance(function.value, ast.Name) else ""
    if owner == "os" and function.attr in OS_CHANGES:
        return f"os.{function.attr}"
    if owner == "shutil":
        return f"shutil.{function.attr}"
    if owner != "syscalls" and function.attr in PATH_CHANGES:
        return f"{owner}.{function.attr}"
    return None


def test_log_has_no_nested_classes() -> None:
    wrong = []
    for path in sources("rocketstore/log", "rocketstore/stats", suffixes=(".py",)):
        for node in ast.walk(ast.parse(text_of(path))):
            if isinstance(node, ast.ClassDef):
                inner = [n.name for n in node.body if isinstance(n, ast.ClassDef)]
                wrong += [f"{shown(path)}: {node.name}.{name}" for name in inner]
    assert not wrong, "\n" + "\n".join(wrong)


def test_signatures_say_what_kind_of_offset() -> None:
    wrong = []
    for path in sources("rocketstore", suffixes=(".py", ".pyi")):
        for node in ast.walk(ast.parse(text_of(path))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                arguments = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
                names = {a.arg for a in arguments} & {"pos", "off", "len"}
                wrong += [f"{shown(path)}:{node.lineno} {name}" for name in names]
    assert not wrong, "\n" + "\n".join(wrong)


def test_csrc_includes() -> None:
    wrong = []
    for path in sources("csrc", suffixes=(".c", ".h")):
        for number, line in enumerate(text_of(path).splitlines(), 1):
            match = re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line)
            if not match:
                continue
            ours = (CSRC / match[1]).exists() and '"' in line
            if not (ours or match[1] in C_HEADERS or C_INTRINSICS.match(match[1])):
                wrong.append(f"{shown(path)}:{number} {match[1]}")
    assert not wrong, "\n" + "\n".join(wrong)


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("source", sorted(p.name for p in CSRC.glob("*.c")))
def test_csrc_object_needs_nothing_and_keeps_nothing(source: str, tmp_path: Path) -> None:
    """Compiles without a warning, calls nothing but memcpy and its kin, keeps no writable data."""
    built = tmp_path / "object.o"
    command = ["cc", *C_FLAGS, *C_WARNINGS, f"-I{CSRC}", "-c", str(CSRC / source), "-o", str(built)]
    compiled = subprocess.run(command, capture_output=True, text=True, check=False)
    assert compiled.returncode == 0, compiled.stderr
    symbols = subprocess.run(["nm", str(built)], capture_output=True, text=True, check=True).stdout
    undefined = set()
    for line in symbols.splitlines():
        *_, kind, name = line.split()
        if kind in "Uw":
            undefined.add(name)
        assert kind not in "DdBbCGgSs", f"writable data: {name}"
    ours = {name for name in undefined if name.startswith("rs_")}
    assert undefined - ours <= C_SYMBOLS
    headers = "".join(text_of(path) for path in CSRC.glob("*.h"))
    assert {name for name in ours if f"{name}(" not in headers} == set()


def test_cython_imports_of_libc() -> None:
    """Only syscalls.pyx may reach the system; others get integers and memcpy from libc."""
    wrong = []
    for path in sources("rocketstore/_native", suffixes=(".pyx", ".pxd")):
        if path.stem == "syscalls":
            continue
        for found in imports(path):
            top = found.module.split(".")[0]
            if top in ("libc", "posix") and found.module not in CYTHON_LIBC:
                functions_taken = not re.match(r"^([A-Z_0-9]+|\w+_t|timespec|stat)$", found.name)
                if top == "libc" or functions_taken:
                    wrong.append(str(found))
    assert not wrong, "\n" + "\n".join(wrong)


def undefined_symbols(library: Path, *options: str) -> set[str]:
    command = ["nm", *options, "--undefined-only", str(library)]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {line.split()[-1].partition("@")[0] for line in listed.splitlines()}


def shared_objects() -> list[Path]:
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    found = [NATIVE / group / f"_modules{suffix}" for group in GROUPS]
    assert [path for path in found if not path.exists()] == []
    return found


def object_of(module: str) -> Path:
    """The object of a module of `os`, as it was compiled last."""
    found = (ROOT / "build" / "native" / "os").glob(f"{module}-*.o")
    return max(found, key=lambda path: path.stat().st_mtime_ns)


@pytest.mark.skipif(shutil.which("nm") is None, reason="needs binutils")
def test_only_syscalls_calls_the_system() -> None:
    wrong = []
    for path in shared_objects():
        if path.parent.name != "os":
            called = undefined_symbols(path, "-D") & SYSTEM_CALLS
            wrong += [f"{shown(path)}: {name}" for name in sorted(called)]
    assert not wrong, "\n" + "\n".join(wrong)


@pytest.mark.skipif(shutil.which("nm") is None, reason="needs binutils")
def test_only_syscalls_of_its_folder_calls_the_system() -> None:
    called = {name: undefined_symbols(object_of(name)) & SYSTEM_CALLS for name in modules("os")}
    assert len(called.pop("syscalls")) > 20
    assert {name: calls for name, calls in called.items() if calls} == {}


@pytest.mark.skipif(shutil.which("nm") is None, reason="needs binutils")
def test_no_shared_object_lacks_a_file_of_csrc() -> None:
    """What is missing shows only when a module is imported."""
    wrong = []
    for path in shared_objects():
        missing = {name for name in undefined_symbols(path, "-D") if name.startswith("rs_")}
        wrong += [f"{shown(path)}: {name}" for name in sorted(missing)]
    assert not wrong, "\n" + "\n".join(wrong)


TOP_LEVEL = """
    .ci .gitignore CHANGELOG.md CONTRIBUTING.md LICENSE MANIFEST.in Makefile README.md
    SECURITY.md bench changes csrc docs examples pyproject.toml pyspark_rocketstore.py
    requirements rocketstore setup.py site tests
"""
CODE = ("csrc", "rocketstore", "tests", "bench")
SUFFIXES = (".py", ".pyx", ".pxd", ".pyi", ".c", ".h")


def test_no_line_is_too_wide() -> None:
    wide = []
    for path in [*sources(*CODE, suffixes=SUFFIXES), ROOT / "setup.py"]:
        for number, code, whole in code_columns(path):
            if code > COLUMNS_MAX or whole > COMMENT_COLUMNS_MAX:
                wide.append(f"{shown(path)}:{number} code {code}, in all {whole}")
    assert not wide, "\n" + "\n".join(wide)


def modules(group: str) -> list[str]:
    """Names that `MODULES` of a folder lists; the folder is not imported."""
    for node in ast.parse(text_of(NATIVE / group / "__init__.py")).body:
        if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == "MODULES":
            assert node.value is not None
            names: tuple[str, ...] = ast.literal_eval(node.value)
            return list(names)
    raise AssertionError(f"{group} has no MODULES")


def test_every_native_module_has_a_stub() -> None:
    missing = [shown(p) for p in NATIVE.rglob("*.pyx") if not p.with_suffix(".pyi").exists()]
    empty = [shown(p) for p in NATIVE.rglob("*.pyi") if not text_of(p).strip()]
    assert (missing, empty) == ([], [])


def test_folders_list_their_modules() -> None:
    """The finder of `_native` goes by the lists, the build by the files."""
    folders = {path.parent.name for path in NATIVE.glob("*/*.pyx")}
    assert folders == set(GROUPS)
    for group in GROUPS:
        stems = [path.stem for path in (NATIVE / group).glob("*.pyx")]
        assert sorted(modules(group)) == sorted(stems), group
    assert f"GROUPS = {GROUPS!r}".replace("'", '"') in text_of(ROOT / "setup.py")


def test_hot_modules_of_setup_exist() -> None:
    found = re.search(r'HOT_NAMES = """(.*?)"""', text_of(ROOT / "setup.py"), re.DOTALL)
    assert found is not None
    assert [
        n for n in found[1].split() if n.partition(".")[2] not in modules(n.partition(".")[0])
    ] == []


def test_nothing_strange_lies_at_the_top() -> None:
    """A store that a try left in the tree once went into the repository with a commit of everything."""
    assert {path.relative_to(ROOT).parts[0] for path in tracked_files()} <= set(TOP_LEVEL.split())


def test_no_machine_paths() -> None:
    """Nothing that is true on one machine only may be in the repository."""
    homes = "|".join(["work", "farm", "root", "home", "Users"])
    pattern = re.compile(rf"(?:^|[^A-Za-z0-9_.])/(?:{homes})/")
    wrong = []
    for path in tracked_files():
        try:
            text = text_of(path)
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if pattern.search(line):
                wrong.append(f"{shown(path)}:{number}")
    assert not wrong, "\n" + "\n".join(wrong)
