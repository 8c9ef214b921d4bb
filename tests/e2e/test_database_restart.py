"""PostgreSQL stopped and started again under load: clear refusals, then service, and nothing acknowledged is lost.

The test restarts a cluster of its own, made in a temporary directory by the programs of the installed server.
"""

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import asyncpg
import httpx

from tests.contract.pipeline import Dispatched, Pipeline, bearer, code_of, dumped
from tests.e2e.clusters import Cluster
from tests.e2e.conftest import Server

WORKERS = 6
_DOWN_SECONDS = 2
_SERVED_AGAIN_WITHIN_SECONDS = 60


class Load:
    """Workers that submit and a reader that reads, on and on, refusals included."""

    def __init__(self, http: httpx.AsyncClient, pipeline: Pipeline, handles: list[Dispatched]) -> None:
        self._http, self._pipeline, self._handles = http, pipeline, handles
        self.acknowledged: dict[str, list[int]] = {handle["name"]: [] for handle in handles}
        self.refused = Counter[str]()
        self.served_at_last: set[str] = set()
        """Who was answered with a yes since this set was emptied."""
        self.is_over = False

    async def work(self, handle: Dispatched) -> None:
        """Submit one number after the other."""
        number = 0
        while not self.is_over:
            number += 1
            body = dumped({"number": number, "padding": "x" * 1_000})
            answer = await self._http.post("/v1/worker/submit", content=body, headers=bearer(handle))
            if self._is_served(answer, handle["name"], 204):
                self.acknowledged[handle["name"]].append(number)

    async def read(self) -> None:
        """Read the list."""
        while not self.is_over:
            answer = await self._pipeline.get()
            self._is_served(answer, "reader", 200)
            await asyncio.sleep(0.005)

    def _is_served(self, answer: httpx.Response, who: str, status: int) -> bool:
        """Tell a yes from a refusal, which has to be a clear one."""
        if answer.status_code == status:
            self.served_at_last.add(who)
            return True
        assert code_of(answer) == (503, "unavailable"), answer.text
        assert answer.json().keys() == {"error", "code", "request_id"}
        assert int(answer.headers["retry-after"]) > 0
        self.refused[who] += 1
        return False


async def until(is_so: Any) -> None:
    """Wait for what answers tell."""
    async with asyncio.timeout(_SERVED_AGAIN_WITHIN_SECONDS):
        while not is_so():  # noqa: ASYNC110 - what is waited for is told by answers, not by an event
            await asyncio.sleep(0.02)


async def test_postgres_restarted_under_load_loses_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """While it is down every answer is 503 with ``Retry-After``; then service goes on without a restart of ours."""
    server = Server(cluster.url, tmp_path / "server.log", {"STEPPLANE_LOG_LEVEL": "warning"})
    try:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
            pipeline = await Pipeline.create(http)
            handles = [await pipeline.dispatch(f"step-{number}") for number in range(WORKERS)]
            load = Load(http, pipeline, handles)
            everybody = {*load.acknowledged, "reader"}
            async with asyncio.TaskGroup() as group:
                for handle in handles:
                    group.create_task(load.work(handle))
                group.create_task(load.read())
                await until(lambda: load.served_at_last == everybody)
                await asyncio.to_thread(cluster.stop)
                await asyncio.sleep(_DOWN_SECONDS)
                await until(lambda: load.refused.keys() == everybody)
                load.served_at_last.clear()
                await asyncio.to_thread(cluster.start)
                await until(lambda: load.served_at_last == everybody)
                load.is_over = True
            assert "Traceback" not in server.log
            for name, numbers in load.acknowledged.items():
                assert json.loads(await pipeline.content(name))["number"] >= numbers[-1]
            kept = await _kept(cluster.url, handles)
            for name, numbers in load.acknowledged.items():
                assert set(numbers) <= kept[name]
    finally:
        server.stop()


async def _kept(database_url: str, handles: list[Dispatched]) -> dict[str, set[int]]:
    """Read the number of every Final that the database has, by its step's name."""
    connection = await asyncpg.connect(database_url)
    try:
        query = """SELECT o.step_id, b.data FROM outputs o JOIN bodies b ON b.id = o.body_id"""
        rows = await connection.fetch(query)
    finally:
        await connection.close()
    names = {handle["step_id"]: handle["name"] for handle in handles}
    kept: dict[str, set[int]] = {name: set() for name in names.values()}
    for step_id, data in rows:
        kept[names[step_id]].add(json.loads(bytes(data))["number"])
    return kept
