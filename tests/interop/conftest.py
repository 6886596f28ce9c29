"""One RocketMQ of each version for the whole run; what was compared is told at its end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.oracle import GENERATIONS, Oracle
from tests.interop.views import Tally

TALLIES = {version: Tally() for version in GENERATIONS}


@pytest.fixture(scope="session", params=list(GENERATIONS))
def version(request: pytest.FixtureRequest) -> str:
    """A release of RocketMQ."""
    found: str = request.param
    return found


@pytest.fixture(scope="session")
def oracle(version: str) -> Iterator[Oracle]:
    """A JVM that is not killed: tests that do so start their own."""
    with Oracle(version) as started:
        yield started


@pytest.fixture
def tally(version: str) -> Tally:
    return TALLIES[version]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for version, tally in TALLIES.items():
        if tally.scenarios:
            known = ", ".join(f"{name}: {count}" for name, count in sorted(tally.known.items()))
            terminalreporter.write_line(
                f"RocketMQ {version}: {tally.scenarios} scenarios, {tally.messages} messages, "
                f"{tally.fields} fields compared; known differences: {known or 'none'}"
            )
