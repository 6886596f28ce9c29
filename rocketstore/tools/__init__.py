"""Tools over a whole store, as functions; the command line only prints what they return."""

from rocketstore.tools._rebuild.parts import BuiltPart, LogPart, build_part
from rocketstore.tools._verify.derived import offsets_fault
from rocketstore.tools.rebuild import RebuildReport, rebuild
from rocketstore.tools.repair import Mended, RepairReport, repair
from rocketstore.tools.report import Fault, VerifyReport
from rocketstore.tools.verify import verify

__all__ = [
    "BuiltPart",
    "Fault",
    "LogPart",
    "Mended",
    "RebuildReport",
    "RepairReport",
    "VerifyReport",
    "build_part",
    "offsets_fault",
    "rebuild",
    "repair",
    "verify",
]
