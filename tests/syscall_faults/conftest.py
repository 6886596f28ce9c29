"""What tests with failing system calls share."""

from __future__ import annotations

from tests.unit.conftest import probe

__all__ = ["probe"]
