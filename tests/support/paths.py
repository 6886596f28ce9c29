"""Where the tree and the data of the tests lie. Tests ask here, so that a test may move to another folder."""

from pathlib import Path

__all__ = ["ROOT", "STORES", "TESTS", "VECTORS"]

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
#: Files that RocketMQ wrote, and what they hold.
VECTORS = TESTS / "vectors"
#: Directories of stores that RocketMQ wrote.
STORES = VECTORS / "stores"
