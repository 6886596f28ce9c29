"""What these tests share with the unit tests of the native part."""

from __future__ import annotations

from tests.unit.conftest import in_child, probe

__all__ = ["in_child", "probe"]
