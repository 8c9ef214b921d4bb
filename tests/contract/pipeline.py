"""A pipeline as its orchestrator and its workers drive it: one task and one of its runs, over HTTP alone.

The invariant: every method but :meth:`Pipeline.get` asserts that the server said yes, and returns what it said.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from fastapi import FastAPI

from app.api.steps import DebugPlane
from app.config import Settings
from app.main import create_app

one_database = pytest.mark.parametrize("dialect", ["sqlite"])
"""Marks a law of HTTP alone, which no database can change: once is enough."""

Dispatched = dict[str, Any]
"""What the server answered to a dispatch: ``step_id``, ``attempt``, ``name``, ``worker_handle`` and so on."""


class Pipeline:
    """One run of one task.

    Args:
        http: a client on the application; its own headers (an operator's bearer) are sent along.
        created: what the server answered when the task was created.
        run_id: the run; None for the one that was kicked with the task.
    """

    def __init__(self, http: httpx.AsyncClient, created: dict[str, Any], run_id: str | None = None) -> None:
        self.http = http
        self.created = created
        self.task_id: str = created["task_id"]
        self.run_id: str = run_id or created["run_id"] or "latest"

    @classmethod
    async def create(cls, http: httpx.AsyncClient, blueprint: Any = None, **fields: Any) -> "Pipeline":
        """Create a task, with a Blueprint or without, and by default its first run."""
        document = fields | ({} if blueprint is None else {"blueprint": blueprint})
        return cls(http, parsed(await http.post("/v1/tasks", content=dumped(document)), 201))

    async def another_run(self) -> "Pipeline":
        """Kick another run of the same task."""
        run = parsed(await self.http.post(f"/v1/tasks/{self.task_id}/runs"), 201)
        return Pipeline(self.http, self.created, run["id"])

    # --- the orchestrator's side -------------------------------------------------------------------

    async def dispatch(self, ref: str, directive: Any = "go", **fields: Any) -> Dispatched:
        """Dispatch a step."""
        document = {"ref": ref, "directive": directive, **fields}
        dispatched: Dispatched = parsed(
            await self.http.post(f"/v1/runs/{self.run_id}/steps", content=dumped(document)), 201
        )
        return dispatched

    async def retry(self, dispatched: Dispatched, **fields: Any) -> Dispatched:
        """Dispatch the next attempt of a step."""
        return await self.dispatch(dispatched["step_ref"], retry_of=dispatched["step_id"], **fields)

    async def finish(self, status: str = "done", **fields: Any) -> dict[str, Any]:
        """End the run; ``result`` may be given, also as None."""
        answer = await self.http.post(f"/v1/runs/{self.run_id}/finish", content=dumped({"status": status, **fields}))
        summary: dict[str, Any] = parsed(answer)
        return summary

    async def record(self) -> dict[str, Any]:
        """Look at the run, whole."""
        record: dict[str, Any] = parsed(await self.http.get(f"/v1/runs/{self.run_id}"))
        return record

    async def entries(self) -> list[dict[str, Any]]:
        """List every dispatch of the run."""
        entries: list[dict[str, Any]] = parsed(await self.http.get(f"/v1/runs/{self.run_id}/steps"))["steps"]
        return entries

    # --- the worker's side -------------------------------------------------------------------------

    async def submit(self, dispatched: Dispatched, body: bytes | str, **query: Any) -> None:
        """Submit a raw body as the step's OUTPUT."""
        answer = await self.http.post("/v1/worker/submit", content=body, params=query, headers=bearer(dispatched))
        assert answer.status_code == 204, answer.text

    async def result(self, dispatched: Dispatched, value: Any, **fields: Any) -> None:
        """Submit a JSON value as the step's OUTPUT, as it is."""
        document = {"task_id": dispatched["step_id"], "value": value, **fields}
        answer = await self.http.post("/v1/worker/result", content=dumped(document), headers=bearer(dispatched))
        assert answer.status_code == 204, answer.text

    async def stage(self, dispatched: Dispatched, name: str, body: bytes | str) -> None:
        """Stage a named part."""
        answer = await self.http.post(
            "/v1/worker/artifact", content=body, params={"name": name}, headers=bearer(dispatched)
        )
        assert answer.status_code == 204, answer.text

    async def emit(self, dispatched: Dispatched, event: dict[str, Any], **fields: Any) -> str:
        """Append an event to the store, and return its id."""
        document = {
            "task_id": dispatched["step_id"],
            "attempt": dispatched["attempt"],
            "producer_agent": dispatched["step_ref"],
            "event": event,
            **fields,
        }
        answer = await self.http.post("/v1/data/emit", content=dumped(document), headers=bearer(dispatched))
        out_id: str = parsed(answer)["out_id"]
        return out_id

    async def prompt(self, dispatched: Dispatched) -> dict[str, Any]:
        """Fetch a worker's prompt."""
        prompt: dict[str, Any] = parsed(await self.http.get("/v1/worker/prompt", headers=bearer(dispatched)))
        return prompt

    async def output(self, ref: str, value: Any, **fields: Any) -> Dispatched:
        """Dispatch a step and submit a JSON value as its OUTPUT."""
        dispatched = await self.dispatch(ref, **fields)
        await self.result(dispatched, value)
        return dispatched

    # --- the debug plane ---------------------------------------------------------------------------

    @property
    def steps_url(self) -> str:
        """Where the run's steps are."""
        return f"/v1/tasks/{self.task_id}/runs/{self.run_id}/steps"

    def url(self, name: str, tail: str = "") -> str:
        """Write where a step of the run is; ``tail`` may be ``/content``."""
        return f"{self.steps_url}/{quoted(name)}{tail}"

    async def get(self, name: str | None = None, tail: str = "", /, **query: Any) -> httpx.Response:
        """Ask the debug plane, and return the answer whatever it is; no name asks for the list."""
        url = self.steps_url if name is None else self.url(name, tail)
        return await self.http.get(url, params=query or None)

    async def steps(self) -> list[dict[str, Any]]:
        """List the summaries of the run."""
        steps: list[dict[str, Any]] = parsed(await self.get())["steps"]
        return steps

    async def names(self) -> list[str]:
        """List the names of the run."""
        return [step["name"] for step in await self.steps()]

    async def step(self, name: str, /, **query: Any) -> dict[str, Any]:
        """Look at one step."""
        summary: dict[str, Any] = parsed(await self.get(name, **query))
        return summary

    async def content(self, name: str, /, **query: Any) -> bytes:
        """Fetch the bytes of one step."""
        answer = await self.get(name, "/content", **query)
        assert answer.status_code == 200, answer.text
        return answer.content


def step_node(ref: str, out: str) -> dict[str, Any]:
    """Write a step node of a flow."""
    return {"kind": "step", "ref": ref, "in": {"op": "path", "at": "$.in"}, "out": {"op": "path", "at": out}}


def blueprint_of(*steps: tuple[str, str], names: dict[str, str] | None = None, **fields: Any) -> dict[str, Any]:
    """Write a Blueprint of steps one after the other, each a ref and its ``out`` path, with declared names by ref."""
    return {
        "id": "pipeline",
        "flow": {"kind": "seq", "children": [step_node(ref, out) for ref, out in steps]},
        "agents": [{"name": ref, "meta": {"projection_name": name}} for ref, name in (names or {}).items()],
        **fields,
    }


def bearer(dispatched: Dispatched) -> dict[str, str]:
    """Write the header of a worker."""
    return {"Authorization": f"Bearer {dispatched['worker_handle']}"}


def quoted(name: str) -> str:
    """Percent-encode a name as one segment of a path, by the rule of RFC 3986 and not by the server's code."""
    return name.replace(".", "%2E") if name in {".", ".."} else quote(name, safe="")


@asynccontextmanager
async def serving(application: Settings | FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """Start an application, and give a client on it."""
    app = create_app(application) if isinstance(application, Settings) else application
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as http,
    ):
        yield http


def plane_of(app: Any) -> Any:
    """Find the debug plane in the stack of an application."""
    layer = app.outer
    while not isinstance(layer, DebugPlane):
        layer = layer._app
    return layer


def dumped(document: Any) -> bytes:
    """Write JSON; a lone surrogate as its escape."""
    return json.dumps(document).encode()


def parsed(answer: httpx.Response, status: int = 200) -> Any:
    """Return what the server said, which must be a yes."""
    assert answer.status_code == status, f"{answer.request.method} {answer.request.url}: {answer.text}"
    return json.loads(answer.content)


def code_of(answer: httpx.Response) -> tuple[int, str]:
    """Return the status and the code of an error."""
    return answer.status_code, json.loads(answer.content)["code"]
