from typing import Any, final

@final
class Strings:
    """A column of texts in Arrow's layout, checked: row i is data[offsets[i]:offsets[i + 1]]."""

    def __init__(self, offsets: Any, data: Any) -> None: ...
    @property
    def rows(self) -> int: ...
