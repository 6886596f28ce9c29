"""The source tree as the architecture tests see it: its files, its functions, who imports whom."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import ROOT

SKIPPED = {"build", "dist", ".venv", ".git", "stores", "__pycache__", "node_modules"}

C_FUNCTION = re.compile(r"^(?!static_assert|typedef|struct|enum|union|extern|#)[A-Za-z_].*\(")
CYTHON_FUNCTION = re.compile(r"^(\s*)(?:cdef|cpdef|def|async def)\s[^=]*\w\(")
CYTHON_IMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+(c?import)\s+(.+)|(c?import)\s+([\w.]+))")


def sources(*folders: str, suffixes: tuple[str, ...]) -> list[Path]:
    """Files of these folders, without what is generated."""
    found = []
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in suffixes and not SKIPPED & set(path.relative_to(ROOT).parts):
                found.append(path)
    return found


def generated(path: Path) -> bool:
    parts = path.relative_to(ROOT).parts
    hidden = any(part.startswith(".") and part != ".ci" for part in parts)
    return hidden or bool(SKIPPED & set(parts)) or any(part.endswith(".egg-info") for part in parts)


def tracked_files() -> list[Path]:
    """What is, or is about to be, in version control; every file where there is no repository."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        names = [path for path in ROOT.rglob("*") if not generated(path)]
    else:
        names = [ROOT / name.decode() for name in listed.split(b"\0") if name]
    return [path for path in names if path.is_file()]


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Function:
    """A function's place and its length in lines: signature and body, without its docstring."""

    path: Path
    name: str
    line: int
    length: int


def functions(path: Path) -> Iterator[Function]:
    if path.suffix == ".py":
        yield from _python_functions(path)
    elif path.suffix == ".pyx":
        yield from _cython_functions(path)
    elif path.suffix in (".c", ".h"):
        yield from _c_functions(path)


def _python_functions(path: Path) -> Iterator[Function]:
    for node in ast.walk(ast.parse(text_of(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Function(path, node.name, node.lineno, lines_without_docstring(node))


def lines_without_docstring(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    """Lines of a definition, without its docstring and, of a class, those of its methods."""
    length = (node.end_lineno or node.lineno) - node.lineno + 1
    for inner in ast.walk(node) if isinstance(node, ast.ClassDef) else [node]:
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = inner.body[0]
            if ast.get_docstring(inner, clean=False) is not None:
                length -= (first.end_lineno or first.lineno) - first.lineno + 1
    return length


def docstring_lines(lines: list[str]) -> int:
    """Lines of the docstrings of Cython code: texts in triple quotes that begin a line."""
    count = 0
    inside = False
    for line in lines:
        if inside:
            count += 1
            inside = '"""' not in line
        elif line.lstrip().startswith('"""'):
            count += 1
            inside = line.count('"""') == 1
    return count


def _cython_functions(path: Path) -> Iterator[Function]:
    """By indentation: a body ends where the next line stands as far left as its signature."""
    lines = text_of(path).splitlines()
    for number, line in enumerate(lines):
        match = CYTHON_FUNCTION.match(line)
        if not match or "extern from" in line:
            continue
        body = _end_of_signature(lines, number)
        if body is None:
            continue
        indent = len(match[1])
        last = body
        for later in range(body + 1, len(lines)):
            if not lines[later].strip():
                continue
            if len(lines[later]) - len(lines[later].lstrip()) <= indent:
                break
            last = later
        name = line[: line.index("(")].split()[-1].lstrip("*")
        length = last - number + 1 - docstring_lines(lines[number : last + 1])
        yield Function(path, name, number + 1, length)


def _end_of_signature(lines: list[str], start: int) -> int | None:
    """Line on which the signature's parentheses close, if a body follows (`:`); else None."""
    depth = 0
    for number in range(start, len(lines)):
        line = lines[number].partition("#")[0].rstrip()
        depth += line.count("(") + line.count("[") - line.count(")") - line.count("]")
        if depth <= 0:
            return number if line.endswith(":") else None
    return None


def _c_functions(path: Path) -> Iterator[Function]:
    """Functions begin and end in the first column, as everything at file level does here."""
    start: int | None = None
    opened = False
    for number, line in enumerate(text_of(path).splitlines(), 1):
        if start is None:
            if C_FUNCTION.match(line) and not line.rstrip().endswith(";"):
                start, opened = number, False
        elif line.startswith("{"):
            opened = True
        elif not opened and line.rstrip().endswith(";"):
            start = None  # a declaration over several lines
        elif opened and line.startswith("}"):
            signature = text_of(path).splitlines()[start - 1]
            name = signature[: signature.index("(")].split()[-1].lstrip("*")
            yield Function(path, name, start, number - start + 1)
            start = None


def code_columns(path: Path) -> Iterator[tuple[int, int, int]]:
    """Line number, columns of code, columns in all. Comments and docstrings are not code."""
    closing = ""
    for number, line in enumerate(text_of(path).splitlines(), 1):
        code = line
        if closing:
            head, found, code = line.partition(closing)
            code = " " * len(head) + code if found else ""
            closing = "" if found else closing
        elif path.suffix in (".c", ".h"):
            code, found, rest = line.partition("/*")
            closing = "*/" if found and "*/" not in rest else ""
        else:
            code, found, rest = line.partition('"""')
            closing = '"""' if found and '"""' not in rest else ""
            code = code.partition("  #")[0] if not code.lstrip().startswith("#") else ""
        yield number, len(code.rstrip()), len(line)


def module_name(path: Path) -> str:
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


@dataclass(frozen=True, slots=True)
class Import:
    """One imported name. `late` says that the statement stands inside a function."""

    path: Path
    line: int
    module: str
    name: str
    late: bool

    @property
    def target(self) -> str:
        return f"{self.module}.{self.name}" if self.name else self.module

    def __str__(self) -> str:
        return f"{shown(self.path)}:{self.line} imports {self.target}"


def imports(path: Path) -> Iterator[Import]:
    if path.suffix == ".py":
        yield from _python_imports(path)
    else:
        yield from _cython_imports(path)


def _python_imports(path: Path) -> Iterator[Import]:
    tree = ast.parse(text_of(path))
    late = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for inner in ast.walk(node)
    }
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package.pop()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(path, node.lineno, alias.name, "", id(node) in late)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                base = package[: len(package) - node.level + 1]
                module = ".".join([*base, module] if module else base)
            for alias in node.names:
                yield Import(path, node.lineno, module, alias.name, id(node) in late)


def _cython_imports(path: Path) -> Iterator[Import]:
    for number, line in enumerate(text_of(path).splitlines(), 1):
        match = CYTHON_IMPORT.match(line)
        if not match:
            continue
        late = line[:1].isspace()
        if match[1]:
            names = match[3].strip(" (\\").split(",")
            for name in names:
                first = name.split(" as ")[0].strip(" ()")
                yield Import(path, number, match[1], first, late)
        else:
            yield Import(path, number, match[5], "", late)
