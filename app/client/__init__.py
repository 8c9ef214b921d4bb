"""The async client of a stepplane server: orchestrating, reading the debug plane, being a worker.

The invariant: every answer is the server's JSON or bytes as they came; whatever else happens is a :class:`ClientError`.
"""

import hashlib
from collections.abc import AsyncGenerator, Mapping
from typing import Self

import httpx

from app.client.connection import RAW_TYPE, Connection, Content, query_of
from app.client.errors import ClientError, DigestMismatch, ServerError, Unreachable
from app.domain.ids import LATEST
from app.domain.rendering import (
    JSON_TYPE,
    WHOLE,
    Narrowing,
    compact_json,
    content_path,
    etag_of,
    quote_segment,
    steps_path,
)
from app.domain.values import Found, JsonValue

__all__ = ["ClientError", "Content", "DigestMismatch", "ServerError", "StepplaneClient", "Unreachable"]

TIMEOUT_SECONDS = 30.0


class StepplaneClient:
    """One server, with one bearer: the operator token, or the handle of one worker.

    Each method can raise :class:`Unreachable` and :class:`ServerError`.
    """

    def __init__(
        self,
        base_url: str,
        token: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        """Make a client; nothing is sent yet.

        Args:
            base_url: ``http(s)://host[:port][/prefix]`` of the server.
            token: the bearer, if any.
            transport: replaces the network, for instance ``httpx.ASGITransport(app)``.
            timeout_seconds: how long each connect, read and write may take.

        Raises:
            ClientError: the URL is none of a server, or the token could not travel in a header.
        """
        self._connection = Connection(base_url, token, transport, timeout_seconds)
        self.base_url = self._connection.base_url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._connection.aclose()

    async def is_stepplane(self) -> bool:
        """Tell whether what answers there is a healthy stepplane server."""
        async with self._connection.answer("GET", "/v1/healthz", checked=False) as response:
            return response.status_code == httpx.codes.OK and await response.aread() == b"ok"

    # --- the orchestrator's side -----------------------------------------------------------------

    async def create_task(self, document: Mapping[str, JsonValue] | bytes, media_type: str = JSON_TYPE) -> JsonValue:
        """Create a task, and kick its first run unless its ``start`` is false; bytes are sent as they are."""
        body = document if isinstance(document, bytes) else compact_json(dict(document))
        return await self._connection.send("POST", "/v1/tasks", body, media_type)

    async def list_tasks(self, *, limit: int | None = None, cursor: str | None = None) -> JsonValue:
        """List tasks, newest first: one page and the cursor of the next."""
        return await self._connection.get("/v1/tasks" + query_of(limit=limit, cursor=cursor))

    async def get_task(self, task_id: str) -> JsonValue:
        """Get a task and its runs."""
        return await self._connection.get(f"/v1/tasks/{quote_segment(task_id)}")

    async def start_run(self, task_id: str) -> JsonValue:
        """Kick a new run of a task."""
        return await self._connection.send("POST", f"/v1/tasks/{quote_segment(task_id)}/runs")

    async def list_runs(
        self,
        *,
        task_id: str | None = None,
        status: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> JsonValue:
        """List runs, newest first: one page and the cursor of the next."""
        query = query_of(task_id=task_id, status=status, limit=limit, cursor=cursor)
        return await self._connection.get("/v1/runs" + query)

    async def get_run(self, run_id: str) -> JsonValue:
        """Get a run, whole."""
        return await self._connection.get(_run_address(run_id))

    async def delete_run(self, run_id: str, *, force: bool = False) -> None:
        """Remove a run and its outputs; ``force`` also a running one."""
        await self._connection.send("DELETE", _run_address(run_id) + query_of(force="true" if force else None))

    async def list_dispatches(self, run_id: str) -> JsonValue:
        """List every dispatch of a run in order, those in flight too."""
        return await self._connection.get(_run_address(run_id) + "/steps")

    async def dispatch(
        self,
        run_id: str,
        ref: str,
        directive: JsonValue,
        *,
        system: str | None = None,
        ctx: Mapping[str, JsonValue] | None = None,
        retry_of: str | None = None,
        ttl_seconds: int | None = None,
    ) -> JsonValue:
        """Dispatch a step; the answer holds the worker's handle, which is told this once."""
        given = {"system": system, "ctx": ctx, "retry_of": retry_of, "ttl_seconds": ttl_seconds}
        document = {"ref": ref, "directive": directive} | {key: item for key, item in given.items() if item is not None}
        return await self._connection.post(_run_address(run_id) + "/steps", document)

    async def finish(
        self, run_id: str, status: str, result: Found | None = None, error: str | None = None
    ) -> JsonValue:
        """End a run; ``Found(None)`` is a result of null, None is no result."""
        document: dict[str, JsonValue] = {"status": status}
        if result is not None:
            document["result"] = result.value
        if error is not None:
            document["error"] = error
        return await self._connection.post(_run_address(run_id) + "/finish", document)

    # --- the debug plane -------------------------------------------------------------------------

    async def list_steps(self, task_id: str, run_id: str = LATEST) -> JsonValue:
        """List the outputs of a run, ascending by name."""
        return await self._connection.get(steps_path(task_id, run_id))

    async def get_step(self, task_id: str, name: str, run_id: str = LATEST, narrowing: Narrowing = WHOLE) -> JsonValue:
        """Get the summary of one output by its name or an alias."""
        return await self._connection.get(_summary_address(content_path(task_id, run_id, name, narrowing)))

    async def get_step_at(self, content_url: str, narrowing: Narrowing = WHOLE) -> JsonValue:
        """Get the summary of the step that a pointer's content URL leads to, narrowed anew."""
        address = _own_address(content_url).partition("?")[0]
        return await self._connection.get(_summary_address(address) + query_of(**narrowing._asdict()))

    async def get_outline(
        self,
        task_id: str,
        name: str,
        run_id: str = LATEST,
        narrowing: Narrowing = WHOLE,
        *,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> JsonValue:
        """Get one page of what is inside an output: types, sizes, and the paths to narrow it by."""
        query = narrowing._asdict() | {"limit": limit, "cursor": cursor}
        return await self._connection.get(_outline_address(task_id, run_id, name) + query_of(**query))

    async def get_content(
        self,
        task_id: str,
        name: str,
        run_id: str = LATEST,
        narrowing: Narrowing = WHOLE,
        etag: str | None = None,
    ) -> Content:
        """Get the bytes of one output, unless ``etag`` is still its tag."""
        return await self._connection.content(content_path(task_id, run_id, name, narrowing), etag)

    async def stream_content(
        self, task_id: str, name: str, run_id: str = LATEST, narrowing: Narrowing = WHOLE
    ) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of one output as they come, however many.

        Raises:
            DigestMismatch: after the last of them, when they are not those that the ETag names.
        """
        digest = hashlib.sha256()
        async with self._connection.answer("GET", content_path(task_id, run_id, name, narrowing)) as response:
            async for chunk in response.aiter_bytes():
                digest.update(chunk)
                yield chunk
            if response.headers.get("etag") != etag_of(digest.hexdigest()):
                raise DigestMismatch(str(response.url), response.headers.get("etag", "none"), digest.hexdigest())

    async def follow(self, pointer: Mapping[str, JsonValue]) -> Content:
        """Get what a pointer, or a step's summary, points at, and check it against the digest there.

        Raises:
            DigestMismatch: the bytes are others.
        """
        content = await self._connection.content(_own_address(pointer["content_url"]))
        actual = hashlib.sha256(content.body).hexdigest()
        if actual != pointer["sha256"]:
            raise DigestMismatch(pointer["content_url"], pointer["sha256"], actual)
        return content

    # --- the worker's side -----------------------------------------------------------------------

    async def worker_prompt(self, step_id: str | None = None) -> JsonValue:
        """Get what the bearer's step is to do, with pointers to the outputs it may see."""
        return await self._connection.get("/v1/worker/prompt" + query_of(task_id=step_id))

    async def submit(self, body: bytes, *, ok: bool | None = None, verdict: str | None = None) -> None:
        """Submit the OUTPUT of the bearer's step as a raw body."""
        query = query_of(ok=None if ok is None else str(ok).lower(), verdict=verdict)
        await self._connection.send("POST", "/v1/worker/submit" + query, body, RAW_TYPE)

    async def stage_artifact(self, name: str, body: bytes) -> None:
        """Stage a named part of the bearer's step, before it submits."""
        await self._connection.send("POST", "/v1/worker/artifact" + query_of(name=name), body, RAW_TYPE)

    async def post_result(self, step_id: str, value: JsonValue, *, ok: bool = True, attempt: int | None = None) -> None:
        """Submit the OUTPUT of the bearer's step as a JSON value, kept as it is."""
        document = {"task_id": step_id, "value": value, "ok": ok} | ({} if attempt is None else {"attempt": attempt})
        await self._connection.post("/v1/worker/result", document)


def _run_address(run_id: str) -> str:
    return f"/v1/runs/{quote_segment(run_id)}"


def _summary_address(content_address: str) -> str:
    path, mark, query = content_address.partition("?")
    return path.removesuffix("/content") + mark + query


def _outline_address(task_id: str, run_id: str, name: str) -> str:
    return f"{steps_path(task_id, run_id)}/{quote_segment(name)}/outline"


def _own_address(content_url: str) -> str:
    """Take the address under this client's own server out of a content URL.

    The server writes content URLs from its own base URL, by which this client may not reach it, or from ``/``. Only the
    path is taken, so that the bearer never travels to another host.
    """
    start = content_url.find("/v1/tasks/")
    if start < 0:
        raise ClientError(f"{content_url!r} is no content URL of a stepplane server")
    return content_url[start:]
