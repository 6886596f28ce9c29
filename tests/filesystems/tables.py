"""Tables that the proofs print: what was tried, what came out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["table"]


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints a Markdown table."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *texts, strict=True)]
    print(f"\n{title}")
    for row in (list(head), ["-" * width for width in widths], *texts):
        print("| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |")
