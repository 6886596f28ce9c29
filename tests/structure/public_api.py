"""The public names and their signatures, read from the sources: what a release must not break.

`python -m tests.structure.public_api` writes `public_api.txt` anew; reviewers look at the change to it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.support.paths import ROOT

SNAPSHOT = ROOT / "tests" / "structure" / "public_api.txt"


def parse(module: str) -> ast.Module:
    """The source of a module of ours; of an extension, its stub."""
    base = ROOT.joinpath(*module.split("."))
    for path in (base / "__init__.py", base.with_suffix(".py"), base.with_suffix(".pyi")):
        if path.exists():
            return ast.parse(path.read_text(encoding="utf-8"))
    raise FileNotFoundError(module)


def imported(tree: ast.Module) -> dict[str, tuple[str, str]]:
    """Name here -> (module, name there), of imports from this package."""
    return {
        alias.asname or alias.name: (node.module or "", alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rocketstore")
        for alias in node.names
    }


def exported() -> list[str]:
    for node in parse("rocketstore").body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    raise AssertionError("rocketstore has no __all__")


def find(module: str, name: str) -> tuple[str, ast.stmt]:
    """The definition of a name, followed through re-exports."""
    tree = parse(module)
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return module, node
        if isinstance(node, ast.AnnAssign | ast.Assign):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            if getattr(target, "id", "") == name:
                return module, node
    where = imported(tree).get(name)
    if where is None:
        raise LookupError(f"{module}.{name}")
    return find(*where)


def resolve(module: str, base: ast.expr) -> tuple[str, ast.stmt] | None:
    """A base class of this package, named directly or through its module."""
    try:
        if isinstance(base, ast.Name):
            return find(module, base.id)
        if isinstance(base, ast.Attribute) and isinstance(base.value, ast.Name):
            parent, name = imported(parse(module))[base.value.id]
            return find(f"{parent}.{name}", base.attr)
    except (LookupError, FileNotFoundError):
        pass
    return None


def members(module: str, node: ast.ClassDef) -> dict[str, str]:
    """Public members of a class and of its bases in this package, with their signatures."""
    found: dict[str, str] = {}
    for base in node.bases:
        where = resolve(module, base)
        if where and isinstance(where[1], ast.ClassDef):
            found.update(members(where[0], where[1]))
    for item in node.body:
        name = getattr(item, "name", "")
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            if not name.startswith("_") or name == "__init__":
                found[name] = signature(item)
            continue
        target = item.targets[0] if isinstance(item, ast.Assign) else getattr(item, "target", None)
        if not isinstance(target, ast.Name) or target.id.startswith("_"):
            continue
        if isinstance(item, ast.AnnAssign):
            default = f" = {ast.unparse(plain_default(item.value))}" if item.value else ""
            found[target.id] = f": {ast.unparse(item.annotation)}{default}"
        elif isinstance(item, ast.Assign):
            found[target.id] = f" = {ast.unparse(item.value)}"
    return found


def plain_default(value: ast.expr) -> ast.expr:
    """A default; of an option without what is known of it."""
    option = isinstance(value, ast.Call) and ast.unparse(value.func) == "_option"
    return value.args[0] if isinstance(value, ast.Call) and option else value


def signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    decorators = {ast.unparse(d) for d in node.decorator_list}
    returned = ast.unparse(node.returns) if node.returns else "?"
    if "property" in decorators:
        return f": {returned}"
    kind = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    return f"{kind}({ast.unparse(node.args)}) -> {returned}"


def lines() -> Iterator[str]:
    for name in exported():
        module, node = find("rocketstore", name)
        if isinstance(node, ast.ClassDef):
            bases = ", ".join(ast.unparse(base) for base in node.bases)
            yield f"class {name}({bases})"
            for member, text in sorted(members(module, node).items()):
                yield f"    {member}{text}"
        elif isinstance(node, ast.FunctionDef):
            yield f"def {name}{signature(node)}"
        else:
            yield f"value {name}"


def snapshot() -> str:
    return "\n".join(lines()) + "\n"


if __name__ == "__main__":
    SNAPSHOT.write_text(snapshot(), encoding="utf-8")
