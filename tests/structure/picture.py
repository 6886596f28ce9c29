"""The picture of the house in `docs/architecture.md`, made from the code: `python -m tests.structure.picture`."""

from __future__ import annotations

import ast
import itertools
import re
import textwrap
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from tests.structure.floors import ACCEPTED, FLOORS, arrows
from tests.structure.public_api import exported
from tests.structure.source_tree import ROOT, module_name, sources

__all__ = ["DOCUMENT", "MARKS", "redrawn"]

DOCUMENT = ROOT / "docs" / "architecture.md"
BEGIN = "<!-- rooms: made by `python -m tests.structure.picture` -->"
END = "<!-- end of rooms -->"
FLOORS_BEGIN = "<!-- floors: made by `python -m tests.structure.picture` -->"
FLOORS_END = "<!-- end of floors -->"
#: Rooms whose packages are worth a place in the picture.
UNFOLDED = ("services", "replication")
#: Columns of the picture before the rooms, and in all.
LABEL, WIDE = 38, 116


def first_sentence(path: Path) -> str:
    """What a module or package says it is, in its first sentence."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".pyx":
        found = re.match(r'(?:#[^\n]*\n)*\s*"""(.*?)"""', text, re.DOTALL)
        doc = found[1] if found else ""
    else:
        doc = ast.get_docstring(ast.parse(text)) or ""
    paragraph = " ".join(doc.split("\n\n")[0].split())
    sentence = re.split(r"(?<=[.])\s", paragraph)[0].rstrip(".")
    return sentence.replace("|", "\\|")


def place(room: str) -> Path | None:
    """The file that says what a room is: a package's `__init__.py`, or the module."""
    base = ROOT / "rocketstore" / Path(*room.split("."))
    for path in (base / "__init__.py", base.with_suffix(".py"), base.with_suffix(".pyx")):
        if path.exists():
            return path
    return None


def modules_in(room: str, rooms: set[str]) -> list[Path]:
    """Files of a room, without those of rooms inside it."""
    inner = [other for other in rooms if other.startswith(f"{room}.")]
    found = []
    for path in sources("rocketstore", suffixes=(".py", ".pyx")):
        name = module_name(path).removeprefix("rocketstore").lstrip(".") or "__init__"
        mine = name == room or name.startswith(f"{room}.")
        if mine and not any(name == other or name.startswith(f"{other}.") for other in inner):
            found.append(path)
    return found


def rows() -> list[str]:
    rooms = {room for _, names in FLOORS for room in names if place(room)}
    used: dict[str, set[str]] = defaultdict(set)
    for arrow in arrows(frozenset(exported()) | {"__version__"}):
        if (arrow.room, arrow.imported) not in ACCEPTED:
            used[arrow.room].add(arrow.imported)
    table = ["| room | is | modules | imports |", "| --- | --- | ---: | --- |"]
    for _, names in reversed(FLOORS):
        for room in names:
            path = place(room)
            if path is None:
                continue
            files = modules_in(room, rooms)
            below = ", ".join(f"`{other}`" for other in sorted(used[room]))
            link = f"[{room}](../{path.relative_to(ROOT)})"
            table.append(f"| {link} | {first_sentence(path)} | {len(files)} | {below} |")
    return table


def tree() -> list[str]:
    """Every package with its modules: what the folders hold, by name."""
    lines = ["```"]
    for path in sorted((ROOT / "rocketstore").rglob("__init__.py")):
        folder = path.parent
        names = sorted(
            {p.stem for p in folder.iterdir() if p.suffix in (".py", ".pyx")} - {"__init__"}
        )
        depth = len(folder.relative_to(ROOT).parts) - 1
        head = f"{'  ' * depth}{folder.name}/".ljust(22)
        text, width = head, len(head)
        for name in names:
            if width + len(name) + 1 > 116:
                text += "\n" + " " * 22
                width = 22
            text += f" {name}"
            width += len(name) + 1
        lines.append(text.rstrip())
    return [*lines, "```"]


def shown(room: str) -> str:
    """A room of the picture, with its packages where they are worth a place."""
    folder = ROOT / "rocketstore" / room
    inner = sorted(p.parent.name for p in folder.glob("*/__init__.py")) if room in UNFOLDED else []
    return f"{room} ({', '.join(inner)})" if inner else room


def picture() -> list[str]:
    """Floors from high to low: what each is for, and its rooms."""
    lines = ["```"]
    for label, floors in itertools.groupby(reversed(FLOORS), key=lambda floor: floor[0]):
        names = [shown(room) for _, rooms in floors for room in rooms]
        lines += textwrap.wrap(
            "  ".join(names),
            WIDE,
            initial_indent=f" {label}".ljust(LABEL),
            subsequent_indent=" " * LABEL,
        )
    return [*lines, " bytes and positions".ljust(LABEL) + "csrc (C17)", "```"]


#: Begin and end of a part of the document that is made from the code, and what makes it.
MARKS: tuple[tuple[str, str, Callable[[], list[str]]], ...] = (
    (FLOORS_BEGIN, FLOORS_END, picture),
    (BEGIN, END, lambda: [*rows(), "", *tree()]),
)


def redrawn(text: str) -> str:
    """The document with the floors, the table and the tree as the code is now."""
    for begin, end, made in MARKS:
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = before + "\n".join([begin, "", *made(), "", end]) + after
    return text


if __name__ == "__main__":
    DOCUMENT.write_text(redrawn(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
