"""Stale runs: a run that nobody writes to any more ends by itself, and any write keeps it alive."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from app.config import Settings
from app.services import stale_runs
from app.services.retention import Retention
from app.services.stale_runs import StaleRuns
from app.storage.database import Database
from app.storage.opening import open_database
from app.storage.urls import parse_database_url
from tests.contract.pipeline import Dispatched, Pipeline, bearer, code_of, parsed, serving

AFTER = timedelta(hours=2)


@pytest.fixture
async def pipeline(client: httpx.AsyncClient) -> Pipeline:
    return await Pipeline.create(client)


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = open_database(parse_database_url(database_url))
    yield opened
    await opened.close()


async def _end(database: Database, later: timedelta) -> int:
    """End what is stale, as if it were later."""
    return await StaleRuns(database, clock=lambda: datetime.now(UTC) + later).end(AFTER)


async def _run(pipeline: Pipeline) -> tuple[str, str | None]:
    run = parsed(await pipeline.http.get(f"/v1/runs/{pipeline.run_id}"))
    return run["status"], run["error"]


async def _age(database_url: str, *runs: Pipeline) -> None:
    """Let runs have been written to last a long time ago."""
    engine = create_async_engine(parse_database_url(database_url).async_url)
    async with engine.begin() as connection:
        for run in runs:
            statement = text("UPDATE runs SET updated_at = '2020-01-01T00:00:00.000Z' WHERE id = :id")
            await connection.execute(statement, {"id": run.run_id})
    await engine.dispose()


async def test_a_run_without_a_write_is_interrupted(pipeline: Pipeline, database: Database) -> None:
    """After the time without any write the run ends as interrupted, its error says why, and its outputs stay."""
    step = await pipeline.output("plan", 1)
    since = parsed(await pipeline.http.get(f"/v1/runs/{pipeline.run_id}"))["updated_at"]
    assert await _end(database, AFTER - timedelta(minutes=1)) == 0
    assert await _run(pipeline) == ("running", None)
    assert await _end(database, AFTER + timedelta(minutes=1)) == 1
    status, error = await _run(pipeline)
    assert status == "interrupted"
    assert error is not None
    assert error.startswith(f"nothing was written to this run since {since}, for over 7200 s")
    assert "STEPPLANE_STALE_RUN_AFTER_SECONDS" in error
    assert await pipeline.content("plan") == b"1"
    late = await pipeline.http.post("/v1/worker/submit", content=b"2", headers=bearer(step))
    assert code_of(late) == (410, "run_finished")


async def test_a_run_that_ended_is_left_as_it_is(pipeline: Pipeline, database: Database) -> None:
    """A run that has ended keeps its status and its error, however long ago that was."""
    await pipeline.finish("failed", error="of its own")
    assert await _end(database, 10 * AFTER) == 0
    assert await _run(pipeline) == ("failed", "of its own")


async def test_who_finishes_it_late_is_told(pipeline: Pipeline, database: Database) -> None:
    """An orchestrator that comes back to a run that was ended is told, and changes nothing."""
    await _end(database, 2 * AFTER)
    answer = await pipeline.http.post(f"/v1/runs/{pipeline.run_id}/finish", json={"status": "done"})
    assert code_of(answer) == (409, "run_finished")
    assert (await _run(pipeline))[0] == "interrupted"


@pytest.mark.parametrize("write", ["dispatch", "submit", "progress", "artifact", "stats", "degradation"])
async def test_any_write_keeps_a_run_alive(
    pipeline: Pipeline, database: Database, database_url: str, write: str
) -> None:
    """Whatever is written to a run, by its orchestrator or by a worker, begins the time anew."""
    step = await pipeline.dispatch("plan")
    await _age(database_url, pipeline)
    await _write(pipeline, step, write)
    assert await _end(database, timedelta(0)) == 0
    assert (await _run(pipeline))[0] == "running"


async def _write(pipeline: Pipeline, step: Dispatched, write: str) -> None:
    reports = {"stats": {"model": "m"}, "degradation": {"tool": "t", "error": "e", "fallback": "f"}}
    if write == "dispatch":
        await pipeline.dispatch("other")
    elif write == "submit":
        await pipeline.submit(step, "text")
    elif write == "progress":
        await pipeline.emit(step, {"type": "progress", "stage": "s"})
    elif write == "artifact":
        await pipeline.stage(step, "part", "x")
    else:
        body = json.dumps(reports[write])
        answer = await pipeline.http.post(f"/v1/worker/{write}", content=body, headers=bearer(step))
        assert answer.status_code == 204


async def test_a_write_that_comes_in_between_saves_the_run(pipeline: Pipeline, database: Database) -> None:
    """A run is judged where it is ended: one that was written to since it was found stale goes on."""
    stale = StaleRuns(database, clock=lambda: datetime.now(UTC))
    moment = (await _updated_at(pipeline), "9999")
    await pipeline.dispatch("plan")
    for judged_at, ends in zip(moment, (False, True), strict=True):
        work = stale._end
        ended = await database.write(
            lambda stores, at=judged_at, work=work: work(stores, pipeline.run_id, at, AFTER)  # type: ignore[misc]
        )
        assert ended is ends
    assert not await database.write(lambda stores: stale._end(stores, "R-none", "9999", AFTER))


async def _updated_at(pipeline: Pipeline) -> str:
    return str(parsed(await pipeline.http.get(f"/v1/runs/{pipeline.run_id}"))["updated_at"])


async def test_more_than_a_page_all_end(
    pipeline: Pipeline, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on until nothing stale is left, page after page."""
    monkeypatch.setattr(stale_runs, "_PAGE", 3)
    runs = [pipeline, *[await pipeline.another_run() for _ in range(7)]]
    assert await _end(database, 2 * AFTER) == len(runs)
    assert [(await _run(run))[0] for run in runs] == ["interrupted"] * len(runs)


async def test_retention_takes_it_then(pipeline: Pipeline, database: Database) -> None:
    """Its age for retention begins when it was ended, and then it is removed as any run."""
    await _end(database, timedelta(days=1))
    for days, removed in ((2, 0), (40, 1)):
        retention = Retention(database, clock=lambda days=days: datetime.now(UTC) + timedelta(days=days))  # type: ignore[misc]
        assert (await retention.prune(timedelta(days=30))).runs == removed
    assert (await pipeline.http.get(f"/v1/runs/{pipeline.run_id}")).status_code == 404


async def test_a_server_ends_them_by_itself(database_url: str) -> None:
    """A server ends stale runs in the background, after a day by default, and none with 0."""
    async with serving(Settings(database_url=database_url)) as http:
        stale = await Pipeline.create(http)
        young = await stale.another_run()
    await _age(database_url, stale)
    async with serving(Settings(database_url=database_url, stale_run_after_seconds=0)) as http:
        again = Pipeline(http, stale.created, stale.run_id)
        await again.another_run()
        assert (await _run(again))[0] == "running"
    async with serving(Settings(database_url=database_url)) as http:
        again = Pipeline(http, stale.created, stale.run_id)
        async with asyncio.timeout(30):
            while (await _run(again))[0] == "running":  # noqa: ASYNC110 - a server's own time
                await asyncio.sleep(0.02)
        assert (await _run(again))[0] == "interrupted"
        assert (await _run(Pipeline(http, stale.created, young.run_id)))[0] == "running"
