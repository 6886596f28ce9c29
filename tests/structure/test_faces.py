"""Faces see nothing of the library but what it exports, and each other in one direction."""

from __future__ import annotations

import ast

import pytest

from tests.structure.source_tree import ROOT, Import, imports, sources, text_of

pytestmark = pytest.mark.quick

#: Each may import those before it.
FACES = ("arrow", "metrics", "aio", "spark", "cli")
#: Packages whose `__all__` is for faces, beside that of `rocketstore` itself.
OPEN = ("archive", "arrow", "columns", "config", "consuming", "errors", "message", "puts")
OPEN += ("scanning", "stats", "tools", "values")
#: Imports that point the other way: a program for spark-submit is the command line.
ACCEPTED = {("rocketstore/spark/submit.py", "rocketstore.cli.app.cli")}
#: Exported nowhere yet. Nothing may be added here.
LEFT = {
    "rocketstore.store_info.RunningFlags",
}


def exported(module: str) -> set[str]:
    """The names in `__all__` of a module, read without running it."""
    base = ROOT.joinpath(*module.split("."))
    path = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
    for node in ast.walk(ast.parse(text_of(path))):
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def allowed(found: Import, face: str) -> bool:
    target = found.target
    if target.split(".")[0] != "rocketstore" or target in LEFT:
        return True
    own = found.path.relative_to(ROOT).as_posix()
    if (own, target) in ACCEPTED:
        return True
    top = target.split(".")[1] if "." in target else ""
    if top == face:
        return True
    if top in FACES and top not in OPEN:
        return FACES.index(top) < FACES.index(face)
    if found.module == "rocketstore":
        return found.name in exported("rocketstore") or found.name in (*OPEN, "__version__", "")
    return (
        top in OPEN
        and found.name in exported(f"rocketstore.{top}")
        and top == (found.module.removeprefix("rocketstore."))
    )


@pytest.mark.parametrize("face", FACES, ids=lambda face: f"of {face}")
def test_faces_import_exported_names_only(face: str) -> None:
    wrong = [
        str(found)
        for path in sources(f"rocketstore/{face}", suffixes=(".py",))
        for found in imports(path)
        if not allowed(found, face)
    ]
    assert not wrong, "\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    "package", [name for name in OPEN if (ROOT / "rocketstore" / name).is_dir()]
)
def test_packages_have_the_names_that_they_export(package: str) -> None:
    pytest.importorskip("pyarrow" if package == "arrow" else "rocketstore")
    module = __import__(f"rocketstore.{package}", fromlist=["__all__"])
    assert [name for name in getattr(module, "__all__", ()) if not hasattr(module, name)] == []
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        module.nothing_of_the_kind  # noqa: B018
