from rocketstore._native.mapped_file import MappedFile
from rocketstore._native.positions import Positions

def populate_ahead(
    file: MappedFile, positions: Positions, populated: int, window_bytes: int
) -> int: ...
