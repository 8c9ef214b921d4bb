"""PostgreSQL, PgBouncer and nginx of a test's own, on free loopback ports, run by the programs that are installed.

The invariant: as root they run as the user postgres, since most of them refuse to run as root.
"""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_UNPRIVILEGED = "postgres" if os.geteuid() == 0 else None


def _find_initdb() -> Path | None:
    """Find the program that makes a cluster: on the path, or the newest of where Debian keeps the versions apart."""
    on_path = shutil.which("initdb")
    kept_apart = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return Path(on_path) if on_path else kept_apart[-1] if kept_apart else None


INITDB = _find_initdb()
NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


class Cluster:
    """A PostgreSQL server that can be stopped.

    Args:
        home: an empty directory for its data.
        password: what it asks the user stepplane for; None trusts everybody.
        settings: of the server, as on its command line.
    """

    def __init__(self, home: Path, password: str | None = None, settings: str = "") -> None:
        assert INITDB is not None, "PostgreSQL's programs are not installed"
        self._bin, self.home, self._settings = INITDB.parent, home, settings
        give_away(home)
        self.port = free_port()
        self.url = f"postgresql://stepplane@127.0.0.1:{self.port}/postgres"
        asking = ["--auth", "trust"]
        if password is not None:
            (home / "password").write_text(password, encoding="utf-8")
            give_away(home / "password")
            asking = ["--auth", "scram-sha-256", "--pwfile", str(home / "password")]
        self._run("initdb", "--username", "stepplane", *asking, "--encoding", "UTF8", "--no-sync")

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        options = f"-h 127.0.0.1 -p {self.port} -k {self.home} -c fsync=off {self._settings}"
        self._run("pg_ctl", "--wait", "--log", str(self.home / "log"), "--options", options, "start")

    def stop(self) -> None:
        """Break off every connection and stop it, if it runs."""
        if (self.home / "data/postmaster.pid").exists():
            self._run("pg_ctl", "--mode", "fast", "--wait", "stop")

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._bin / program), "--pgdata", str(self.home / "data"), *arguments]
        with (self.home / "programs.log").open("ab") as log:
            subprocess.run(
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                check=True,
                cwd=self.home,
                user=_UNPRIVILEGED,
            )


class PgBouncer:
    """PgBouncer in transaction mode before a cluster, with fewer connections to it than clients use at once."""

    def __init__(self, home: Path, cluster: Cluster) -> None:
        assert PGBOUNCER is not None, "pgbouncer is not installed"
        give_away(home)
        self.home, self.port = home, free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"postgresql://stepplane@127.0.0.1:{self.port}/postgres"
        # "any" asks nobody for a password, and connects as the one user that is named.
        (home / "pgbouncer.ini").write_text(
            f"[databases]\n* = host=127.0.0.1 port={cluster.port} user=stepplane\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\nauth_type = any\n"
            "pool_mode = transaction\ndefault_pool_size = 4\nserver_round_robin = 1\nserver_login_retry = 1\n"
            "max_client_conn = 500\n",
            encoding="utf-8",
        )

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        assert PGBOUNCER is not None
        with (self.home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [PGBOUNCER, "pgbouncer.ini"], stdout=log, stderr=log, cwd=self.home, user=_UNPRIVILEGED
            )
        wait_for(self.port, self._process, self.home / "log")

    def stop(self) -> None:
        """Break off every connection and stop it, if it runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(timeout=20)


class Nginx:
    """nginx before a server, which it serves below ``/plane``.

    Args:
        home: an empty directory for its files.
        strips: whether it takes ``/plane`` off before it passes a request on.
    """

    def __init__(self, home: Path, *, strips: bool) -> None:
        assert NGINX is not None, "nginx is not installed"
        give_away(home)
        self._home, self._strips, self.port = home, strips, free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://127.0.0.1:{self.port}/plane"

    def start(self, server_url: str) -> None:
        """Start it before a server, and wait until it takes connections."""
        assert NGINX is not None
        temporary = "".join(
            f"{kind}_temp_path {self._home}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        (self._home / "nginx.conf").write_text(
            f"daemon off; pid {self._home}/pid; error_log stderr; worker_processes 1; events {{}} http {{"
            f"access_log off; {temporary} map $request_uri $within {{ ~^/plane(?<rest>/.*)$ $rest; }} server {{"
            f"listen 127.0.0.1:{self.port}; location /plane/ {{"
            f"proxy_pass {server_url}{'$within' if self._strips else ''}; proxy_set_header Host $http_host; }} }} }}",
            encoding="utf-8",
        )
        with (self._home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [NGINX, "-p", str(self._home), "-c", str(self._home / "nginx.conf"), "-e", "stderr"],
                stdout=log, stderr=log, cwd=self._home, user=_UNPRIVILEGED,
            )  # fmt: skip
        wait_for(self.port, self._process, self._home / "log")

    def stop(self) -> None:
        """Stop it, if it runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(timeout=20)


def wait_for(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Wait until a process takes connections on a loopback port."""
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            try:
                process.wait(timeout=0.05)
            except subprocess.TimeoutExpired:
                continue
        else:
            return
        break
    raise AssertionError(log.read_text(encoding="utf-8"))


def free_port() -> int:
    """Find a loopback port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


def give_away(path: Path) -> None:
    """Let the unprivileged user have a file."""
    if _UNPRIVILEGED is not None:
        os.chown(path, pwd.getpwnam(_UNPRIVILEGED).pw_uid, -1)


@contextmanager
def home_of(program: str) -> Iterator[Path]:
    """Make a directory for a program; pytest's own are closed to other users."""
    home = Path(tempfile.mkdtemp(prefix=f"stepplane-{program}-"))
    try:
        yield home
    finally:
        shutil.rmtree(home)
