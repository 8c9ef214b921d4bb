"""Intrusions: how long others wait, and how much memory is held, while a server is sent what it should not choke on.

``python -m bench.intrusions`` starts a server of its own on loopback and sends it, one after another: half heads, a
huge head, large results, a deep value, and many submits at once. Meanwhile somebody asks ten times a second whether it
is well. The invariant: everything is bounded, and nothing leaves this machine.
"""

import contextlib
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import httpx

from bench.servers import Stage
from bench.usage import MIB, peak_mib

_HALF_HEADS = 300
_HEAD_BYTES = 20 * MIB
_RESULTS = 10
_RESULT_BYTES = 15 * MIB
_LEVELS = 900
_SUBMITS = 60
_SUBMIT_BYTES = 2 * MIB - 1024
_LIMIT_BYTES = 16 * MIB  # of an output: the results are to be worked on, not refused for their size
_ASKS_EVERY_SECONDS = 0.1
_WAITS_SECONDS = 60.0


class Poller:
    """Asks again and again whether the server is well, on a connection of its own."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._is_over = threading.Event()
        self._seconds: list[float] = []
        self._faults = 0
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def take(self) -> tuple[int, float, int]:
        """Return how many answers there were since the last time, the slowest of them, and how often there was none."""
        seconds, self._seconds = self._seconds, []
        faults, self._faults = self._faults, 0
        return len(seconds), max(seconds, default=0.0), faults

    def end(self) -> None:
        """Ask no more."""
        self._is_over.set()
        self._thread.join()

    def _ask(self) -> None:
        with httpx.Client(base_url=self._url, timeout=_WAITS_SECONDS) as http:
            while not self._is_over.wait(_ASKS_EVERY_SECONDS):
                began = time.perf_counter()
                try:
                    http.get("/v1/healthz").raise_for_status()
                except httpx.HTTPError:
                    self._faults += 1
                self._seconds.append(time.perf_counter() - began)


class Intruder:
    """Sends what a server should not choke on; each method tells what it was answered."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._address = str(parts.hostname), int(parts.port or 0)
        self._http = httpx.Client(base_url=url, timeout=_WAITS_SECONDS, limits=httpx.Limits(max_connections=_SUBMITS))
        self._run_id = self._http.post("/v1/tasks", json={}).json()["run_id"]

    def close(self) -> None:
        """Close what is open."""
        self._http.close()

    def half_heads(self) -> str:
        """Begin heads and go on with none, until the server ends them."""
        with contextlib.ExitStack() as held:
            opened = [held.enter_context(self._dial()) for _ in range(_HALF_HEADS)]
            for connection in opened:
                connection.sendall(b"GET /v1/healthz HTTP/1.1\r\nhost: x\r\nx-half: ")
            return _counted([_status(connection) for connection in opened])

    def huge_head(self) -> str:
        """Send a head that is far too large, for as long as it is taken."""
        with self._dial() as connection:
            with contextlib.suppress(OSError):
                connection.sendall(b"GET / HTTP/1.1\r\nhost: x\r\nx-huge: ")
                for _ in range(_HEAD_BYTES // MIB):
                    connection.sendall(b"a" * MIB)
            return _counted([_status(connection)])

    def results(self) -> str:
        """Send large JSON results, one after another."""
        value = b'["' + b'","'.join([b"x" * 1021] * (_RESULT_BYTES // 1024)) + b'"]'
        return _counted([self._result(value) for _ in range(_RESULTS)])

    def deep_value(self) -> str:
        """Send a value that nests deep."""
        return _counted([self._result(b"[" * _LEVELS + b"]" * _LEVELS)])

    def submits(self) -> str:
        """Submit many outputs at the same time."""
        handles = [self._dispatch()["worker_handle"] for _ in range(_SUBMITS)]
        body = b'{"text": "' + b"y" * (_SUBMIT_BYTES - 20) + b'"}'

        def submit(handle: str) -> str:
            headers = {"Authorization": f"Bearer {handle}"}
            with contextlib.suppress(httpx.TransportError):
                return str(self._http.post("/v1/worker/submit", content=body, headers=headers).status_code)
            return "broken"

        with ThreadPoolExecutor(_SUBMITS) as pool:
            return _counted(list(pool.map(submit, handles)))

    def _result(self, value: bytes) -> str:
        step = self._dispatch()
        content = b'{"task_id": "%b", "ok": true, "value": %b}' % (step["step_id"].encode(), value)
        headers = {"Authorization": f"Bearer {step['worker_handle']}"}
        try:
            return str(self._http.post("/v1/worker/result", content=content, headers=headers).status_code)
        except httpx.TransportError:
            return "broken"

    def _dispatch(self) -> Any:
        answer = self._http.post(f"/v1/runs/{self._run_id}/steps", json={"ref": "intrude", "directive": 1})
        return answer.raise_for_status().json()

    def _dial(self) -> socket.socket:
        return socket.create_connection(self._address, timeout=_WAITS_SECONDS)


def _status(connection: socket.socket) -> str:
    with contextlib.suppress(OSError):
        return connection.recv(65_536)[9:12].decode() or "closed"
    return "broken"


def _counted(statuses: list[str]) -> str:
    return ", ".join(f"{statuses.count(status)} x {status}" for status in sorted(set(statuses)))


def main() -> int:
    """Send everything, and print what it did to others."""
    with Stage() as stage:
        database_url = f"sqlite:///{stage.folder}/stepplane.db"
        server = stage.start_stepplane(database_url, max_output_bytes=str(_LIMIT_BYTES), log_level="warning")
        intruder, poller = Intruder(server.url), Poller(server.url)
        steps = (
            intruder.half_heads, intruder.huge_head, intruder.results, intruder.deep_value, intruder.submits
        )  # fmt: skip
        slowest = 0.0
        try:
            print(f"at the start: peak {peak_mib(server.pid):.0f} MiB")
            for step in steps:
                began = time.perf_counter()
                said = step()
                count, seconds, faults = poller.take()
                slowest = max(slowest, seconds)
                print(f"{step.__name__:<10}  {time.perf_counter() - began:5.1f} s, answered {said}")
                print(
                    f"            others: {count} asked, slowest {seconds * 1000:.0f} ms, {faults} unanswered; "
                    f"peak {peak_mib(server.pid):.0f} MiB"
                )
        finally:
            poller.end()
            intruder.close()
        print(f"slowest answer {slowest * 1000:.0f} ms, peak {peak_mib(server.pid):.0f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
