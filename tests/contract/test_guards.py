"""Who may do what, contract §4 and §5: bearers, the operator's token, and a worker's view of its own run."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import httpx
import pytest
import structlog
from fastapi import FastAPI
from pydantic import SecretStr
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from app.config import Settings
from app.domain.limits import REPEATED_LINES
from app.main import create_app
from app.storage.urls import parse_database_url
from tests.contract.pipeline import Dispatched, Pipeline, bearer, blueprint_of, code_of, dumped, parsed, step_node

TOKEN = "an-operators-token-4711"
Bodies = dict[tuple[str, str], Callable[[Dispatched], tuple[Any, dict[str, str]]]]

EVENT = {"type": "progress", "stage": "s"}
WORKER_WRITES: Bodies = {
    ("post", "/v1/worker/submit"): lambda _: ("x", {}),
    ("post", "/v1/worker/result"): lambda step: (dumped({"task_id": step["step_id"], "value": 1}), {}),
    ("post", "/v1/worker/artifact"): lambda _: ("x", {"name": "part"}),
    ("post", "/v1/worker/degradation"): lambda _: (dumped({"tool": "t", "error": "e", "fallback": "f"}), {}),
    ("post", "/v1/worker/stats"): lambda _: (dumped({"model": "m"}), {}),
    ("post", "/v1/data/emit"): lambda step: (
        dumped({"task_id": step["step_id"], "attempt": 1, "producer_agent": step["step_ref"], "event": EVENT}),
        {},
    ),
    ("post", "/v1/data/{key}"): lambda step: (
        dumped({"task_id": step["step_id"], "attempt": 1, "event": EVENT}),
        {},
    ),
}
"""A good body for every write of a worker."""


def _nothing(_: Dispatched) -> tuple[Any, dict[str, str]]:
    return None, {}


def routes_of(app: FastAPI) -> list[tuple[str, str]]:
    """List every method and path of the OpenAPI document."""
    return [(method, path) for path, methods in app.openapi()["paths"].items() for method in methods]


def is_workers(method: str, path: str) -> bool:
    """Tell whether a worker's handle is this route's own bearer."""
    return path.startswith("/v1/worker/") or (path.startswith("/v1/data/") and method == "post")


async def raw_request(
    app: FastAPI, target: bytes, headers: Iterable[tuple[bytes, bytes]] = (), method: str = "GET", body: bytes = b""
) -> tuple[int, dict[str, str], bytes]:
    """Send a path as it stands, as a socket would, with no client that tidies it up."""
    path, _, query = target.partition(b"?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote_to_bytes(path).decode("utf-8", "replace"),
        "raw_path": path,
        "query_string": query,
        "headers": [(b"host", b"test"), *headers],
        "client": ("127.0.0.1", 1),
        "server": ("test", 80),
    }
    messages: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        messages.append(message)

    await app(scope, receive, send)
    start = messages[0]
    told = {key.decode(): value.decode() for key, value in start["headers"]}
    return start["status"], told, b"".join(message.get("body", b"") for message in messages[1:])


def shows(*credentials: str) -> list[tuple[str, str]]:
    """Write Authorization headers."""
    return [("Authorization", each) for each in credentials]


def refuses(answer: httpx.Response) -> bool:
    """Tell whether an answer is a 401 as it has to be."""
    return code_of(answer) == (401, "unauthenticated") and answer.headers["www-authenticate"] == "Bearer"


class OneDatabase:
    """Bearers are judged before the database is asked anything that the dialects could answer apart."""

    @pytest.fixture
    def dialect(self) -> str:
        """One database is enough."""
        return "sqlite"


class TestHandles(OneDatabase):
    """Worker handles, on every route that takes them."""

    async def test_every_write_of_a_worker_is_known_here(self, app: FastAPI) -> None:
        """The OpenAPI document has no worker's write that the tests of this file do not try."""
        assert {route for route in routes_of(app) if is_workers(*route) and route[0] != "get"} == set(WORKER_WRITES)

    async def test_no_bearer_that_is_unknown_gets_in(self, app: FastAPI, client: httpx.AsyncClient) -> None:
        """Missing, malformed or unknown: 401 with the challenge, on every worker route, and nothing is kept."""
        pipeline = await Pipeline.create(client)
        dispatched = await pipeline.dispatch("ask")
        handle = dispatched["worker_handle"]
        bad = [
            (), ("",), ("Bearer",), ("Bearer ",), (handle,), (f"Basic {handle}",), (f"Token {handle}",),
            (f"Bearer {handle}x",), (f"Bearer {handle[:-1]}",), (f"Bearer {handle.upper()}",), ("Bearer nothing",),
            (f"Bearer {handle} {handle}",), (f"Bearer,{handle}",), ("Bearer wh-" + "0" * 32,), ("Bearer null",),
            (f"Bearer {handle}", f"Bearer {handle}"), ("Bearer wh-%", f"Bearer {handle}"), (f"Bearer {handle}\xff",),
            (f"Bearer {dispatched['step_id']}",), (f"Bearer {TOKEN}",), ("Bearer ' OR 1=1 --",),
        ]  # fmt: skip
        for method, path in [route for route in routes_of(app) if is_workers(*route)]:
            content, query = WORKER_WRITES.get((method, path), _nothing)(dispatched)
            for given in bad:
                headers = [(key.encode(), value.encode("latin-1")) for key, value in shows(*given)]
                answer = await client.request(
                    method, path.replace("{key}", "ask"), content=content, params=query, headers=headers
                )
                assert refuses(answer), (method, path, given)
                assert handle not in answer.text
        assert await pipeline.steps() == []
        assert (await pipeline.record())["degradations"] == []

    async def test_the_scheme_may_be_written_in_any_case(self, client: httpx.AsyncClient) -> None:
        """``bearer`` and ``BEARER`` are the scheme too (RFC 9110 §11.1)."""
        dispatched = await (await Pipeline.create(client)).dispatch("ask")
        for scheme in ("bearer", "BEARER", "Bearer"):
            headers = {"Authorization": f"{scheme} {dispatched['worker_handle']}"}
            assert (await client.get("/v1/worker/prompt", headers=headers)).status_code == 200

    async def test_a_handle_is_bound_to_its_step_and_attempt(self, client: httpx.AsyncClient) -> None:
        """A request that names another step or attempt is 403, whether that one exists or not, and nothing is kept."""
        pipeline = await Pipeline.create(client)
        mine, other = await pipeline.dispatch("mine"), await pipeline.dispatch("other")
        second = await pipeline.retry(mine)
        step_id = mine["step_id"]

        def event(step: str, attempt: int) -> dict[str, Any]:
            return {"task_id": step, "attempt": attempt, "producer_agent": "mine", "event": EVENT}

        refused: list[tuple[str, str, Any]] = []
        for step, attempt in ((other["step_id"], 1), ("ST-unknown", 1), (step_id, 2), (step_id, 3)):
            refused += [
                ("post", "/v1/worker/result", {"task_id": step, "attempt": attempt, "value": 1}),
                ("post", "/v1/data/emit", event(step, attempt)),
                ("get", f"/v1/worker/prompt/system?task_id={step}&attempt={attempt}", None),
            ]
            if step != step_id:
                refused.append(("get", f"/v1/worker/prompt?task_id={step}", None))
        for method, url, document in refused:
            content = None if document is None else dumped(document)
            answer = await client.request(method, url, content=content, headers=bearer(mine))
            assert code_of(answer) == (403, "forbidden"), (url, document)
            assert "wh-" not in answer.text
        assert await pipeline.steps() == []
        await pipeline.result(second, "of the second", attempt=2)
        assert (await pipeline.step("mine"))["attempt"] == 2

    async def test_an_expired_handle_is_unknown(self, client: httpx.AsyncClient) -> None:
        """After its ``expires_at`` a handle is 401 on every worker route and on the debug plane; before it is not."""
        pipeline = await Pipeline.create(client)
        dispatched = await pipeline.dispatch("ask", ttl_seconds=1)
        await pipeline.submit(dispatched, "in time")
        expires_at = datetime.fromisoformat(dispatched["expires_at"])
        await asyncio.sleep((expires_at - datetime.now(UTC)).total_seconds() + 0.01)
        for (method, path), body in {**WORKER_WRITES, ("get", "/v1/worker/prompt"): _nothing}.items():
            content, query = body(dispatched)
            answer = await client.request(
                method, path.replace("{key}", "ask"), content=content, params=query, headers=bearer(dispatched)
            )
            assert refuses(answer), path
        assert refuses(await client.get(pipeline.steps_url, headers=bearer(dispatched)))
        assert json.loads(await pipeline.content("ask")) == "in time"
        assert len(await pipeline.steps()) == 1


