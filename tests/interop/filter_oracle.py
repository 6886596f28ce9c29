"""RocketMQ's own filter classes: expressions and messages in, verdicts out, by one JVM."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.interop.oracle import BUILT, OracleError, build_sources

__all__ = ["Verdict", "verdicts"]

SOURCES: Final = Path(__file__).parent / "filters_java"
#: What Maven says where the jar of a release is not in its repositories.
ABSENT: Final = ("Could not find artifact", "Could not transfer artifact", "Could not resolve")

#: True, False, None, or "error" for an exception.
Verdict = bool | str | None


def verdicts(
    version: str, expressions: Sequence[str], messages: Sequence[Mapping[str, str]]
) -> list[list[Verdict] | str]:
    """Of each expression the verdict on each message, or "refused"."""
    output = BUILT / f"filters-{version}"
    try:
        build_sources(SOURCES, output, {"rocketmq.version": version})
    except OracleError as error:
        if any(words in str(error) for words in ABSENT):
            pytest.skip(f"Maven has no jar of rocketmq-filter {version}")
        raise
    run = subprocess.run(
        ["java", "-cp", f"{output / 'classes'}:{output / 'lib'}/*", "rocketstore.interop.Filters"],
        input=json.dumps({"expressions": list(expressions), "messages": list(messages)}).encode(),
        capture_output=True,
        check=True,
    )
    return [json.loads(line) for line in run.stdout.splitlines()]
