"""Faults: kills, a full disk, a lock that another process holds. What was answered 204 is there, whole, whatever comes.

Each law is tried on a real server process over real sockets.
"""

import asyncio
import contextlib
import hashlib
import json
import random
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from app.storage.urls import parse_database_url
from tests.contract.pipeline import Dispatched, Pipeline, bearer, parsed
from tests.e2e.conftest import Server
from tests.e2e.mortal import Mortal, Workers


@pytest.fixture
def mortal(database_url: str, tmp_path: Path) -> Iterator[Mortal]:
    """A server to be killed."""
    server = Mortal(database_url, tmp_path / "server.log")
    server.start()
    yield server
    server.kill()
    server.close()


KILLS = {"sqlite": 32, "postgresql": 20}
"""Over fifty in all. On PostgreSQL the store is not ours to lose: there the files are what a kill could tear."""


async def test_no_answered_submit_is_lost_by_a_kill(
    mortal: Mortal, dialect: str, database_url: str, tmp_path: Path
) -> None:
    """Killed at random moments under concurrent submits: what was answered 204 is there, whole, digest right."""
    work_dir = tmp_path / "work"
    work_dir.mkdir()
    async with httpx.AsyncClient(base_url=mortal.url, timeout=60) as http:
        pipeline = await Pipeline.create(http, work_dir=str(work_dir))
        handles = [await pipeline.dispatch(f"step-{number}", ttl_seconds=86_400) for number in range(Workers.COUNT)]
        workers = Workers(http, pipeline, handles)
        moments = random.Random(17)  # noqa: S311 - it chooses moments
        for _ in range(KILLS[dialect]):
            await workers.work_until_killed(mortal, moments.randrange(16), moments.uniform(0, 0.03))
            workers.check_files(work_dir)
            await asyncio.to_thread(mortal.start)
            await workers.check()
        assert workers.check_files(work_dir) > KILLS[dialect]
        assert len(parsed(await http.get("/v1/tasks"))["tasks"]) == 1
    cut_off = sum(map(len, workers.unanswered.values())) + len(workers.lost_parts)
    assert workers.answered > 3 * KILLS[dialect]
    assert cut_off >= KILLS[dialect]
    for handle in handles:
        kept = await _kept_finals(database_url, handle)
        answered_in_order = [value for value in kept if value not in workers.unanswered[handle["name"]]]
        assert answered_in_order == workers.finals[handle["name"]]


async def _kept_finals(database_url: str, dispatched: Dispatched) -> list[Any]:
    """Read every Final of a step from the database itself, and hold each to the digest that stands beside it."""
    query = (
        "SELECT o.json_sha256, b.data FROM outputs o JOIN bodies b ON b.id = o.body_id "
        "WHERE o.step_id = :step AND o.type = 'final' ORDER BY o.seq"
    )
    engine = create_async_engine(parse_database_url(database_url).async_url)
    try:
        async with engine.connect() as connection:
            rows = (await connection.execute(text(query), {"step": dispatched["step_id"]})).all()
    finally:
        await engine.dispose()
    for sha256, data in rows:
        assert hashlib.sha256(bytes(data)).hexdigest() == sha256
    return [json.loads(bytes(data)) for _, data in rows]


async def test_a_disk_that_is_full_fails_no_submit(server: Server, dialect: str, tmp_path: Path) -> None:
    """No room for a file: the submit is 204, one log line has its ids, the counter counts, the store's bytes answer.

    On SQLite a file in the directory's place stands for the full disk, which would be the database's own too.
    """
    work_dir = tmp_path / "work"
    work_dir.mkdir()
    body = json.dumps({"padding": "x" * 400_000})
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        pipeline = await Pipeline.create(http, work_dir=str(work_dir))
        dispatched = await pipeline.dispatch("plan")
        await pipeline.submit(dispatched, "with room")
        path = Path((await pipeline.step("plan"))["file_path"])
        before = path.read_bytes()
        with _no_room(server, path.parent, limits=dialect == "postgresql"):
            await pipeline.submit(dispatched, body)
            step = await pipeline.step("plan")
            served = await pipeline.content("plan")
        assert "file_path" not in step
        assert (step["content_type"], json.loads(served)) == ("application/json", json.loads(body))
        assert (step["size_bytes"], step["sha256"]) == (len(served), hashlib.sha256(served).hexdigest())
        (line,) = [line for line in server.log.splitlines() if "materialize_failed" in line]
        assert dispatched["step_id"] in line
        assert pipeline.run_id in line
        metrics = (await http.get("/metrics")).text
        assert 'stepplane_materialize_failures_total{what="step"} 1.0' in metrics
        assert sorted(file.name for file in path.parent.iterdir()) == ["_ctx.md", "plan.md"]
        assert path.read_bytes() == before
        await pipeline.submit(dispatched, body)
        assert (await pipeline.step("plan"))["file_path"] == str(path)
        assert await pipeline.content("plan") == path.read_bytes() != before


@contextlib.contextmanager
def _no_room(server: Server, directory: Path, *, limits: bool) -> Iterator[None]:
    """Let the server write no large file, by its own limit or by what lies in the way."""
    if limits:
        soft, hard = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (200_000, hard))
        yield
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (soft, hard))
    else:
        directory.rename(directory.with_name("away"))
        directory.write_text("in the way")
        yield
        directory.unlink()
        directory.with_name("away").rename(directory)


_LOCKER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
connection.execute("ROLLBACK")
"""
_LOCKED_SECONDS = 5


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
async def test_writes_wait_while_another_process_has_the_database_locked(server: Server, database_url: str) -> None:
    """Locked for five seconds: every submit waits and is kept, none is refused, and reads go on meanwhile."""
    path = parse_database_url(database_url).path
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        pipeline = await Pipeline.create(http)
        handles = [await pipeline.dispatch(f"step-{number}") for number in range(20)]
        await pipeline.submit(handles[0], "before")
        with _locking(path) as locker:
            submits = [asyncio.create_task(_submit(http, handle)) for handle in handles]
            released = asyncio.create_task(asyncio.sleep(_LOCKED_SECONDS))
            reads = 0
            while not released.done():
                assert await pipeline.content("step-0") == b'"before"'
                assert await pipeline.names() == ["step-0"]
                reads += 1
            assert not any(submit.done() for submit in submits)
            locker.communicate()
        assert set(await asyncio.gather(*submits)) == {204}
        for handle in handles:
            assert json.loads(await pipeline.content(handle["name"])) == handle["name"]
    assert reads > _LOCKED_SECONDS


async def _submit(http: httpx.AsyncClient, handle: Dispatched) -> int:
    answer = await http.post("/v1/worker/submit", content=handle["name"], headers=bearer(handle))
    return answer.status_code


@contextlib.contextmanager
def _locking(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Lock a database from a process of its own, until that process gets to the end of its input."""
    with subprocess.Popen(
        [sys.executable, "-c", _LOCKER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        try:
            yield process
        finally:
            process.kill()
