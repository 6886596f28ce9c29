"""Tools over a whole store, as functions; the command line prints what they return.

    from rocketstore import tools
    report = tools.verify("data/orders")

A tool is one module, with its parts in a package:

- `verify` (`_verify`) checks a store against itself, without a lock; `report` has what it returns.
- `repair` (`_repair`) overwrites damage in the log with filler records (`filler_records`).
- `rebuild` (`_rebuild`) makes queues and index again from the log, several parts at a time.
- `guests_of` of `sharing` asks the host of a store for the processes that share it.
- `parallel` runs native work on all processors.

`verify` imports nothing of the other two; `rebuild` asks `_repair` where old queues ended. Tools
are a floor above the engine and `api`, and may import all of the library but faces. Faces import
the names below only.
"""

from rocketstore.sharing.asking import guests_of
from rocketstore.tools._rebuild.parts import BuiltPart, LogPart, build_part
from rocketstore.tools._verify.derived import offsets_fault
from rocketstore.tools.rebuild import RebuildReport, rebuild
from rocketstore.tools.repair import Mended, RepairReport, repair
from rocketstore.tools.report import Fault, FaultKind, QueueMessages, VerifyReport, WithoutQueue
from rocketstore.tools.verify import verify

__all__ = [
    "BuiltPart",
    "Fault",
    "FaultKind",
    "LogPart",
    "Mended",
    "QueueMessages",
    "RebuildReport",
    "RepairReport",
    "VerifyReport",
    "WithoutQueue",
    "build_part",
    "guests_of",
    "offsets_fault",
    "rebuild",
    "repair",
    "verify",
]


def __dir__() -> list[str]:
    """What completion shows: no modules."""
    return sorted(__all__)
