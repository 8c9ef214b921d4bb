"""Queries: a list costs the same number of statements whatever its length, and loads no body.

Source: contract §3, "Lists never load outputs"; §2, "without rendering or loading the body".
"""

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import create_async_engine

from app.services.recent import Recent
from app.storage.tables import metadata
from app.storage.urls import parse_database_url
from tests.contract.pipeline import Pipeline, parsed, plane_of

BODIES = re.compile(r"\bbodies\b")


class Statements:
    """Notes every statement that is sent to the database on a reading connection."""

    def __init__(self, app: FastAPI, database_url: str) -> None:
        self.database_url = database_url
        self.database: Any = plane_of(app)._query._database
        self.sent: list[str] = []
        plane_of(app)._recent = Recent(lambda: None)  # every read is a first one

    async def of(self, http: httpx.AsyncClient, url: str, status: int = 200, **headers: str) -> tuple[list[str], Any]:
        """Return the statements of one read, and what it answered."""
        await asyncio.sleep(0)  # what the turn shared is given back
        assert self.database._readers._idle
        for reader in self.database._readers._idle:
            if self.database.kind == "sqlite":
                reader._connection.set_trace_callback(self._note)
            elif not isinstance(reader.connection, _Noted):
                reader.connection = _Noted(reader.connection, self.sent)
        self.sent.clear()
        answer = await http.get(url, headers=headers)
        assert answer.status_code == status, answer.text
        assert self.sent  # the counting itself works
        return list(self.sent), answer

    def _note(self, statement: str) -> None:
        if statement not in {"BEGIN", "COMMIT"}:  # one a turn of the loop, and a long list has turns
            self.sent.append(statement)