class TestKeptHandles:
    """What the database keeps of a handle, and what a run's end does to it."""

    async def test_a_handle_is_kept_as_a_hash_alone(
        self, client: httpx.AsyncClient, database_url: str, tmp_path: Path
    ) -> None:
        """Nowhere in the database, nor in any file, stand the bytes of a handle, whatever was done with it."""
        work_dir = tmp_path / "work"
        work_dir.mkdir()
        pipeline = await Pipeline.create(client, work_dir=str(work_dir))
        dispatched = await pipeline.dispatch("ask", ctx={"k": "findable"})
        await pipeline.prompt(dispatched)
        await pipeline.submit(dispatched, "x")
        await pipeline.stage(dispatched, "part", "x")
        await pipeline.finish()
        assert (await client.post("/v1/worker/submit", headers=bearer(dispatched))).status_code == 410
        kept = await _dump(database_url) + b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
        secret = dispatched["worker_handle"].removeprefix("wh-").encode()
        assert b"findable" in kept
        assert dispatched["step_id"].encode() in kept
        assert secret not in kept
        assert bytes.fromhex(secret.decode()) not in kept

    async def test_a_terminal_run_takes_no_write_of_a_worker(self, client: httpx.AsyncClient) -> None:
        """Once the run is over every worker write is 410 ``run_finished`` and changes nothing; reads go on."""
        for status in ("done", "failed", "interrupted", "cancelled"):
            await self._is_over(client, status)

    @staticmethod
    async def _is_over(client: httpx.AsyncClient, status: str) -> None:
        pipeline = await Pipeline.create(client)
        dispatched = await pipeline.dispatch("ask")
        await pipeline.submit(dispatched, "before")
        await pipeline.finish(status, result={"r": 1})
        before = (await pipeline.record(), await pipeline.steps())
        for (method, path), body in WORKER_WRITES.items():
            content, query = body(dispatched)
            answer = await client.request(
                method, path.replace("{key}", "ask"), content=content, params=query, headers=bearer(dispatched)
            )
            assert code_of(answer) == (410, "run_finished"), path
        assert (await pipeline.record(), await pipeline.steps()) == before
        assert (await pipeline.prompt(dispatched))["agent"] == "ask"
        assert (await client.get(pipeline.steps_url, headers=bearer(dispatched))).status_code == 200


