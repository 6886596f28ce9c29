"""What a message read from a store is.

`Message` is native and light: a decoded header and a pointer into the mapped log file. Texts, hosts,
properties and times are made when they are asked for. A message keeps its file mapped, also after the
store was closed; to keep many for long, keep what you need of them instead, or `bytes(message)`.
"""

from __future__ import annotations

from rocketstore._native.message import Message

__all__ = ["Message"]
