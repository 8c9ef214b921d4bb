"""PostgreSQL behind PgBouncer in transaction mode, where each transaction has another connection to the server."""

import asyncio
import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import asyncpg
import httpx
import pytest

from app.storage.postgres.connecting import Connector, is_pooled
from app.storage.urls import parse_database_url
from tests.contract.pipeline import Pipeline, bearer, parsed
from tests.e2e.clusters import Cluster, PgBouncer
from tests.e2e.conftest import Server
from tests.e2e.test_database_restart import WORKERS, Load, until

ROUNDS = int(os.environ.get("TEST_POOLER_ROUNDS", "200"))
_CLIENTS = 32


async def test_nothing_fails_through_a_pooler(pooler: PgBouncer, tmp_path: Path) -> None:
    """Two servers start on one database and 32 clients dispatch, submit and read through both: nothing is refused."""
    servers = [Server(pooler.url, tmp_path / f"{number}.log", {"STEPPLANE_LOG_LEVEL": "warning"}) for number in (1, 2)]
    try:
        async with AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(httpx.AsyncClient(base_url=server.url, timeout=60))
                for server in servers
            ]
            pipeline = await Pipeline.create(clients[0])
            waiting = iter(range(ROUNDS))
            answers = Counter[int]()
            await asyncio.gather(
                *(_work(clients[number % 2], pipeline, waiting, answers) for number in range(_CLIENTS))
            )
            assert answers == {201: ROUNDS, 204: ROUNDS, 200: 2 * ROUNDS}
            status = parsed(await clients[1].get("/v1/status"))
            assert (status["pooler"], status["counts"]["outputs"]) == (True, ROUNDS)
        assert not "".join(server.log.split("listens on")[0] for server in servers).count("Traceback")
    finally:
        for server in servers:
            server.stop()


async def _work(http: httpx.AsyncClient, pipeline: Pipeline, waiting: Iterator[int], answers: Counter[int]) -> None:
    for number in waiting:
        dispatched = await http.post(f"/v1/runs/{pipeline.run_id}/steps", json={"ref": f"s{number}", "directive": "go"})
        answers[dispatched.status_code] += 1
        body = json.dumps({"number": number})
        submitted = await http.post("/v1/worker/submit", content=body, headers=bearer(dispatched.json()))
        answers[submitted.status_code] += 1
        for tail in ("", "/content"):
            answers[(await http.get(pipeline.url(f"s{number}", tail))).status_code] += 1
        assert json.loads(await pipeline.content(f"s{number}")) == {"number": number}


@pytest.mark.parametrize("what", ["pooler", "cluster"])
async def test_service_goes_on_after_a_restart(what: str, pooler: PgBouncer, cluster: Cluster, tmp_path: Path) -> None:
    """While the pooler or its server is away every answer is 503 with ``Retry-After``; then service goes on."""
    part: PgBouncer | Cluster = pooler if what == "pooler" else cluster
    server = Server(pooler.url, tmp_path / "server.log", {"STEPPLANE_LOG_LEVEL": "warning"})
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
                await asyncio.to_thread(part.stop)
                await until(lambda: load.refused.keys() == everybody)
                load.served_at_last.clear()
                await asyncio.to_thread(part.start)
                await until(lambda: load.served_at_last == everybody)
                load.is_over = True
            for name, numbers in load.acknowledged.items():
                assert json.loads(await pipeline.content(name))["number"] >= numbers[-1]
    finally:
        server.stop()


@pytest.mark.parametrize("through", ["pooler", "cluster"])
async def test_a_search_path_holds_for_each_read_and_write(
    through: str, pooler: PgBouncer, cluster: Cluster, tmp_path: Path
) -> None:
    """What ``options`` sets holds for migrations, writes and reads alike, be a pooler in between or not."""
    await _execute(cluster.url, "CREATE SCHEMA app")
    where = {"pooler": pooler.url, "cluster": cluster.url}[through]
    server = Server(f"{where}?options=-csearch_path%3Dapp&application_name=stepplane", tmp_path / "server.log")
    try:
        async with httpx.AsyncClient(base_url=server.url) as http:
            pipeline = await Pipeline.create(http)
            await pipeline.output("step", {"a": 1})
            assert json.loads(await pipeline.content("step")) == {"a": 1}
            assert parsed(await http.get("/v1/status"))["pooler"] is (through == "pooler")
    finally:
        server.stop()
    connection = await asyncpg.connect(cluster.url)
    try:
        tables = "SELECT schemaname, count(*) FROM pg_tables WHERE schemaname IN ('app', 'public') GROUP BY 1"
        assert dict(await connection.fetch(tables)).keys() == {"app"}
        assert await connection.fetchval("SELECT count(*) FROM app.outputs") == 1
    finally:
        await connection.close()


async def test_a_pooler_is_found_by_itself(pooler: PgBouncer, cluster: Cluster) -> None:
    """A connection through a pooler keeps no statement; a direct one does, unless the URL says that one is there."""
    direct, told = f"{cluster.url}?sslmode=disable", f"{cluster.url}?pgbouncer=true"
    kinds = {url: await _kind(url) for url in (pooler.url, direct, told)}
    assert kinds == {pooler.url: True, direct: False, told: True}


async def test_one_address_may_change_what_it_leads_to(pooler: PgBouncer, cluster: Cluster) -> None:
    """The next connection is judged anew: an address that led to the server may lead to a pooler later."""
    connector = Connector(parse_database_url(cluster.url))
    await (await connector.connect()).close()
    assert not connector.is_pooled
    connector._arguments["port"] = pooler.port
    connection = await connector.connect()
    assert is_pooled(connection)
    await connection.close()


async def test_a_session_of_one_kind_is_asked_for_through_a_pooler(pooler: PgBouncer) -> None:
    """``target_session_attrs`` is judged in a transaction, which asks and answers on one connection."""
    assert await _kind(f"{pooler.url}?target_session_attrs=read-write")


async def _kind(url: str) -> bool:
    connection = await Connector(parse_database_url(url)).connect()
    try:
        return is_pooled(connection)
    finally:
        await connection.close()


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
