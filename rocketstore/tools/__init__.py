"""Tools over a whole store, as functions; the command line only prints what they return."""

from rocketstore.tools.rebuild import RebuildReport, rebuild
from rocketstore.tools.repair import Mended, RepairReport, repair
from rocketstore.tools.report import Fault, VerifyReport
from rocketstore.tools.verify import verify

__all__ = [
    "Fault",
    "Mended",
    "RebuildReport",
    "RepairReport",
    "VerifyReport",
    "rebuild",
    "repair",
    "verify",
]
