"""Tickets: a long system prompt is opened by the address that the prompt gives, and by no other without a bearer."""

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from app.domain.errors import Unauthenticated
from app.services.access import Access
from app.storage.opening import open_database
from app.storage.urls import parse_database_url
from tests.contract.pipeline import Dispatched, Pipeline, code_of, parsed

LONG = "You are thorough. " * 2_000


@pytest.fixture
async def pipeline(client: httpx.AsyncClient) -> Pipeline:
    return await Pipeline.create(client)


async def _asked(pipeline: Pipeline, **fields: Any) -> tuple[Dispatched, str]:
    """Dispatch a step with a long system prompt; return it with the address of that."""
    dispatched = await pipeline.dispatch("ask", system=LONG, **fields)
    uri: str = (await pipeline.prompt(dispatched))["system_ref"]["uri"]
    return dispatched, uri


async def test_the_address_alone_opens_the_prompt(pipeline: Pipeline) -> None:
    """A GET of the ``uri`` without any bearer answers the bytes that its digest is of."""
    _, uri = await _asked(pipeline)
    assert (await pipeline.http.get(uri)).text == LONG


async def test_a_ticket_outlives_the_end_of_the_run(pipeline: Pipeline) -> None:
    """A ticket reads as its handle does: also after the run has ended."""
    _, uri = await _asked(pipeline)
    await pipeline.finish()
    assert (await pipeline.http.get(uri)).text == LONG


async def test_a_ticket_opens_one_prompt(pipeline: Pipeline) -> None:
    """The ticket of one attempt opens no other attempt's prompt, nor another step's."""
    first, uri = await _asked(pipeline)
    ticket = parse_qs(urlsplit(uri).query)["ticket"][0]
    await pipeline.retry(first, system=LONG)
    other, _ = await _asked(pipeline)
    for step_id, attempt in ((first["step_id"], 2), (other["step_id"], 1), ("ST-none", 1)):
        query: dict[str, Any] = {"task_id": step_id, "attempt": attempt, "ticket": ticket}
        answer = await pipeline.http.get("/v1/worker/prompt/system", params=query)
        assert code_of(answer) == (401, "unauthenticated"), query


@pytest.mark.parametrize("ticket", ["", "0" * 32, "é", "\x00", "0" * 5_000])
async def test_a_wrong_ticket_opens_nothing(pipeline: Pipeline, ticket: str) -> None:
    """Whatever is no ticket of this attempt is 401, and the answer does not repeat it."""
    dispatched, _ = await _asked(pipeline)
    query: dict[str, Any] = {"task_id": dispatched["step_id"], "attempt": 1, "ticket": ticket}
    answer = await pipeline.http.get("/v1/worker/prompt/system", params=query)
    assert code_of(answer) == (401, "unauthenticated")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert not ticket or ticket not in answer.text


async def test_a_ticket_names_its_prompt(pipeline: Pipeline) -> None:
    """Without the step and the attempt that it is for, a ticket opens nothing."""
    _, uri = await _asked(pipeline)
    ticket = uri.partition("ticket=")[2]
    for query in (f"ticket={ticket}", f"attempt=1&ticket={ticket}", f"task_id=ST-1&attempt=x&ticket={ticket}"):
        assert code_of(await pipeline.http.get(f"/v1/worker/prompt/system?{query}")) == (401, "unauthenticated")


async def test_a_ticket_is_good_for_nothing_else(pipeline: Pipeline) -> None:
    """No other worker route takes a ticket in a bearer's place, and the prompt's own route takes none to write."""
    _, uri = await _asked(pipeline)
    query = urlsplit(uri).query
    for method, path in (("GET", "/v1/worker/prompt"), ("POST", "/v1/worker/submit"), ("POST", urlsplit(uri).path)):
        assert code_of(await pipeline.http.request(method, f"{path}?{query}"))[0] == 401


async def test_without_a_ticket_the_bearer_is_needed(pipeline: Pipeline) -> None:
    """The address without its ticket is 401 to who shows no bearer."""
    _, uri = await _asked(pipeline)
    assert code_of(await pipeline.http.get(uri.partition("&ticket=")[0])) == (401, "unauthenticated")


async def test_a_ticket_ends_with_its_handle(pipeline: Pipeline, database_url: str) -> None:
    """When the handle has expired, the ticket has too; and until then it stands for the same attempt."""
    dispatched, uri = await _asked(pipeline, ttl_seconds=60)
    ticket = uri.partition("ticket=")[2]
    database = open_database(parse_database_url(database_url))
    moment = datetime.now(UTC)
    try:
        before = Access(database, None, clock=lambda: moment)
        assert (await before.ticket_holder(dispatched["step_id"], 1, ticket)).step_id == dispatched["step_id"]
        after = Access(database, None, clock=lambda: moment + timedelta(seconds=61))
        with pytest.raises(Unauthenticated, match="expired"):
            await after.ticket_holder(dispatched["step_id"], 1, ticket)
    finally:
        await database.close()


async def test_a_ticket_ends_with_its_run(pipeline: Pipeline) -> None:
    """When the run is deleted, its tickets open nothing."""
    _, uri = await _asked(pipeline)
    assert (await pipeline.http.delete(f"/v1/runs/{pipeline.run_id}?force=true")).status_code == 204
    assert code_of(await pipeline.http.get(uri)) == (401, "unauthenticated")


async def test_the_prompt_keeps_its_ticket(pipeline: Pipeline) -> None:
    """The same attempt has the same address at each fetch, so that who compares prompts sees no change."""
    dispatched, uri = await _asked(pipeline)
    assert (await pipeline.prompt(dispatched))["system_ref"]["uri"] == uri
    assert parsed(await pipeline.http.get(f"/v1/runs/{pipeline.run_id}"))["status"] == "running"