async def _dump(database_url: str) -> bytes:
    """Write every row of every table out; of bytes their hex as well as themselves."""
    url = parse_database_url(database_url)
    engine = create_async_engine(url.async_url)
    names = "SELECT name FROM sqlite_master WHERE type = 'table'"
    if not url.is_sqlite:
        names = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
    cells: list[bytes] = []
    try:
        async with engine.connect() as connection:
            for (table,) in (await connection.execute(text(names))).all():
                for row in (await connection.execute(text(f'SELECT * FROM "{table}"'))).all():  # noqa: S608
                    cells += [cell if isinstance(cell, bytes) else str(cell).encode() for cell in row]
    finally:
        await engine.dispose()
    return b"\n".join(cells)


class WithToken(OneDatabase):
    """A server with an operator token."""

    @pytest.fixture
    def settings(self, database_url: str) -> Settings:
        """Settings with a token."""
        return Settings(database_url=database_url, operator_token=SecretStr(TOKEN))

    @pytest.fixture
    async def operator(self, app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
        """A client that shows the token."""
        headers = {"Authorization": f"Bearer {TOKEN}"}
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers) as http:
            yield http


class TestOperatorToken(WithToken):
    """Deny by default."""

    async def test_every_route_denies_by_default(
        self, app: FastAPI, client: httpx.AsyncClient, operator: httpx.AsyncClient
    ) -> None:
        """No route of the OpenAPI document answers without a token, with a wrong one or a worker's; all do with it."""
        pipeline = await Pipeline.create(operator)
        dispatched = await pipeline.dispatch("ask")
        out_id = await pipeline.emit(dispatched, {"type": "partial", "chunk": "c"})
        await pipeline.submit(dispatched, "x")
        of_another = await (await pipeline.another_run()).dispatch("ask")
        place = {"task": pipeline.task_id, "run": pipeline.run_id, "step": "ask", "key": out_id, "out_id": out_id}
        strangers: list[list[tuple[str, str]]] = [
            [], shows(f"Bearer {TOKEN}x"), shows(f"Bearer {TOKEN[:-1]}"), shows(f"Bearer {TOKEN.upper()}"),
            shows(f"Basic {TOKEN}"), shows(TOKEN), shows("Bearer nothing"), shows("Bearer wh-" + "0" * 32),
            shows("Bearer"), shows(f"Bearer {TOKEN}", f"Bearer {TOKEN}"), [("Cookie", f"stepplane={TOKEN}")],
            [("X-Api-Key", TOKEN)], [("Authorization", f"Bearer {TOKEN}\x80".encode("latin-1").decode("latin-1"))],
        ]  # fmt: skip
        tried = 0
        for method, template in routes_of(app):
            if template == "/v1/healthz":
                continue
            url = re.sub(r"{(\w+)}", lambda match: place[match[1]], template)
            for headers in strangers:
                raw = [(key.encode(), value.encode("latin-1")) for key, value in headers]
                answer = await client.request(method, url, headers=raw)
                assert refuses(answer), (method, url, headers)
                assert TOKEN not in answer.text
                tried += 1
            is_output = template.startswith(("/v1/tasks/{task}/runs/{run}/steps", "/v1/data/"))
            if not is_workers(method, template):
                answer = await client.request(method, url, headers=bearer(of_another))
                expected = (404, "output_not_found") if template.startswith("/v1/data/") else (403, "forbidden")
                assert code_of(answer) == expected, (method, url)
                if not is_output:
                    answer = await client.request(method, url, headers=bearer(dispatched))
                    assert code_of(answer) == (403, "forbidden"), (method, url)
            if method == "delete" or is_workers(method, template):
                continue
            answer = await operator.request(method, url)
            assert answer.status_code not in {401, 403, 404, 405, 500}, (method, url, answer.text)
        assert tried > 200
        assert (await operator.delete(f"/v1/runs/{pipeline.run_id}?force=true")).status_code == 204

    async def test_what_is_not_in_the_document_is_denied_too(self, app: FastAPI, client: httpx.AsyncClient) -> None:
        """Hidden routes, unknown paths and other methods are 401 alike: nothing tells what exists."""
        targets = [
            ("GET", b"/openapi.json"), ("HEAD", b"/openapi.json"), ("GET", b"/docs"), ("GET", b"/redoc"), ("GET", b"/"),
            ("GET", b"/metrics"), ("GET", b"/v1/status"), ("GET", b"/nowhere"), ("GET", b""), ("GET", b"*"),
            ("OPTIONS", b"/v1/tasks"), ("PUT", b"/v1/tasks"), ("PATCH", b"/v1/runs/R-1"), ("TRACE", b"/v1/tasks"),
            ("HEAD", b"/v1/tasks"), ("HEAD", b"/v1/tasks/T-1/runs/latest/steps"), ("CONNECT", b"/v1/tasks"),
            ("GET", b"/v1/worker"), ("GET", b"/v1/workers/prompt"), ("GET", b"/V1/worker/prompt"),
            ("GET", b"/static/x"),
        ]  # fmt: skip
        for method, target in targets:
            status, headers, body = await raw_request(app, target, method=method)
            assert (status, headers["www-authenticate"]) == (401, "Bearer"), (method, target)
            if method != "HEAD":
                assert json.loads(body)["code"] == "unauthenticated"
        assert (await client.get("/v1/healthz")).text == "ok"

    async def test_healthz_alone_is_public(self, app: FastAPI) -> None:
        """Only ``/v1/healthz`` itself answers without a token; nothing that looks like it or ends like it does."""
        for target in (b"/v1/healthz", b"/v1/healthz?_x=1", b"/v1/%68ealthz"):
            status, _, body = await raw_request(app, target)
            assert (status, body) == (200, b"ok"), target
        for target in (
            b"/v1/healthz/", b"//v1/healthz", b"/v1//healthz", b"/v1/./healthz", b"/v1/healthz%2F..", b"/v1/healthz/.",
            b"/v1/healthz%00", b"/v1/healthz%2f", b"/v1/healthz/../tasks", b"/v1/tasks/../healthz", b"/v1/healthz;x",
            b"/v1/healthz.json", b"/v1/Healthz", b"/healthz", b"/v1%2Fhealthz", b"/v1/healthz%20",
            b"/v1/tasks?/v1/healthz",
            b"/v1/tasks%3F/v1/healthz", b"/v1/tasks#/v1/healthz", b"/v1/tasks/healthz", b"/v1/runs/healthz",
            b"/metrics/v1/healthz",
            b"http://test/v1/healthz", b"/v1/healthz\\", b"/v1/worker/../tasks", b"/v1/healthz/../../v1/tasks",
        ):  # fmt: skip
            status, headers, body = await raw_request(app, target)
            assert (status, headers.get("www-authenticate")) == (401, "Bearer"), (target, body)
        status, _, _ = await raw_request(app, b"/v1/healthz", method="POST")
        assert status == 405

    @pytest.mark.parametrize("name", ["health", "healthz", "ready", "v1/healthz", "readyz"])
    async def test_a_step_called_health_needs_the_token(
        self, app: FastAPI, operator: httpx.AsyncClient, name: str
    ) -> None:
        """A step that is called like a public route is none: without the token it is 401, with it, it is served."""
        pipeline = await Pipeline.create(operator)
        await pipeline.output(name, "secret")
        for tail in ("", "/content"):
            target = pipeline.url(name, tail).encode()
            for spelled in (target, target.replace(b"%2F", b"/")):
                status, _, body = await raw_request(app, spelled)
                assert status == 401, spelled
                assert b"secret" not in body
        assert json.loads(await pipeline.content(name)) == "secret"

    async def test_the_operator_is_no_worker(self, operator: httpx.AsyncClient) -> None:
        """A worker route takes a worker's handle alone; the operator's token is none."""
        dispatched = await (await Pipeline.create(operator)).dispatch("ask")
        assert refuses(await operator.get("/v1/worker/prompt"))
        assert refuses(await operator.post("/v1/worker/submit", content="x"))
        assert (await operator.get("/v1/worker/prompt", headers=bearer(dispatched))).status_code == 200

    async def test_no_body_is_read_before_the_bearer_was_judged(
        self, app: FastAPI, client: httpx.AsyncClient, operator: httpx.AsyncClient
    ) -> None:
        """On every route that takes a body, not one byte of it is read for a stranger, nor for the wrong bearer."""
        dispatched = await (await Pipeline.create(operator)).dispatch("ask")

        async def never() -> AsyncIterator[bytes]:
            for _ in range(1):
                pytest.fail("the body was read")
            yield b""

        for method, template in routes_of(app):
            if method not in {"post", "put", "patch"}:
                continue
            url = re.sub(r"{\w+}", "x", template)
            for headers in ({}, {"Authorization": "Bearer nothing"}, {"Authorization": f"Bearer wh-{'0' * 32}"}):
                sent: dict[str, str] = {**headers, "Content-Length": str(10**12)}
                for each in (headers, sent):
                    assert refuses(await client.request(method, url, content=never(), headers=each)), url
            if not is_workers(method, template):
                answer = await client.request(method, url, content=never(), headers=bearer(dispatched))
                assert code_of(answer) == (403, "forbidden"), url

    async def test_no_secret_is_told_by_an_error_or_a_log_line(
        self,
        app: FastAPI,
        client: httpx.AsyncClient,
        operator: httpx.AsyncClient,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Whatever goes wrong, neither token nor handle stands in an answer or in a log event."""
        monkeypatch.setattr("app.api.repeats.REPEATED_LINES", REPEATED_LINES._replace(value=1_000))  # each has its line
        pipeline = await Pipeline.create(operator)
        dispatched = await pipeline.dispatch("ask", "the directive", system="the system")
        handle = dispatched["worker_handle"]
        caplog.set_level("DEBUG", "app.access")  # reads that went well are told at that level alone
        with structlog.testing.capture_logs() as events:
            answers = [
                await client.request(method, re.sub(r"{\w+}", "x", path), content=content, headers=headers)
                for method, path in routes_of(app)
                for content in (None, b"{", b"\xff")
                for headers in (shows(f"Bearer {TOKEN}"), shows(f"Bearer {handle}"), shows(f"Basic {TOKEN}:{handle}"))
            ]
            await pipeline.submit(dispatched, "x", ok=False)
            await pipeline.finish()
            answers.append(await client.post("/v1/worker/submit", headers=bearer(dispatched)))
        assert {answer.status_code for answer in answers} >= {400, 401, 403, 404, 410, 422}
        for answer in answers:
            told = answer.text + str(answer.headers)
            assert TOKEN not in told
            assert handle not in told
        assert len(events) >= len(answers)
        logged = repr(events)
        assert TOKEN not in logged
        assert handle not in logged
        assert handle.removeprefix("wh-") not in logged


class TestWorkersView(WithToken):
    """A worker handle on the debug plane."""

    @pytest.fixture
    async def pipeline(self, operator: httpx.AsyncClient) -> Pipeline:
        """A run with a reader that may see the plan, and a censor that may see all but the plan."""
        blueprint = blueprint_of(("plan", "$.draft"), ("code", "$.code"))
        blueprint["flow"]["children"] += [step_node("reader", "$.reader"), step_node("censor", "$.censor")]
        blueprint["agents"] = [
            {"name": "plan", "meta": {"projection_name": "the plan"}},
            {"name": "reader", "meta": {"context_policy": {"steps": ["draft"]}}},
            {"name": "censor", "meta": {"context_policy": {"steps_exclude": ["plan"]}}},
        ]
        pipeline = await Pipeline.create(operator, blueprint)
        plan = await pipeline.output("plan", {"plan": 1})
        await pipeline.stage(plan, "plan-part.md", "part of the plan")
        code = await pipeline.output("code", {"code": 1})
        await pipeline.stage(code, "code-part.md", "part of the code")
        return pipeline

    async def _statuses(self, pipeline: Pipeline, client: httpx.AsyncClient, dispatched: Dispatched) -> dict[str, int]:
        statuses: dict[str, int] = {}
        for name in ("the plan", "plan", "draft", "code", "reader", "censor", "plan-part.md", "code-part.md", "none"):
            found = {
                (await client.request(method, pipeline.url(name, tail), headers=bearer(dispatched))).status_code
                for method in ("GET", "HEAD")
                for tail in ("", "/content", "?attempt=1", "/content?format=json", "/content?path=")
            }
            assert len(found) == 1, (name, found)
            statuses[name] = found.pop()
        return statuses

    async def test_a_worker_reads_what_its_policy_allows(self, pipeline: Pipeline, client: httpx.AsyncClient) -> None:
        """Of its run a worker reads the steps of its policy, their parts, and its own, by any name; all else is 403."""
        reader = await pipeline.dispatch("reader")
        await pipeline.submit(reader, "mine")
        await pipeline.output("censor", "of the censor")
        assert await self._statuses(pipeline, client, reader) == {
            "the plan": 200, "plan": 200, "draft": 200, "plan-part.md": 200, "reader": 200,
            "code": 403, "code-part.md": 403, "censor": 403, "none": 403,
        }  # fmt: skip
        listed = parsed(await client.get(pipeline.steps_url, headers=bearer(reader)))
        assert [step["name"] for step in listed["steps"]] == ["plan-part.md", "reader", "the plan"]
        whole = {step["name"]: step for step in await pipeline.steps()}
        assert all(step == whole[step["name"]] for step in listed["steps"])
        assert len(whole) == 6

    async def test_what_is_excluded_is_hidden_by_every_name(
        self, pipeline: Pipeline, client: httpx.AsyncClient
    ) -> None:
        """An excluded step is 403 by each of its names, and so are its parts and the whole result that holds it."""
        censor = await pipeline.dispatch("censor")
        await pipeline.submit(censor, "mine")
        statuses = await self._statuses(pipeline, client, censor)
        assert statuses == {
            "the plan": 403, "plan": 403, "draft": 403, "plan-part.md": 403,
            "code": 200, "code-part.md": 200, "reader": 404, "censor": 200, "none": 404,
        }  # fmt: skip
        listed = parsed(await client.get(pipeline.steps_url, headers=bearer(censor)))
        assert [step["name"] for step in listed["steps"]] == ["censor", "code", "code-part.md"]
        pointers = (await pipeline.prompt(censor))["context"]["steps"]
        assert [pointer["name"] for pointer in pointers] == ["code", "code-part.md"]
        await pipeline.finish(result={"draft": "the plan's", "code": 2})
        answer = await client.get(pipeline.url("_ctx", "/content"), headers=bearer(censor))
        assert code_of(answer) == (403, "forbidden")
        assert (await pipeline.get("_ctx")).status_code == 200

    async def test_a_refusal_does_not_tell_what_is_there(self, pipeline: Pipeline, client: httpx.AsyncClient) -> None:
        """A step that may not be seen answers alike whether it has an OUTPUT, exists, or not."""
        reader = await pipeline.dispatch("reader")
        told = set()
        for name in ("code", "censor", "none", "code-part.md"):
            answer = await client.get(pipeline.url(name), headers=bearer(reader))
            told.add((answer.status_code, answer.json()["error"], answer.json()["code"]))
        assert len(told) == 1

    async def test_a_worker_reads_its_own_run_alone(self, pipeline: Pipeline, client: httpx.AsyncClient) -> None:
        """Another run of its task, another task, or none that exists: 403 alike; ``latest`` counts as what it is."""
        reader = await pipeline.dispatch("reader")
        assert (await client.get(f"/v1/tasks/{pipeline.task_id}/runs/latest/steps", headers=bearer(reader))).is_success
        another = await pipeline.another_run()
        await another.output("plan", "of another run")
        elsewhere = await Pipeline.create(pipeline.http)
        await elsewhere.output("the plan", "of another task")
        urls = [
            another.steps_url, another.url("plan"), another.url("plan", "/content"),
            elsewhere.steps_url, elsewhere.url("the plan", "/content"),
            f"/v1/tasks/{pipeline.task_id}/runs/latest/steps", f"/v1/tasks/{pipeline.task_id}/runs/latest/steps/plan",
            f"/v1/tasks/{elsewhere.task_id}/runs/{pipeline.run_id}/steps", "/v1/tasks/T-none/runs/R-none/steps",
            f"/v1/tasks/{pipeline.task_id}/runs/R-none/steps", f"/v1/tasks/T-none/runs/{pipeline.run_id}/steps/plan",
        ]  # fmt: skip
        told = set()
        for url in urls:
            answer = await client.get(url, headers=bearer(reader))
            assert code_of(answer) == (403, "forbidden"), url
            told.add(answer.json()["error"])
        assert len(told) == 1
        assert (await client.get(pipeline.steps_url, headers=bearer(reader))).is_success

    async def test_a_worker_writes_nothing_beside_its_own_routes(
        self, pipeline: Pipeline, client: httpx.AsyncClient
    ) -> None:
        """Dispatching, finishing, deleting, creating and listing are the operator's, in the worker's own run too."""
        reader = await pipeline.dispatch("reader")
        run = f"/v1/runs/{pipeline.run_id}"
        for method, url in [
            ("POST", "/v1/tasks"), ("GET", "/v1/tasks"), ("GET", f"/v1/tasks/{pipeline.task_id}"), ("GET", run),
            ("POST", f"/v1/tasks/{pipeline.task_id}/runs"), ("GET", f"{run}/steps"), ("POST", f"{run}/steps"),
            ("POST", f"{run}/finish"), ("DELETE", f"{run}?force=true"), ("POST", pipeline.steps_url),
            ("DELETE", pipeline.url("plan")), ("PUT", pipeline.url("plan", "/content")), ("GET", "/openapi.json"),
            ("GET", "/v1/status"), ("GET", "/metrics"), ("GET", f"{pipeline.steps_url}/"), ("GET", "/v1/data"),
        ]:  # fmt: skip
            answer = await client.request(method, url, headers=bearer(reader))
            assert code_of(answer) == (403, "forbidden"), (method, url)
        assert (await pipeline.record())["status"] == "running"


class TestWithoutToken(OneDatabase):
    """A server on loopback without an operator token."""

    async def test_a_page_of_another_origin_writes_nothing(self, client: httpx.AsyncClient) -> None:
        """A write that a foreign page makes a browser send is 403 before its body is read; reads go on."""
        pipeline = await Pipeline.create(client)

        async def never() -> AsyncIterator[bytes]:
            for _ in range(1):
                pytest.fail("the body was read")
            yield b""

        run = f"/v1/runs/{pipeline.run_id}"
        writes = [("POST", "/v1/tasks"), ("POST", f"{run}/steps"), ("POST", f"{run}/finish"), ("DELETE", run)]
        foreign = ["http://evil.example", "https://evil.example", "http://test:8080", "http://test.evil.example"]
        foreign += ["null", "", "http://", "http://[", "file://", "http://evil@test", "test", "http://test/"]
        for origin in foreign:
            for method, url in writes:
                answer = await client.request(method, url, content=never(), headers={"Origin": origin})
                assert code_of(answer) == (403, "forbidden"), origin
        assert (await pipeline.record())["status"] == "running"
        assert len(parsed(await client.get("/v1/tasks", headers={"Origin": foreign[0]}))["tasks"]) == 1
        answer = await client.post("/v1/tasks", content=b"{}", headers={"Origin": "http://test"})
        assert answer.status_code == 201
        assert not any(name.startswith("access-control") for name in answer.headers)
        assert (await client.post("/v1/tasks", content=b"{}")).status_code == 201

    async def test_a_page_whose_own_name_leads_here_reads_and_writes_nothing(self, client: httpx.AsyncClient) -> None:
        """DNS rebinding: a browser's request under a stranger's domain name is 403; one's own names are served."""
        pipeline = await Pipeline.create(client)
        for host in (
            "evil.example",
            "evil.example:7777",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "a.test.",
        ):
            for browser in ({"Accept-Language": "en"}, {"Sec-Fetch-Site": "same-origin"}, {"Origin": f"http://{host}"}):
                for method, url in (("GET", pipeline.steps_url), ("GET", "/v1/tasks"), ("POST", "/v1/tasks")):
                    answer = await client.request(method, url, headers={"Host": host, **browser})
                    assert code_of(answer) == (403, "forbidden"), (host, browser, url)
        for host in ("127.0.0.1:7777", "localhost:7777", "[::1]:7777", "test", "stepplane:7777", "192.0.2.7"):
            headers = {"Host": host, "Accept-Language": "en", "Origin": f"http://{host}"}
            assert (await client.post("/v1/tasks", content=b"{}", headers=headers)).status_code == 201, host
            assert (await client.get(pipeline.steps_url, headers=headers)).status_code == 200

    async def test_a_bearer_that_is_unknown_is_refused_all_the_same(self, client: httpx.AsyncClient) -> None:
        """Without a token nobody has to show one; who shows one that is unknown is 401 and not the operator."""
        await Pipeline.create(client)
        for given in ("Bearer nothing", f"Bearer {TOKEN}", "Basic x", "Bearer wh-" + "0" * 32):
            assert refuses(await client.get("/v1/tasks", headers={"Authorization": given}))
        assert (await client.get("/v1/tasks")).status_code == 200

    async def test_a_handle_narrows_what_its_bearer_may_do(self, client: httpx.AsyncClient) -> None:
        """A worker's handle is a worker's handle on an open server too: it reads its own run, and nothing else."""
        pipeline = await Pipeline.create(client)
        dispatched = await pipeline.output("ask", 1)
        assert (await client.get(pipeline.url("ask"), headers=bearer(dispatched))).status_code == 200
        for url in ("/v1/tasks", f"/v1/runs/{pipeline.run_id}", (await Pipeline.create(client)).steps_url):
            assert code_of(await client.get(url, headers=bearer(dispatched))) == (403, "forbidden")


class TestAddress(OneDatabase):
    """On which addresses a server may listen, and which files it then touches."""

    def test_the_projection_roots_follow_the_address(self, tmp_path: Path) -> None:
        """Unset roots allow any directory on loopback and none beyond; set ones hold everywhere."""
        for host in ("127.0.0.1", "localhost", "::1"):
            assert Settings(host=host).allowed_roots is None
        for host in ("0.0.0.0", "::", "192.0.2.1", "example.org"):
            assert Settings(host=host).allowed_roots == ()
            given = Settings(host=host, projection_roots=[tmp_path])
            assert given.allowed_roots == (tmp_path,)

    async def test_beyond_loopback_no_file_is_written_without_roots(self, database_url: str, work_dir: Path) -> None:
        """A server that listens beyond loopback keeps outputs in its store alone, unless it was given roots."""
        application = create_app(Settings(database_url=database_url, host="0.0.0.0", insecure=True))
        async with (
            application.router.lifespan_context(application),
            httpx.AsyncClient(transport=httpx.ASGITransport(application), base_url="http://test") as http,
        ):
            pipeline = await Pipeline.create(http, work_dir=str(work_dir))
            dispatched = await pipeline.output("ask", 1)
            await pipeline.stage(dispatched, "part", "x")
            assert "ctx_projection" not in dispatched
            assert all("file_path" not in step for step in await pipeline.steps())
        assert list(work_dir.iterdir()) == []
