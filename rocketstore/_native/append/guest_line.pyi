import socket
from typing import Self, final

@final
class Line:
    """One line of a guest to its host."""

    def __new__(cls, sock: socket.socket) -> Self: ...
