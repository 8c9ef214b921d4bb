"""Database URLs on a real server: a password of every special character, and TLS as it is asked for."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from app.config import Settings
from app.main import StartupError
from app.running import migrate
from tests.contract.pipeline import Pipeline
from tests.e2e.clusters import Cluster, give_away, home_of
from tests.e2e.conftest import Server

_PASSWORD = "p@ss:w/rd%25#?"
_ENCODED = quote(_PASSWORD, safe="")
_PARTS = (_PASSWORD, _ENCODED, "ss:w", "rd%25", "w/rd")


@pytest.fixture
def guarded() -> Iterator[Cluster]:
    """A server that asks for the password, and offers TLS with a certificate of its own."""
    with home_of("postgres") as home:
        _certify(home)
        running = Cluster(
            home, _PASSWORD, f"-c ssl=on -c ssl_cert_file={home}/server.crt -c ssl_key_file={home}/server.key"
        )
        running.start()
        try:
            yield running
        finally:
            running.stop()


def _certify(home: Path) -> None:
    openssl = shutil.which("openssl")
    assert openssl is not None, "openssl is not installed"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    made = ["-keyout", str(home / "server.key"), "-out", str(home / "server.crt")]
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names, *made]
    subprocess.run(command, check=True, capture_output=True)
    for name in ("server.key", "server.crt"):
        (home / name).chmod(0o600 if name.endswith("key") else 0o644)
        give_away(home / name)
    home.chmod(0o711)


async def test_a_password_is_taken_and_never_told(guarded: Cluster, tmp_path: Path) -> None:
    """A server starts and writes with a password of every special character, and no line of its log has any of it."""
    server = Server(_with(guarded, _ENCODED), tmp_path / "server.log", {"STEPPLANE_LOG_LEVEL": "debug"})
    try:
        async with httpx.AsyncClient(base_url=server.url) as http:
            await (await Pipeline.create(http)).output("step", 1)
            guarded.stop()
            assert (await http.post("/v1/tasks", json={})).status_code == 503
    finally:
        server.stop()
    assert "stepplane:***@" in server.log
    assert not [part for part in _PARTS if part in server.log]


@pytest.mark.parametrize("given", [_PASSWORD, f"{_ENCODED}x"])
def test_a_password_that_is_refused_is_not_told(guarded: Cluster, given: str) -> None:
    """Unencoded or wrong: the one sentence of a start that fails has nothing of it."""
    with pytest.raises(StartupError) as caught:
        migrate(Settings(database_url=_with(guarded, given)))
    assert not [part for part in _PARTS if part in str(caught.value)]


@pytest.mark.parametrize("query", ["sslmode=disable", "sslmode=prefer", "sslmode=allow", "sslmode=require", "ssl=true"])
def test_a_kind_of_tls_is_followed(guarded: Cluster, query: str) -> None:
    """Each kind that needs no authority connects."""
    assert "revision" in migrate(Settings(database_url=f"{_with(guarded, _ENCODED)}?{query}"))


@pytest.mark.parametrize("mode", ["verify-ca", "verify-full"])
def test_a_certificate_is_verified(guarded: Cluster, mode: str) -> None:
    """A certificate is checked against ``sslrootcert``: its own connects, another refuses."""
    url = f"{_with(guarded, _ENCODED)}?sslmode={mode}&sslrootcert="
    assert "revision" in migrate(Settings(database_url=f"{url}{guarded.home}/server.crt"))
    with home_of("other") as other:
        _certify(other)
        with pytest.raises(StartupError, match="certificate verify failed"):
            migrate(Settings(database_url=f"{url}{other}/server.crt"))


def _with(cluster: Cluster, password: str) -> str:
    return cluster.url.replace("stepplane@", f"stepplane:{password}@")
