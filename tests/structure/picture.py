"""The picture of the house in `docs/architecture.md`, made from the code: `python -m tests.structure.picture`."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

from tests.structure.floors import ACCEPTED, FLOORS, arrows
from tests.structure.public_api import exported
from tests.structure.source_tree import ROOT, module_name, sources

__all__ = ["DOCUMENT", "redrawn"]

DOCUMENT = ROOT / "docs" / "architecture.md"
BEGIN = "<!-- rooms: made by `python -m tests.structure.picture` -->"
END = "<!-- end of rooms -->"


def first_sentence(path: Path) -> str:
    """What a module or package says it is, in its first sentence."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".pyx":
        found = re.match(r'(?:#[^\n]*\n)*\s*"""(.*?)"""', text, re.DOTALL)
        doc = found[1] if found else ""
    else:
        doc = ast.get_docstring(ast.parse(text)) or ""
    paragraph = " ".join(doc.split("\n\n")[0].split())
    sentence = re.split(r"(?<=[.:])\s", paragraph)[0].rstrip(".:")
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


def redrawn(text: str) -> str:
    """The document with the table and the tree as the code is now."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    drawn = "\n".join([BEGIN, "", *rows(), "", *tree(), "", END])
    return before + drawn + after


if __name__ == "__main__":
    DOCUMENT.write_text(redrawn(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
