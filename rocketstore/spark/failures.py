"""Errors of the Spark face. Spark keeps only the text of an error, so each begins with a stable code."""

from __future__ import annotations

from rocketstore import RocketStoreError

__all__ = ["SparkFaceError"]


class SparkFaceError(RocketStoreError):
    """What the Spark face refuses or could not do: `[RS_CODE] text`."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text

    def __str__(self) -> str:
        return f"[{self.code}] {self.text}"
