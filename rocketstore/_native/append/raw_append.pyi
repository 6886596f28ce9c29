from rocketstore._native.append.appender import Log

def append_raw(
    log: Log,
    start: int,
    data: bytes | bytearray | memoryview,
    last_record: int = -1,
    stored_ms: int = 0,
) -> int: ...
