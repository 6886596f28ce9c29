"""The jobs as a program for spark-submit:

spark-submit --master spark://head:7077 $(python -m rocketstore.spark.submit --where) stats
data/orders

It takes the arguments of `rocketstore spark`.
"""

from __future__ import annotations

import sys

__all__ = ["main"]


def main(arguments: list[str]) -> None:
    """Runs one job; `--where` prints this file's name instead."""
    if arguments == ["--where"]:
        sys.stdout.write(f"{__file__}\n")
        return
    from rocketstore.cli.app import cli

    cli.main(["spark", *arguments], prog_name="rocketstore")


if __name__ == "__main__":
    main(sys.argv[1:])
