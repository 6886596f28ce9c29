"""A free port stays free: no process gets it by accident."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ports
from tests.support.paths import ROOT

pytestmark = pytest.mark.quick


def test_the_system_gives_it_to_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ports, "RANGE", tmp_path / "range")
    ports.RANGE.write_text("12000\t65000\n")
    found = [ports.free_port() for _ in range(50)]
    assert not [port for port in found if 12_000 <= port <= 65_000]
    assert len(set(found)) == 50


def test_a_system_that_keeps_none_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ports, "RANGE", tmp_path / "range")
    ports.RANGE.write_text("1024\t65535\n")
    assert ports.free_port() >= ports.LEAST


def test_another_process_gets_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    port = ports.free_port()
    monkeypatch.setattr(ports, "_candidates", lambda: [port])
    with pytest.raises(OSError, match="no free port"):
        ports.free_port()
    words = f"from tests.support import ports; print(ports._take({port}))"
    child = subprocess.run([sys.executable, "-c", words], cwd=ROOT, capture_output=True, check=True)
    assert child.stdout == b"False\n"


def test_ports_beside_it_are_free_too(monkeypatch: pytest.MonkeyPatch) -> None:
    port = ports.free_port(also=(-2,))
    for one in (port, port - 2):
        socket.create_server(("127.0.0.1", one)).close()
    with socket.create_server(("127.0.0.1", port - 2)):
        monkeypatch.setattr(ports, "_take", lambda port: True)
        monkeypatch.setattr(ports, "_candidates", lambda: [port])
        with pytest.raises(OSError, match="no free port"):
            ports.free_port(also=(-2,))
