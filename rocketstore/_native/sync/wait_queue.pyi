from typing import final

@final
class WaitQueue:
    """Threads that wait for a position; native callers only."""
