"""One RocketMQ of each version for the whole run; what was compared is told at its end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

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


class ByVersion(LoadScopeScheduling):
    """In a parallel run each version has a worker of its own, and so one JVM. RocketMQ mostly sleeps."""

    def _split_scope(self, nodeid: str) -> str:
        found = re.search(r"\[(\d+\.\d+\.\d+)[-\]]", nodeid)
        return found[1] if found else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByVersion | None:
    return ByVersion(config, log) if config.getoption("dist") == "loadscope" else None


@pytest.fixture
def tally(version: str) -> Tally:
    return TALLIES[version]


def pytest_sessionfinish(session: pytest.Session) -> None:
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["tallies"] = {version: tally.plain() for version, tally in TALLIES.items()}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    told: dict[str, Any] = getattr(node, "workeroutput", {})
    for version, found in told.get("tallies", {}).items():
        TALLIES[version].add(found)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for version, tally in TALLIES.items():
        if tally.scenarios:
            known = ", ".join(f"{name}: {count}" for name, count in sorted(tally.known.items()))
            terminalreporter.write_line(
                f"RocketMQ {version}: {tally.scenarios} scenarios, {tally.messages} messages, "
                f"{tally.fields} fields compared; known differences: {known or 'none'}"
            )
