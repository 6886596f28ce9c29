"""For `columns`; nothing here is for Python."""

from typing import final

@final
class Words: ...
