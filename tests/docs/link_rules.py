"""The rules of docs/durability.md and the tests that hold them.

A test says which rules it holds in its docstring: \"\"\"D-21 D-22: …\"\"\".
`python -m tests.docs.link_rules` writes the last column of the table; a rule that no test names keeps
what stands there, if that says why (`later: …` or `not built: …`).
"""

from __future__ import annotations

import re
import sys

from tests.docs.link_features import all_tests
from tests.support.paths import ROOT

DOCUMENT = ROOT / "docs" / "durability.md"
RULE = re.compile(r"\bD-(\d{2})\b")
ROW = re.compile(r"^\| (D-\d{2}) \| (.*) \|(.*)\|$")
COUNT = 40


def holders() -> dict[str, str]:
    """For each rule the test that names it; of several the one that names the fewest."""
    best: dict[str, tuple[int, str]] = {}
    for node, docstring in all_tests().items():
        rules = {f"D-{number}" for number in RULE.findall(docstring)}
        for rule in rules:
            best[rule] = min(best.get(rule, (len(rules), node)), (len(rules), node))
    return {rule: node for rule, (_, node) in best.items()}


def rows() -> dict[str, str]:
    """Holder by rule, as the document has it."""
    found = {}
    for line in DOCUMENT.read_text(encoding="utf-8").splitlines():
        if match := ROW.match(line):
            found[match[1]] = match[3].strip().strip("`")
    return found


def relinked() -> str:
    """The document with its last column as the docstrings say."""
    known = holders()
    lines = []
    for line in DOCUMENT.read_text(encoding="utf-8").splitlines():
        if match := ROW.match(line):
            rule, text, old = match[1], match[2], match[3].strip()
            kept = "" if "::" in old else old
            new = f"`{known[rule]}`" if rule in known else kept
            line = f"| {rule} | {text} | {new} |" if new else f"| {rule} | {text} | |"
        lines.append(line)
    return "\n".join(lines) + "\n"


def main() -> int:
    DOCUMENT.write_text(relinked(), encoding="utf-8")
    bare = [rule for rule, holder in rows().items() if not holder]
    print(f"{COUNT - len(bare)} of {COUNT} rules are held")
    if bare:
        print("without a test or a reason:", *bare)
    return 1 if bare else 0


if __name__ == "__main__":
    sys.exit(main())
