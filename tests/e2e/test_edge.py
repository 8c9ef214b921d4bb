"""The edge of a real server process: what it says at its start, and what a flood costs it."""

import contextlib
import json
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import Server

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for them all, with a variable that nobody reads."""
    home = tmp_path_factory.mktemp("edge")
    environment = {"STEPPLANE_OPERATR_TOKEN": "never-shown-4711", "STEPPLANE_LOG_FORMAT": "json"}
    running = Server(f"sqlite:///{home}/stepplane.db", home / "server.log", environment)
    yield running
    running.stop()


def test_a_misspelt_variable_is_told_at_the_start(edge: Server) -> None:
    """With the name that was meant, and without the value."""
    assert "'STEPPLANE_OPERATR_TOKEN' is no setting" in edge.log
    assert "did you mean STEPPLANE_OPERATOR_TOKEN?" in edge.log
    assert "never-shown" not in edge.log


def _peak_bytes(pid: int) -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="ascii"))
    assert found is not None
    return int(found[1]) * 1024


def _send_head(port: int, size_bytes: int) -> bytes:
    """Send a head of this size for as long as the server takes it, and return what it answers."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(b"GET / HTTP/1.1\r\nhost: x\r\nx: ")
            for _ in range(size_bytes // MIB):
                connection.sendall(b"a" * MIB)
        with contextlib.suppress(ConnectionError):
            return connection.recv(65_536)
    return b""


def test_a_head_of_200_mib_piles_up_nowhere(edge: Server) -> None:
    """It is refused at its 65,537th byte; meanwhile others are answered, and the memory of it is not kept."""
    before = _peak_bytes(edge.pid)
    answers: list[bytes] = []
    flood = threading.Thread(target=lambda: answers.append(_send_head(edge.port, 200 * MIB)))
    flood.start()
    while flood.is_alive():
        assert httpx.get(f"{edge.url}/v1/healthz", timeout=5).text == "ok"
    assert answers[0] == b"" or answers[0].startswith(b"HTTP/1.1 431 ")
    assert _peak_bytes(edge.pid) - before < 20 * MIB


def test_a_flood_of_refusals_is_folded_in_the_log(edge: Server) -> None:
    """Of 500 requests for nothing some have a line, the others are in counts, and together they are all."""
    began, refused = len(edge.log), list[dict[str, Any]]()
    with httpx.Client(base_url=edge.url) as http:
        for _ in range(500):
            http.get("/v1/nothing")
    waiting = threading.Event()
    for _ in range(100):
        lines = [json.loads(line) for line in edge.log[began:].splitlines() if line.startswith("{")]
        refused = [line for line in lines if line.get("status") == 404]
        if sum(line.get("count", 1) for line in refused) == 500:
            break
        waiting.wait(0.1)
    assert sum(line.get("count", 1) for line in refused) == 500
    assert len(refused) < 250
    assert {line["event"] for line in refused} == {"request", "repeated"}
