"""``backup`` and ``vacuum``: a database saved while it is written to, and files that give back what was removed."""

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import httpx
import pytest

from app.config import Settings
from app.storage.urls import parse_database_url
from tests.contract.pipeline import Pipeline, parsed, serving
from tests.e2e.conftest import Server
from tests.e2e.disks import mounted


@pytest.fixture
def dialect() -> str:
    """PostgreSQL has programs of its own for this."""
    return "sqlite"


def _run(*arguments: str, status: int = 0) -> str:
    """Run a command and return the one line that it says."""
    done = subprocess.run([sys.executable, "-m", "app", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == status, done
    (line,) = (done.stderr if status else done.stdout).splitlines()
    return line


def _ask(path: Path, sql: str) -> object:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchone()[0]


@pytest.fixture
def path(database_url: str) -> Path:
    """The database file of the test."""
    return parse_database_url(database_url).path


@asynccontextmanager
async def _written_to(pipeline: Pipeline, acknowledged: list[str]) -> AsyncIterator[None]:
    """Submit steps, four at a time, for as long as the block runs."""
    is_enough = asyncio.Event()

    async def work(worker: int) -> None:
        number = 0
        while not is_enough.is_set():
            name = f"step-{worker}-{number}"
            await pipeline.submit(await pipeline.dispatch(name), os.urandom(4_000).hex())
            acknowledged.append(name)
            number += 1

    workers = [asyncio.create_task(work(number)) for number in range(4)]
    yield
    is_enough.set()
    await asyncio.gather(*workers)


async def test_a_backup_under_load_is_one_whole_state(server: Server, tmp_path: Path) -> None:
    """Saved again and again while workers submit, each copy is whole and has all that was acknowledged before it."""
    copy = tmp_path / "saved" / "copy.db"
    copy.parent.mkdir()
    acknowledged: list[str] = []
    before: list[str] = []
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        pipeline = await Pipeline.create(http)
        async with _written_to(pipeline, acknowledged):
            for _ in range(3):
                before = list(acknowledged)
                line = await asyncio.to_thread(_run, "backup", str(copy), "--database-url", server.database_url)
                assert line == f"saved {server.database_url} to {copy}: {copy.stat().st_size} bytes, checked"
                assert len(acknowledged) > len(before)
                assert _ask(copy, "PRAGMA integrity_check") == "ok"
                with closing(sqlite3.connect(copy)) as connection:
                    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
                    assert {row[0] for row in connection.execute("SELECT name FROM projections")} >= set(before)
    assert [file.name for file in copy.parent.iterdir()] == ["copy.db"]
    assert copy.stat().st_mode & 0o777 == 0o600
    async with serving(Settings(database_url=f"sqlite:///{copy}")) as http:
        restored = Pipeline(http, pipeline.created, pipeline.run_id)
        assert set(await restored.names()) >= set(before)
        await restored.output("after", 1)


def test_a_damaged_database_is_not_saved(path: Path, database_url: str, tmp_path: Path) -> None:
    """What SQLite's check finds is told, and the copy of before stays."""
    copy = tmp_path / "copy.db"
    copy.write_bytes(b"of before")
    with path.open("r+b") as file:
        file.seek(5 * 4096)
        file.write(os.urandom(10 * 4096))
    assert "copy.db" not in _run("backup", str(copy), "--database-url", database_url, status=1).split(":")[0]
    assert copy.read_bytes() == b"of before"
    assert not list(tmp_path.glob(".copy.db*"))


@pytest.mark.parametrize("name", ["", "stepplane.db", "none/copy.db"])
def test_a_backup_that_cannot_be_is_one_line(name: str, database_url: str, tmp_path: Path) -> None:
    """A directory, the database itself, or a place that is not there: one line, and nothing is touched."""
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    assert str(tmp_path / name) in _run("backup", str(tmp_path / name), "--database-url", database_url, status=1)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_postgresql_is_saved_by_its_own_program() -> None:
    """The refusal is the command to run, without the password."""
    url = "postgresql+asyncpg://me:secret@db.example/plane?sslmode=require"
    line = _run("backup", "my copy", "--database-url", url, status=1)
    assert line.endswith("pg_dump --format=custom --file='my copy' postgresql://me@db.example/plane")
    assert "secret" not in line


@pytest.mark.skipif(os.geteuid() != 0 and not os.environ.get("CI"), reason="only root may mount a disk")
def test_a_backup_onto_a_full_disk_is_told(database_url: str, tmp_path: Path) -> None:
    """No room for the copy: one line says so, the copy of before stays, and nothing else is left."""
    with mounted(tmp_path / "disk", 1) as disk:
        copy = disk.path / "copy.db"
        copy.write_bytes(b"of before")
        disk.fill()
        line = _run("backup", str(copy), "--database-url", database_url, status=1)
        assert "no room is left on the disk" in line
        assert copy.read_bytes() == b"of before"
        assert {file.name for file in disk.path.iterdir()} == {"copy.db", "somebody-elses"}


async def _fill(http: httpx.AsyncClient, runs: int) -> list[Pipeline]:
    """Make ended runs of 200 KB each."""
    pipelines = []
    for _ in range(runs):
        pipeline = await Pipeline.create(http)
        worker = await pipeline.dispatch("step")
        await pipeline.stage(worker, "part", os.urandom(100_000).hex())
        await pipeline.finish()
        pipelines.append(pipeline)
    return pipelines


async def test_what_is_removed_goes_back_to_the_file_system(server: Server, path: Path) -> None:
    """DELETE and prune of nine tenths leave a file of about a tenth, and no WAL."""
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        runs = await _fill(http, 20)
        full_bytes = path.stat().st_size + path.with_name("stepplane.db-wal").stat().st_size
        for run in runs[:9]:
            assert (await http.delete(f"/v1/runs/{run.run_id}")).status_code == 204
        half_bytes = path.stat().st_size
        assert half_bytes < full_bytes * 0.7
        arguments = ("prune", "--older-than", "0m", "--keep-last", "0", "--database-url", server.database_url)
        assert (await asyncio.to_thread(_run, *arguments)).startswith("removed 11 runs")
        assert path.stat().st_size < full_bytes * 0.2
        assert path.with_name("stepplane.db-wal").stat().st_size == 0
        assert parsed(await http.get("/v1/runs"))["runs"] == []


@pytest.fixture
def old_file(path: Path) -> Path:
    """A file as those before auto_vacuum were made."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA auto_vacuum=NONE")
        connection.execute("VACUUM")
    assert _ask(path, "PRAGMA auto_vacuum") == 0
    return path


async def test_vacuum_lets_an_old_file_shrink(old_file: Path, server: Server) -> None:
    """``vacuum`` refuses while a server has the file open, else says both sizes; what is removed later goes back."""
    arguments = ("vacuum", "--database-url", server.database_url)
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        runs = await _fill(http, 20)
        for run in runs[:18]:
            await http.delete(f"/v1/runs/{run.run_id}")
        assert "stop the server first" in await asyncio.to_thread(_run, *arguments, status=1)
        server.stop()
        before = old_file.stat().st_size
        line = await asyncio.to_thread(_run, *arguments)
        after = old_file.stat().st_size
        assert line == f"wrote {server.database_url} anew: {before} bytes before, {after} bytes now"
        assert after < before * 0.3
        server.start()
        assert len(parsed(await http.get("/v1/runs"))["runs"]) == 2
        await http.delete(f"/v1/runs/{runs[18].run_id}")
        assert old_file.stat().st_size < after * 0.8
