from typing import final

@final
class WaitLine:
    """Threads that wait for a position; native callers only."""
