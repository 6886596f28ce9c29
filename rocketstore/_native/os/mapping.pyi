import sys
from typing import final

MAPPED_FILES_MAX: int

@final
class Mapping:
    if sys.version_info >= (3, 12):
        def __buffer__(self, flags: int, /) -> memoryview: ...

def mapped_files() -> int: ...
def mapped_bytes() -> int: ...
