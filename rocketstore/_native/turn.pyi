from typing import Self, final

@final
class Turn:
    """A lock for Python code that signal handlers may use, too."""

    limit_ms: int
    def __new__(cls, limit_ms: int = -1) -> Self: ...
    def __enter__(self) -> bool: ...
    def __exit__(self, *error: object) -> None: ...