class _Noted:
    """An asyncpg connection that notes what is fetched by it."""

    def __init__(self, connection: Any, sent: list[str]) -> None:
        self._connection = connection
        self._sent = sent

    async def fetch(self, statement: str, *given: Any) -> Any:
        self._sent.append(statement)
        return await self._connection.fetch(statement, *given)

    async def fetchrow(self, statement: str, *given: Any) -> Any:
        self._sent.append(statement)
        return await self._connection.fetchrow(statement, *given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


@pytest.fixture
def statements(app: FastAPI, database_url: str) -> Statements:
    return Statements(app, database_url)


async def multiplied(statements: Statements, tables: tuple[str, ...], marker: str, count: int) -> None:
    """Copy the row that bears the marker in each table until there are ``count``, each with its own number."""
    url = parse_database_url(statements.database_url)
    engine = create_async_engine(url.async_url)
    async with engine.begin() as connection:
        for table in (metadata.tables[name] for name in tables):
            (row,) = [row for row in (await connection.execute(select(table))).mappings() if any(_bears(row, marker))]
            keys = [row[column] for column in ("id", "step_id", "handle_sha256") if row.get(column)] + [marker]
            copied = {column: value for column, value in row.items() if column != "seq"}
            copies = [
                {column: _numbered(value, keys, number) for column, value in copied.items()}
                for number in range(1, count)
            ]
            await connection.execute(insert(table), copies)
    await engine.dispose()


def _bears(row: Any, marker: str) -> Iterator[bool]:
    return (isinstance(value, str) and marker in value for value in row.values())


def _numbered(value: Any, keys: list[str], number: int) -> Any:
    """Put the number in the place of the last five characters of every key that the text holds.

    Of a key that is random hex, a mark keeps it from meeting the one that it is made from.
    """
    if isinstance(value, bytes):
        return _numbered(value.decode(), keys, number).encode()
    if isinstance(value, str):
        for key in keys:
            made = f"{number:05}" if key.endswith("00000") else f"x{number:04}"
            value = value.replace(key, key[:-5] + made)
    return value


async def test_a_list_takes_as_many_statements_whatever_its_length(
    client: httpx.AsyncClient, statements: Statements
) -> None:
    """For ten steps or a thousand, lists of steps and dispatches send as many statements, and none reads a body."""
    few, many = await Pipeline.create(client), await Pipeline.create(client)
    for run, marker, count in ((few, "few-00000", 10), (many, "step-00000", 1000)):
        await run.output(marker, {"a": "body"})
        await multiplied(statements, ("dispatches", "outputs", "projections"), marker, count)
    for run in (few, many):  # prepares what is prepared once
        await client.get(run.steps_url)
        await client.get(f"/v1/runs/{run.run_id}/steps")
    for path in ("/v1/tasks/{task}/runs/{run}/steps", "/v1/tasks/{task}/runs/latest/steps", "/v1/runs/{run}/steps"):
        sent = {}
        for run, count in ((few, 10), (many, 1000)):
            url = path.format(task=run.task_id, run=run.run_id)
            sent[count], answer = await statements.of(client, url)
            assert len(parsed(answer)["steps"]) == count
            assert not any(map(BODIES.search, sent[count])), sent[count]
        assert len(sent[10]) == len(sent[1000]) <= 5, sent
    listed = await many.steps()
    assert [step["name"] for step in listed] == [f"step-{number:05}" for number in range(1000)]
    assert listed[500] == await many.step("step-00500")
    assert await many.content("step-00500") == b'{\n  "a": "body"\n}'


async def test_pages_of_tasks_and_runs(client: httpx.AsyncClient, statements: Statements) -> None:
    """A page of ten or of five hundred tasks or runs sends the same statements, none of which reads a body."""
    pipeline = await Pipeline.create(client)
    await pipeline.output("s", "x" * 10_000)
    await pipeline.finish(result="y" * 10_000)
    extra = await Pipeline.create(client, goal="step-00000")
    await multiplied(statements, ("tasks",), "step-00000", 500)
    await multiplied(statements, ("runs",), extra.run_id, 500)
    for route, key in (("/v1/tasks", "tasks"), ("/v1/runs", "runs"), ("/v1/runs?status=running", "runs")):
        sent = {}
        for limit in (10, 500):
            url = f"{route}{'&' if '?' in route else '?'}limit={limit}"
            await client.get(url)
            sent[limit], answer = await statements.of(client, url)
            assert len(parsed(answer)[key]) == limit
            assert not any(map(BODIES.search, sent[limit])), sent[limit]
        assert len(sent[10]) == len(sent[500]) <= 2, sent
    sent_for_one, answer = await statements.of(client, f"/v1/tasks/{pipeline.task_id}")
    assert [run["status"] for run in parsed(answer)["runs"]] == ["done"]
    assert not any(map(BODIES.search, sent_for_one))


async def test_what_a_client_has_is_not_loaded_again(client: httpx.AsyncClient, statements: Statements) -> None:
    """A 304 or a HEAD of content reads no body, in whatever form it is asked for; only a GET of new bytes does."""
    pipeline = await Pipeline.create(client)
    dispatched = await pipeline.output("s", {"a": "b"})
    await pipeline.stage(dispatched, "part.md", "text")
    await pipeline.finish(result={"r": [1]})
    for name, query in (
        *(("s", query) for query in ("", "?format=json", "?format=raw", "?attempt=1&occurrence=1", "?path=$.a")),
        *(("part.md", query) for query in ("", "?format=json", "?format=raw")),
        *(("r", query) for query in ("", "?path=$[0]")),
        ("_ctx", ""),
    ):
        url = pipeline.url(name, f"/content{query}")
        sent, answer = await statements.of(client, url)
        assert any(map(BODIES.search, sent)), url
        tags = {"If-None-Match": answer.headers["etag"]}
        sent, answer = await statements.of(client, url, 304, **tags)
        assert not any(map(BODIES.search, sent)), url
        assert len(sent) <= 3
        statements.sent.clear()
        assert (await client.head(url)).headers["etag"] == tags["If-None-Match"]
        assert statements.sent
        assert not any(map(BODIES.search, statements.sent)), url
