from typing import Self, final

from rocketstore._native.dispatch.dispatch_loop import DispatchLoop
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore._native.sync.futex import EventCount
from rocketstore._native.sync.positions import Positions
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock

@final
class DispatchService:
    """One a dispatcher. The thread that dispatches has the turn: the one that serves, one that has put something
    short, or Python code of any thread in `with service.turn`."""

    paused: bool
    def __new__(cls, loop: DispatchLoop, positions: Positions, arrival: EventCount) -> Self: ...
    @property
    def positions(self) -> Positions: ...
    @property
    def turn(self) -> SignalSafeLock: ...
    def help_at(self, signal: EventCount) -> None: ...
    def stop_indexing(self) -> None: ...
    def go_on_indexing(self) -> None: ...
    def serve(
        self,
        signal: EventCount,
        segment: MappedFile,
        shared: Positions | None,
        limit_ms: int,
        indexing: bool,
    ) -> None: ...
