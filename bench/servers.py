"""Servers: what is measured, each a process of its own on a free loopback port.

The invariant: everything that a stage started is ended by its process id, and its folder deleted, when the stage ends.
"""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import httpx

ROOT = Path(__file__).parents[1]

_STARTS_WITHIN_SECONDS = 30
_STOPS_WITHIN_SECONDS = 10
_LOOKS_EVERY_SECONDS = 0.05


class StartError(Exception):
    """A server did not start."""


class Server:
    """One running process and where it listens."""

    def __init__(self, process: "subprocess.Popen[bytes]", url: str) -> None:
        self._process = process
        self.url = url

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid


class Stage:
    """A folder for all that is written, and every process that was started in it. Use it as a context."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="stepplane-bench."))
        self._ends = contextlib.ExitStack()
        self._ends.callback(shutil.rmtree, self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """End every process, the newest first, and delete the folder; a second Ctrl-C does not cut this short."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        self._ends.close()

    def at_end(self, end: Callable[[], object]) -> None:
        """Call this when the stage ends, before what was started earlier is ended."""
        self._ends.callback(end)

    def launch(self, argv: Sequence[str], log: Path, **options: Any) -> "subprocess.Popen[bytes]":
        """Start a process, out of the reach of the terminal's Ctrl-C: the stage ends it."""
        with log.open("ab") as sink:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True, **options
            )
        self.at_end(lambda: end_process(process))
        return process

    def start_stepplane(self, database_url: str, **settings: str) -> Server:
        """Start the product on a database, with its default settings but for those given."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("STEPPLANE_")}
        environment["STEPPLANE_DATABASE_URL"] = database_url  # not an argument: it may hold a password
        environment |= {f"STEPPLANE_{name.upper()}": value for name, value in settings.items()}
        return self._start_python(["app", "serve", "--port", "0"], environment)

    def start_bare(self) -> Server:
        """Start the bare answer."""
        return self._start_python(["bench.bare"], dict(os.environ))

    def start_nginx(self, files: Path) -> Server | None:
        """Start nginx as one process that serves a folder, under /sent with sendfile and under /read without.

        Returns None where it is not installed.
        """
        program = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
        if program is None:
            return None
        home = Path(tempfile.mkdtemp(prefix="nginx.", dir=self.folder))
        port = free_port()
        (home / "nginx.conf").write_text(_NGINX.format(port=port, files=files))
        log = home / "log"
        argv = [program, "-p", str(home), "-c", str(home / "nginx.conf"), "-e", str(log)]
        server = Server(self.launch(argv, log), f"http://127.0.0.1:{port}")
        _wait_for(server, log)
        return server

    def _start_python(self, module: Sequence[str], environment: dict[str, str]) -> Server:
        descriptor, name = tempfile.mkstemp(suffix=".log", dir=self.folder)
        os.close(descriptor)
        log = Path(name)
        process = self.launch([sys.executable, "-m", *module], log, cwd=ROOT, env=environment)
        until = time.monotonic() + _STARTS_WITHIN_SECONDS
        while (found := re.search(r"listens on (http://\S+)", log.read_text())) is None:
            if process.poll() is not None or time.monotonic() > until:
                raise StartError(f"{' '.join(module)} did not start: {log.read_text().strip()}")
            time.sleep(_LOOKS_EVERY_SECONDS)
        server = Server(process, found[1])
        _wait_for(server, log)
        return server


def free_port() -> int:
    """Return a loopback port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def end_process(process: "subprocess.Popen[bytes]", number: signal.Signals = signal.SIGTERM) -> None:
    """Ask a process to end, and end it when it does not."""
    if process.poll() is None:
        process.send_signal(number)
    try:
        process.wait(_STOPS_WITHIN_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait_for(server: Server, log: Path) -> None:
    until = time.monotonic() + _STARTS_WITHIN_SECONDS
    while time.monotonic() < until:
        with contextlib.suppress(httpx.TransportError):
            httpx.get(f"{server.url}/v1/healthz", timeout=2)  # whatever it answers, it answers
            return
        time.sleep(_LOOKS_EVERY_SECONDS)
    raise StartError(f"nothing answers on {server.url}: {log.read_text().strip()}")


# One process without a master, so that its processor time is that of one id. The buffers are larger than the default
# of 32 KiB, which would make the read(2) way slower than it has to be.
_NGINX = """
daemon off;
master_process off;
pid nginx.pid;
events {{ worker_connections 512; }}
http {{
    access_log off;
    default_type application/json;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    server {{
        listen 127.0.0.1:{port};
        keepalive_requests 100000000;
        location /sent/ {{ alias {files}/; sendfile on; }}
        location /read/ {{ alias {files}/; sendfile off; output_buffers 2 256k; }}
    }}
}}
"""
