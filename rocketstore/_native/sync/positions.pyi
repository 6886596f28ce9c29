from typing import final

from rocketstore._native.os.mapped_file import MappedFile

MAGIC: int
PAGE_SIZE: int

@final
class Positions:
    wrote: int
    committed: int
    flushed: int
    visible: int
    dispatched: int
    indexed: int
    minimum: int
    state: int
    pid: int
    run_id: bytes
    boot_id: bytes
    @staticmethod
    def over(file: MappedFile) -> Positions: ...
    @property
    def writable(self) -> bool: ...
    @property
    def magic(self) -> int: ...
    @property
    def changes(self) -> int: ...
    def format(self) -> None: ...
    def publish_to(self, shared: Positions) -> None: ...
    def notify(self) -> None: ...
    def wait_change(self, seen: int, timeout_ms: int) -> int: ...
