from typing import Self, final

from rocketstore._native.dispatcher import DispatchLoop
from rocketstore._native.mapped_file import MappedFile
from rocketstore._native.positions import Positions
from rocketstore._native.turn import Turn
from rocketstore._native.waiting import Signal

@final
class DispatchService:
    """One a dispatcher. Whoever dispatches has the turn: the thread that serves, or Python code of any
    thread in `with service.turn`."""

    paused: bool
    def __new__(cls, loop: DispatchLoop, positions: Positions, arrival: Signal) -> Self: ...
    @property
    def turn(self) -> Turn: ...
    def stop_indexing(self) -> None: ...
    def serve(
        self, signal: Signal, segment: MappedFile, shared: Positions | None, limit_ms: int
    ) -> None: ...
