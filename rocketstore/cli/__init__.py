"""The command line: `rocketstore --help`. Needs the extra `cli` (click and rich)."""

from __future__ import annotations

import importlib.util
import sys

__all__ = ["main"]


def main() -> int:
    """Runs the command line with the process's arguments; returns its exit code."""
    missing = [name for name in ("click", "rich") if importlib.util.find_spec(name) is None]
    if missing:
        print(
            f"rocketstore: the command line needs {' and '.join(missing)}: "
            "pip install 'rocketstore[cli]'",
            file=sys.stderr,
        )
        return 1
    try:
        from rocketstore.cli.app import run
        from rocketstore.cli.standard_streams import name_output, open_closed

        open_closed()
        name_output()
        return run()
    except KeyboardInterrupt:  # while modules are loaded
        return 130
