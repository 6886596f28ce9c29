from collections.abc import Callable, Iterable
from typing import Literal, final

from rocketstore._native.format.message import Message

CODES: dict[str, int]
SLOTS_MAX: int
LESS: int
SAME: int
MORE: int
ELSE_FALSE: int
VERDICTS: tuple[bool | str | None, ...]

@final
class FilterProgram:
    """Threads may share it."""

    def __new__(
        cls,
        ops: Iterable[tuple[str, int, list[bytes], int | float, int, bool]],
        names: Iterable[bytes],
        unsure: Callable[[bytes], bool],
    ) -> FilterProgram:
        """`ops` in postfix over properties with these names, by slot: each the name in CODES, the slot,
        texts, a number, `accepts`, and whether it is negated. `unsure` is asked about the property
        texts that the program does not decide.

        Raises:
            ValueError: no program.
        """

    def matching(self, messages: list[Message]) -> list[Message]:
        """Those of the messages that match, in their order.

        Raises:
            ReadFailedError: the disk does not give the bytes back.
        """

    def verdict(self, properties: bytes) -> bool | Literal["error", "unsure"] | None:
        """One of VERDICTS, for a property text."""
