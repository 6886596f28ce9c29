from typing import final

@final
class Turn:
    """A lock for Python code that signal handlers may use, too."""

    limit_ms: int
    def __init__(self, limit_ms: int = -1) -> None: ...
    def __enter__(self) -> bool: ...
    def __exit__(self, *error: object) -> None: ...
