"""What a message read from a store is.

`Message` is native and light: a decoded header and a pointer into the mapped log file. Texts,
hosts, properties and times are made when they are asked for. A message keeps its file mapped, also
after the store was closed; to keep many for long, keep what you need of them instead, or
`bytes(message)`.
"""

from __future__ import annotations

from rocketstore._native.format.message import Message, restore_message
from rocketstore.values.compression import DEFAULT_MAX_BYTES, plain_body
from rocketstore.values.public import public

__all__ = ["Message", "decompress", "restore_message"]


@public
def decompress(message: Message, *, max_bytes: int = DEFAULT_MAX_BYTES) -> bytes:
    """The body as the producer gave it; a body that is not compressed as it is.

    Args:
        max_bytes: no more than this is unpacked: a few bytes can claim to be gigabytes. Default 64
            MiB.

    Raises:
        DecompressionError: the body is no stream of the kind that `sys_flag` names, or longer than
            `max_bytes`, or the kind is one that RocketMQ has not defined.
        ModuleNotFoundError: LZ4 and Zstandard need the extra `compression`.
    """
    if not isinstance(message, Message):
        raise TypeError(f"message = {message!r}: expected a Message")
    return plain_body(message.body, message.sys_flag, message.physical_offset, max_bytes=max_bytes)
