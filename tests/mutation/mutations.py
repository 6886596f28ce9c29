"""Small changes of a source, each of which should make a test fail."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

__all__ = ["Mutation", "of_c", "of_python"]


@dataclass(frozen=True)
class Mutation:
    """`new` in place of the bytes [start, end) of the file."""

    path: str
    line: int
    start: int
    end: int
    old: str
    new: str

    def apply(self, text: str) -> str:
        assert text[self.start : self.end] == self.old
        return text[: self.start] + self.new + text[self.end :]

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.old!r} becomes {self.new!r}"


#: Operators with a space on both sides, so that neither pointers nor signs are taken for them.
SWAPS = {
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "&&": "||",
    "||": "&&",
    "+": "-",
    "-": "+",
    "<<": ">>",
    ">>": "<<",
    "&": "|",
    "|": "&",
    "+=": "-=",
    "|=": "&=",
}
OPERATOR = re.compile(
    r"(?<= )(?:" + "|".join(sorted(map(re.escape, SWAPS), key=len)[::-1]) + r")(?= )"
)
NUMBER = re.compile(r"(?<![\w.])(?:0|1|2|4|8|20)(?![\w.])")
#: A statement that stands on a line by itself and whose absence still compiles.
STATEMENT = re.compile(
    r"^ +(?:[\w\->.\[\]]+ [-+|&]?= [^;{}]+|rs_\w+\([^;{}]*\)|mem\w+\([^;{}]*\));$"
)
NO_CODE = re.compile(
    r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\])*\"|^\s*#[^\n]*", re.DOTALL | re.MULTILINE
)


def of_c(path: str, text: str) -> list[Mutation]:
    """Swapped operators, numbers off by one, statements left out."""
    found = []
    plain = NO_CODE.sub(lambda match: re.sub(r"[^\n]", "~", match[0]), text)

    def take(start: int, end: int, new: str) -> None:
        line = text.count("\n", 0, start) + 1
        found.append(Mutation(path, line, start, end, text[start:end], new))

    for match in OPERATOR.finditer(plain):
        take(match.start(), match.end(), SWAPS[match[0]])
    for match in NUMBER.finditer(plain):
        take(match.start(), match.end(), str(int(match[0]) + 1))
    at = 0
    for line in plain.splitlines(keepends=True):
        if STATEMENT.match(line.rstrip("\n")):
            take(at, at + len(line.rstrip("\n")), " ;")
        at += len(line)
    return found


COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}


class _Python(ast.NodeVisitor):
    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        self.lines = [0]
        for line in text.splitlines(keepends=True):
            self.lines.append(self.lines[-1] + len(line))
        self.found: list[Mutation] = []

    def take(self, node: ast.expr | ast.stmt, new: str) -> None:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self.lines[node.lineno - 1] + node.col_offset
        end = self.lines[node.end_lineno - 1] + node.end_col_offset
        if self.text[start:end] != new:
            self.found.append(
                Mutation(self.path, node.lineno, start, end, self.text[start:end], new)
            )

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1:
            parts = (node.left, COMPARISONS[type(node.ops[0])], node.comparators[0])
            self.take(node, f"({ast.unparse(parts[0])} {parts[1]} {ast.unparse(parts[2])})")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        word = " or " if isinstance(node.op, ast.And) else " and "
        self.take(node, "(" + word.join(f"({ast.unparse(value)})" for value in node.values) + ")")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self.take(node, f"bool({ast.unparse(node.operand)})")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        sign = {ast.Add: "-", ast.Sub: "+"}.get(type(node.op))
        if sign:
            self.take(node, f"({ast.unparse(node.left)} {sign} {ast.unparse(node.right)})")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self.take(node, "pass")
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) != "TYPE_CHECKING":
            self.take(node.test, "False")
            self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)


def of_python(path: str, text: str) -> list[Mutation]:
    """Swapped comparisons, signs and words, conditions that never hold, calls left out."""
    visitor = _Python(path, text)
    visitor.visit(ast.parse(text))
    return visitor.found
