"""Fixtures of the end-to-end tests: a real server process on a free loopback port."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.conftest import POSTGRES
from tests.e2e.clusters import INITDB, NGINX, PGBOUNCER, Cluster, PgBouncer, home_of

_STARTS_WITHIN_SECONDS = 30


# Who tests on a PostgreSQL elsewhere may have no programs to make another; CI has.
_NEEDED = {
    "test_database_restart.py": INITDB,
    "test_database_urls.py": INITDB,
    "test_poolers.py": INITDB and PGBOUNCER,
}
collect_ignore = [name for name, program in _NEEDED.items() if not (POSTGRES and (program or os.environ.get("CI")))]
collect_ignore += [] if NGINX or os.environ.get("CI") else ["test_base_path.py"]


class Server:
    """A ``stepplane serve`` process on its own database; it keeps its port over a restart."""

    def __init__(self, database_url: str, log_path: Path, environment: dict[str, str] | None = None) -> None:
        self.database_url = database_url
        self.port = 0
        self._log_path = log_path
        self._environment = environment or {}
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """All that it wrote to its standard error so far."""
        return self._log_path.read_text(encoding="utf-8")

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until it says that it listens."""
        environment = {**os.environ, "STEPPLANE_DATABASE_URL": self.database_url, **self._environment}
        began = self._log_path.stat().st_size if self._log_path.exists() else 0
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "app", "serve", "--port", str(self.port)], stderr=log, env=environment
            )
        waiting = threading.Event()
        for _ in range(_STARTS_WITHIN_SECONDS * 20):
            listening = re.search(r"listens on http://[^:]+:(\d+)", self.log[began:])
            if listening:
                self.port = int(listening[1])
                if _answers(self.url):
                    return
            assert self._process.poll() is None, self.log
            waiting.wait(0.05)
        pytest.fail(f"the server did not start: {self.log}")

    def kill(self) -> None:
        """End it at once, as a power cut would."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Ask it to stop and return its exit status."""
        return self._end(signal.SIGTERM)

    def wait(self) -> int:
        """Wait until it ends by itself and return its exit status."""
        assert self._process is not None
        return self._process.wait(timeout=30)

    def restart(self) -> None:
        """Kill it and start it again on the same port and database."""
        self.kill()
        self.start()

    def _end(self, number: signal.Signals) -> int:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(number)
        return self._process.wait(timeout=20)


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/v1/healthz", timeout=2).text == "ok"
    except httpx.TransportError:
        return False


@pytest.fixture
def server(database_url: str, tmp_path: Path) -> Iterator[Server]:
    """A running server on the database of this test."""
    running = Server(database_url, tmp_path / "server.log")
    yield running
    running.stop()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A running PostgreSQL server of this test alone."""
    with home_of("postgres") as home:
        running = Cluster(home)
        running.start()
        try:
            yield running
        finally:
            running.stop()


@pytest.fixture
def pooler(cluster: Cluster) -> Iterator[PgBouncer]:
    """PgBouncer before the server of this test."""
    with home_of("pgbouncer") as home:
        running = PgBouncer(home, cluster)
        running.start()
        try:
            yield running
        finally:
            running.stop()
