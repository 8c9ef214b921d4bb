"""Retention: old runs go, whole; what has not ended, and what is asked to stay, stays."""

import asyncio
from datetime import UTC, datetime, timedelta

import httpx
from fastapi import FastAPI

from app.config import Settings
from app.main import create_app
from app.services.retention import Pruned, Retention
from app.storage.opening import open_database
from app.storage.urls import parse_database_url
from tests.contract.pipeline import Pipeline, parsed

LATER = datetime.now(UTC) + timedelta(days=40)


async def _prune(url: str, days: float, *, keep_last: int = 0, dry_run: bool = False) -> Pruned:
    """Prune as if it were forty days later."""
    database = open_database(parse_database_url(url))
    try:
        retention = Retention(database, clock=lambda: LATER)
        return await retention.prune(timedelta(days=days), keep_last=keep_last, dry_run=dry_run)
    finally:
        await database.close()


async def test_what_ended_long_ago_goes(app: FastAPI, client: httpx.AsyncClient, database_url: str) -> None:
    """A run that ended before the age is removed with its outputs, and their bytes are told; a running one never is."""
    assert app is not None
    ended, running = await Pipeline.create(client), await Pipeline.create(client)
    await ended.output("step", "x" * 98)
    await running.output("step", "y")
    await ended.finish()
    assert await _prune(database_url, 41) == Pruned(0, 0)
    assert await _prune(database_url, 30, dry_run=True) == Pruned(1, 100)
    assert (await ended.get()).status_code == 200
    assert await _prune(database_url, 30) == Pruned(1, 100)
    assert (await ended.get()).status_code == 404
    assert await running.names() == ["step"]
    assert parsed(await client.get("/v1/status"))["counts"] == {"tasks": 2, "runs": {"running": 1}, "outputs": 1}
    assert await _prune(database_url, 30) == Pruned(0, 0)


async def test_the_newest_runs_of_each_task_can_stay(client: httpx.AsyncClient, database_url: str) -> None:
    """With keep_last the newest N runs of every task stay, whatever their age."""
    tasks = [await Pipeline.create(client), await Pipeline.create(client)]
    runs = [run for task in tasks for run in (task, await task.another_run(), await task.another_run())]
    for run in runs:
        await run.finish()
    assert (await _prune(database_url, 30, keep_last=2)).runs == 2
    left = parsed(await client.get("/v1/runs"))["runs"]
    assert {run["id"] for run in left} == {runs[index].run_id for index in (1, 2, 4, 5)}


async def test_more_runs_than_a_page_all_go(client: httpx.AsyncClient, database_url: str) -> None:
    """Pruning goes on until nothing old is left, page after page."""
    task = await Pipeline.create(client, start=False)
    for _ in range(205):
        await (await task.another_run()).finish()
    assert (await _prune(database_url, 30)).runs == 205


async def test_a_server_prunes_by_itself(database_url: str) -> None:
    """With RETENTION_DAYS set, what ended long enough ago goes while the server runs."""
    async with _started(Settings(database_url=database_url)) as http:
        old = await Pipeline.create(http)
        await old.finish()
    await asyncio.sleep(0.1)
    async with _started(Settings(database_url=database_url, retention_days=1e-6)) as http:
        for _ in range(200):
            if (await http.get(f"/v1/runs/{old.run_id}")).status_code == 404:
                break
            await asyncio.sleep(0.02)
        assert (await http.get(f"/v1/runs/{old.run_id}")).status_code == 404


class _started:  # noqa: N801 - reads as a verb
    """An application with its lifespan, and a client on it."""

    def __init__(self, settings: Settings) -> None:
        self._app = create_app(settings)
        self._lifespan = self._app.router.lifespan_context(self._app)
        self._http = httpx.AsyncClient(transport=httpx.ASGITransport(self._app), base_url="http://test")

    async def __aenter__(self) -> httpx.AsyncClient:
        await self._lifespan.__aenter__()
        return self._http

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()
        await self._lifespan.__aexit__(None, None, None)
