"""What tests of the log share with those of native code."""

from __future__ import annotations

from tests.unit.conftest import in_child, probe

__all__ = ["in_child", "probe"]
