"""Retention: old runs go, whole; what has not ended, and what is asked to stay, stays."""

from datetime import UTC, datetime, timedelta

import httpx
import pytest
from fastapi import FastAPI

from app.services import retention
from app.services.retention import Pruned, Retention
from app.storage.opening import open_database
from app.storage.urls import parse_database_url
from tests.contract.pipeline import Pipeline, parsed

LATER = datetime.now(UTC) + timedelta(days=40)


async def _prune(url: str, days: float, *, keep_last: int = 0, dry_run: bool = False) -> Pruned:
    """Prune as if it were forty days later."""
    database = open_database(parse_database_url(url))
    try:
        return await Retention(database, clock=lambda: LATER).prune(
            timedelta(days=days), keep_last=keep_last, dry_run=dry_run
        )
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


async def test_more_runs_than_a_page_all_go(
    client: httpx.AsyncClient, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pruning goes on until nothing old is left, page after page."""
    monkeypatch.setattr(retention, "_PAGE", 4)
    task = await Pipeline.create(client, start=False)
    for _ in range(10):
        await (await task.another_run()).finish()
    assert (await _prune(database_url, 30)).runs == 10
