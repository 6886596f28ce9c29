"""Types are true: the code passes `mypy --strict`, the stubs describe the built modules, users see
the types that the docs promise."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest

from rocketstore import Message, PutResult, Writer
from tests.docs.test_docs import WITH_EXAMPLES, examples
from tests.structure.public_api import find, resolve
from tests.support.paths import ROOT

TYPING = ROOT / "tests" / "typing"

#: What Cython puts into every module and class, and what Python 3.11 does not show yet; no user of
#: the types can meet it.
ALLOWED = r"""
.*\.__pyx_capi__
.*\.__test__
.*\.__reduce_cython__
.*\.__setstate_cython__
.*\.__buffer__
"""

pytest.importorskip("mypy", reason="needs mypy")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def test_the_package_is_strictly_typed() -> None:
    result = run("mypy", "--no-error-summary")
    assert result.returncode == 0, "\n" + result.stdout + result.stderr


def test_stubs_describe_what_is_built(tmp_path: Path) -> None:
    allowlist = tmp_path / "allowed.txt"
    allowlist.write_text(ALLOWED)
    # Faults of other modules belong to the test above.
    config = tmp_path / "mypy.ini"
    config.write_text("[mypy]\nfollow_imports = silent\n")
    result = run(
        "mypy.stubtest",
        "--concise",
        "--ignore-unused-allowlist",
        "--ignore-disjoint-bases",
        f"--allowlist={allowlist}",
        f"--mypy-config-file={config}",
        "rocketstore._native",
    )
    assert result.returncode == 0, "\n" + result.stdout + result.stderr


@pytest.mark.parametrize("example", sorted(p.name for p in TYPING.glob("*.py")))
def test_users_see_these_types(example: str) -> None:
    """Each `reveal_type(x)  # T` of the example must reveal exactly T, without an error."""
    path = TYPING / example
    result = run("mypy", "--no-error-summary", str(path))
    revealed = dict(re.findall(r":(\d+): note: Revealed type is \"(.+)\"", result.stdout))
    errors = [
        line for line in result.stdout.splitlines() if f"{example}:" in line and ": error:" in line
    ]
    wrong = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = re.match(r"\s*reveal_type\(.*\)  # (.+)$", line)
        if match and revealed.get(str(number)) != match[1]:
            wrong.append(
                f"{example}:{number} {match[1]} expected, {revealed.get(str(number))} seen"
            )
    assert not errors + wrong, "\n" + "\n".join(errors + wrong)
    assert revealed, "nothing was revealed"


def test_examples_of_the_documents_pass(tmp_path: Path) -> None:
    for name in WITH_EXAMPLES:
        code = "\n".join(code for _, code in examples(ROOT / name) if ">>>" not in code)
        page = f"async def page() -> None:\n    pass\n{indent(code, '    ')}"
        (tmp_path / f"{Path(name).stem}.py").write_text(page, encoding="utf-8")
    pages = [str(page) for page in sorted(tmp_path.glob("*.py"))]
    assert len(pages) == len(WITH_EXAMPLES)
    config = tmp_path / "mypy.ini"
    options = ("strict", "allow_untyped_defs", "allow_untyped_calls")
    lines = [f"{option} = true" for option in options]
    config.write_text("\n".join(["[mypy]", *lines, "follow_imports = silent"]))
    result = run("mypy", "--no-error-summary", f"--config-file={config}", *pages)
    assert result.returncode == 0, "\n" + result.stdout + result.stderr


@pytest.mark.parametrize("kind", [Message, PutResult, Writer])
def test_help_says_what_the_stubs_say(kind: type) -> None:
    """Editors show the stubs, `help` what was built: at least what each text begins with."""
    module, found = find("rocketstore", kind.__name__)
    assert isinstance(found, ast.ClassDef)
    if not module.startswith("rocketstore._native"):
        base = resolve(module, found.bases[0])
        assert base is not None
        module, found = base
        assert isinstance(found, ast.ClassDef)
    documented = {
        node.name: text
        for node in found.body
        if isinstance(node, ast.FunctionDef) and (text := ast.get_docstring(node))
    }
    assert documented
    for name, text in documented.items():
        assert text.split("\n\n")[0] in (inspect.getdoc(getattr(kind, name)) or ""), name
