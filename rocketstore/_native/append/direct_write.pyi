from typing import final

from rocketstore._native.append.page_populator import PagesAhead

@final
class WriteThrough:
    """Where batches are laid before they are written. One a log."""

    least_bytes: int
    @property
    def pages(self) -> PagesAhead: ...
    def __new__(cls, pages: PagesAhead) -> WriteThrough: ...
