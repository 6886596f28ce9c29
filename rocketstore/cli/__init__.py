"""The command line: `rocketstore --help`. Needs the extra `cli` (click and rich).

Entry: `main`, called by the console script and by `__main__`. Read in this order:

- `app`: the group of all commands; it imports a command when it is chosen, and turns errors into
  one line and a code.
- `commands`: a package, one command a module. `parameters`: arguments and options that commands
  share.
- `output` prints tables, messages and progress; `message_format` makes a message a line.
- `exit_codes`: which error means which code. `hints`: advice of the library in words for commands.
- `standard_streams`: streams that are closed or have no reader. `signals`: Ctrl-C and SIGTERM.
- `lines`: the lines of `ingest`, and what becomes of one that no message can hold.
- `spark_session`: a session for one command of `rocketstore spark`.

Nothing imports this package but `__main__` and `spark.submit`. It imports exported names of the
library, and `spark` late: the start of a command costs click and the names of errors.
"""

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
