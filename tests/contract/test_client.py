"""The client against the app itself, and against servers that misbehave."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from app.client import ClientError, DigestMismatch, ServerError, StepplaneClient, Unreachable
from app.domain.rendering import Narrowing, render_json
from app.domain.values import Found

NAMES = ["plan", "a/b", "a b?c#d%e", "計画", "..", ".", "content", "steps", "audit:planner", "%2F", 'q"uote', "-x"]
BLUEPRINT: dict[str, Any] = {
    "id": "two-steps",
    "flow": {
        "kind": "seq",
        "children": [
            {"kind": "step", "ref": "plan", "in": {"op": "path", "at": "$.in"}, "out": {"op": "path", "at": "$.draft"}},
            {"kind": "step", "ref": "code", "in": {"op": "path", "at": "$.draft"}, "out": {"op": "path", "at": "$.c"}},
        ],
    },
    "agents": [{"name": "plan", "meta": {"projection_name": "the plan"}}, {"name": "code"}],
}


@pytest.fixture
async def operator(app: Any) -> AsyncIterator[StepplaneClient]:
    async with StepplaneClient("http://test", transport=httpx.ASGITransport(app)) as client:
        yield client


@pytest.fixture
def worker_of(app: Any) -> Callable[[dict[str, Any]], StepplaneClient]:
    def made(dispatched: dict[str, Any]) -> StepplaneClient:
        return StepplaneClient("http://test", dispatched["worker_handle"], httpx.ASGITransport(app))

    return made


Worker = Callable[[dict[str, Any]], StepplaneClient]


async def _submitted(
    operator: StepplaneClient, worker_of: Worker, run_id: str, ref: str, body: bytes, **dispatch: Any
) -> dict[str, Any]:
    dispatched: dict[str, Any] = await operator.dispatch(run_id, ref, "do it", **dispatch)
    async with worker_of(dispatched) as worker:
        await worker.submit(body)
    return dispatched


async def _new_task(operator: StepplaneClient, **document: Any) -> tuple[str, str]:
    task = await operator.create_task({"goal": "test", **document})
    return task["task_id"], task["run_id"]


class TestWholeApi:
    async def test_a_step_is_dispatched_done_and_looked_at(self, operator: StepplaneClient, worker_of: Worker) -> None:
        """Each method does what its route does, from the task to the finished run."""
        task = await operator.create_task({"goal": "all of it", "blueprint": BLUEPRINT, "start": False})
        assert task["run_id"] is None
        task_id = task["task_id"]
        await operator.start_run(task_id)
        run_id = (await operator.get_task(task_id))["runs"][0]["id"]
        dispatched = await operator.dispatch(
            run_id, "plan", {"why": 1}, system="be brief", ctx={"k": "v"}, ttl_seconds=60
        )
        async with worker_of(dispatched) as worker:
            prompt = await worker.worker_prompt(dispatched["step_id"])
            assert (prompt["prompt"], prompt["system"], prompt["agent"]) == ('{"why":1}', "be brief", "plan")
            assert prompt["context"]["extra"] == {"k": "v"}
            await worker.stage_artifact("notes & more.txt", b"a part")
            await worker.submit(b'{"list": [1, 2]}', ok=True)
        summary = await operator.get_step(task_id, "plan")
        assert summary["name"] == "the plan"
        assert [step["name"] for step in (await operator.list_steps(task_id))["steps"]] == [
            "notes & more.txt",
            "the plan",
        ]
        assert (await operator.get_content(task_id, "notes & more.txt")).body == b"a part"
        assert (await operator.get_run(run_id))["step_entries"][0]["status"] == "passed"
        assert (await operator.finish(run_id, "done", Found({"c": 3})))["status"] == "done"
        assert (await operator.get_run(run_id))["result_ref"] == {"c": 3}

    async def test_pointers_lead_a_worker_to_earlier_outputs(
        self, operator: StepplaneClient, worker_of: Worker
    ) -> None:
        """A worker follows its prompt's pointers with its own handle, and the digests hold."""
        _, run_id = await _new_task(operator, blueprint=BLUEPRINT)
        await _submitted(operator, worker_of, run_id, "plan", b'{"x": "y"}')
        async with worker_of(await operator.dispatch(run_id, "code", "go")) as worker:
            (pointer,) = (await worker.worker_prompt())["context"]["steps"]
            assert (await worker.follow(pointer)).body == render_json({"x": "y"})
            summary = await worker.get_step_at(pointer["content_url"], Narrowing(path="$.x"))
            assert (await worker.follow(summary)).body == b'"y"'

    async def test_every_dispatch_of_a_run_is_listed(self, operator: StepplaneClient, worker_of: Worker) -> None:
        """The list of dispatches holds those in flight too."""
        _, run_id = await _new_task(operator)
        await _submitted(operator, worker_of, run_id, "one", b"1")
        await operator.dispatch(run_id, "two", "go")
        entries = (await operator.list_dispatches(run_id))["steps"]
        assert [(entry["name"], entry["status"]) for entry in entries] == [("one", "passed"), ("two", "dispatched")]

    async def test_blocked_and_retried(self, operator: StepplaneClient, worker_of: Worker) -> None:
        """A retry is the next attempt of the same step, and both stay to be read."""
        task_id, run_id = await _new_task(operator)
        first = await operator.dispatch(run_id, "check", "go")
        async with worker_of(first) as worker:
            await worker.submit(b'"no"', verdict="blocked")
        second = await operator.dispatch(run_id, "check", "again", retry_of=first["step_id"])
        async with worker_of(second) as worker:
            await worker.post_result(second["step_id"], 10**30, attempt=2)
        assert (second["step_id"], second["attempt"]) == (first["step_id"], 2)
        assert (await operator.get_step(task_id, "check", run_id, Narrowing(attempt=1)))["ok"] is False
        assert (await operator.get_content(task_id, "check")).body == b"1" + b"0" * 30

    async def test_pages_reach_everything_once(self, operator: StepplaneClient) -> None:
        """Following the cursors lists each task and each run once, newest first."""
        made = [await _new_task(operator) for _ in range(5)]
        for listing, key, column in ((operator.list_tasks, "tasks", 0), (operator.list_runs, "runs", 1)):
            seen, cursor = [], None
            while True:
                page = await listing(limit=2, cursor=cursor)
                seen += [item["id"] for item in page[key]]
                cursor = page["next_cursor"]
                if cursor is None:
                    break
            assert seen == [pair[column] for pair in reversed(made)]

    async def test_runs_are_listed_by_task_and_status(self, operator: StepplaneClient) -> None:
        """Both filters reach the server."""
        (task_id, run_id), _ = await _new_task(operator), await _new_task(operator)
        await operator.finish(run_id, "failed", error="on purpose")
        failed = await operator.list_runs(task_id=task_id, status="failed")
        assert [(run["id"], run["error"]) for run in failed["runs"]] == [(run_id, "on purpose")]
        assert (await operator.list_runs(task_id=task_id, status="done"))["runs"] == []

    async def test_a_deleted_run_is_gone(self, operator: StepplaneClient) -> None:
        """A running run needs force."""
        _, run_id = await _new_task(operator)
        with pytest.raises(ServerError) as refused:
            await operator.delete_run(run_id)
        assert refused.value.status == httpx.codes.CONFLICT
        await operator.delete_run(run_id, force=True)
        with pytest.raises(ServerError) as gone:
            await operator.get_run(run_id)
        assert gone.value.code == "run_not_found"

    async def test_a_null_result_is_a_result(self, operator: StepplaneClient) -> None:
        """``Found(None)`` sets a result of null; None sets none."""
        task_id, run_id = await _new_task(operator)
        await operator.finish(run_id, "done", Found(None))
        assert (await operator.get_content(task_id, "_ctx")).body == b"null"
        other_task_id, other_run_id = await _new_task(operator)
        await operator.finish(other_run_id, "done")
        with pytest.raises(ServerError):
            await operator.get_content(other_task_id, "_ctx")

    async def test_yaml_is_sent_as_it_is(self, operator: StepplaneClient) -> None:
        """A task can be created from the bytes of a YAML file."""
        task = await operator.create_task(b"goal: from YAML\nstart: false\n", "application/yaml")
        assert (await operator.get_task(task["task_id"]))["task"]["goal"] == "from YAML"

    async def test_the_app_is_recognised(self, operator: StepplaneClient) -> None:
        """A stepplane server says that it is one."""
        assert await operator.is_stepplane()


class TestContent:
    @pytest.mark.parametrize("name", NAMES)
    async def test_every_name_is_reached(self, operator: StepplaneClient, worker_of: Worker, name: str) -> None:
        """Whatever a name holds, the client's addresses and the server's own lead to it."""
        task_id, run_id = await _new_task(operator)
        await _submitted(operator, worker_of, run_id, name, b'{"me": 1}')
        summary = await operator.get_step(task_id, name, run_id)
        assert summary["name"] == name
        whole = await operator.get_content(task_id, name, run_id)
        assert whole.body == (await operator.follow(summary)).body == render_json({"me": 1})

    async def test_an_etag_that_holds_brings_no_body(self, operator: StepplaneClient, worker_of: Worker) -> None:
        """A second look with the ETag is a 304; a new OUTPUT brings its bytes."""
        task_id, run_id = await _new_task(operator)
        dispatched = await _submitted(operator, worker_of, run_id, "s", b"first")
        first = await operator.get_content(task_id, "s")
        again = await operator.get_content(task_id, "s", etag=first.etag)
        assert (again.not_modified, again.body, again.etag) == (True, b"", first.etag)
        async with worker_of(dispatched) as worker:
            await worker.submit(b"second")
        newer = await operator.get_content(task_id, "s", etag=first.etag)
        assert (newer.not_modified, newer.body) == (False, b'"second"')

    async def test_an_outline_leads_to_its_content(self, operator: StepplaneClient, worker_of: Worker) -> None:
        """Each path that an outline tells narrows the content to a value of the size that was told; pages go on."""
        task_id, run_id = await _new_task(operator)
        await _submitted(operator, worker_of, run_id, "a/b", b'{"x y": [1, 2], "z": null}')
        outline = await operator.get_outline(task_id, "a/b", run_id, limit=1)
        more = await operator.get_outline(task_id, "a/b", run_id, limit=1, cursor=outline["next_cursor"])
        children = [*outline["children"], *more["children"]]
        assert [child["key"] for child in children] == ["x y", "z"]
        for child in children:
            content = await operator.get_content(task_id, "a/b", run_id, Narrowing(child["path"]))
            assert len(content.body) == child["size_bytes"]
        inner = await operator.get_outline(task_id, "a/b", narrowing=Narrowing(children[0]["path"], attempt=1))
        assert [child["path"] for child in inner["children"]] == ['$["x y"][0]', '$["x y"][1]']

    async def test_a_stream_is_the_content(self, operator: StepplaneClient, worker_of: Worker) -> None:
        """Streaming yields the very bytes of the content, narrowed alike."""
        task_id, run_id = await _new_task(operator)
        await _submitted(operator, worker_of, run_id, "s", ("é" * 100_000).encode())
        raw = Narrowing(format="raw")
        streamed = b"".join([chunk async for chunk in operator.stream_content(task_id, "s", narrowing=raw)])
        content = await operator.get_content(task_id, "s", narrowing=raw)
        assert streamed == content.body == ("é" * 100_000).encode()
        assert content.content_type == "text/plain; charset=utf-8"


class TestErrors:
    async def test_the_one_error_shape_is_carried(self, operator: StepplaneClient) -> None:
        """Status, code, sentence, request id and details come through."""
        with pytest.raises(ServerError) as unknown:
            await operator.get_task("T-none")
        assert (unknown.value.status, unknown.value.code) == (404, "task_not_found")
        assert "T-none" in str(unknown.value)
        assert unknown.value.request_id
        with pytest.raises(ServerError) as invalid:
            await operator.create_task({"blueprint": {"id": "b", "flow": {"kind": "nonsense"}}})
        assert (invalid.value.code, bool(invalid.value.details)) == ("invalid_blueprint", True)

    async def test_a_stream_of_nothing_is_an_error(self, operator: StepplaneClient) -> None:
        """A stream raises before its first byte."""
        with pytest.raises(ServerError):
            await anext(operator.stream_content("T-none", "s"))

    @pytest.mark.parametrize(
        ("status", "body"),
        [
            (200, b"<html>"),
            (502, b"<html>"),
            (500, b'{"error": {"message": "x"}, "code": 1}'),
            (404, b"[]"),
            (307, b""),
        ],
    )
    async def test_another_kind_of_server_is_told_apart(self, status: int, body: bytes) -> None:
        """What is no answer of a stepplane server is called so."""
        async with _fake(lambda _: httpx.Response(status, content=body)) as client:
            with pytest.raises(ServerError) as error:
                await client.list_tasks()
            assert not await client.is_stepplane()
        assert (error.value.status, error.value.code) == (status, "unexpected_answer")

    async def test_other_bytes_than_the_digest_says_are_refused(self) -> None:
        """Neither a pointer nor an ETag lets other bytes through."""
        sha256 = hashlib.sha256(b"expected").hexdigest()
        tag = f'"sha256:{sha256}"'
        async with _fake(lambda _: httpx.Response(200, content=b"other", headers={"ETag": tag})) as client:
            with pytest.raises(DigestMismatch):
                await client.follow({"content_url": "/v1/tasks/T-1/runs/R-1/steps/s/content", "sha256": sha256})
            with pytest.raises(DigestMismatch):
                async for _ in client.stream_content("T-1", "s"):
                    pass

    async def test_the_bearer_stays_with_its_server(self) -> None:
        """A content URL of another host is asked of this client's own server, below its prefix."""
        asked: list[str] = []

        def answer(request: httpx.Request) -> httpx.Response:
            asked.append(str(request.url))
            assert request.headers["Authorization"] == "Bearer wh-secret"
            return httpx.Response(200, content=b"x")

        pointer = {"content_url": "https://elsewhere/v1/tasks/T/runs/R/steps/s%2Ft/content?path=%24"}
        async with _fake(answer, "http://own:1/prefix/", "wh-secret") as client:
            await client.follow({**pointer, "sha256": hashlib.sha256(b"x").hexdigest()})
            with pytest.raises(ClientError):
                await client.follow({"content_url": "https://elsewhere/steal", "sha256": ""})
        assert asked == ["http://own:1/prefix/v1/tasks/T/runs/R/steps/s%2Ft/content?path=%24"]

    @pytest.mark.parametrize(
        ("fault", "sentence"),
        [
            (httpx.ConnectError("refused"), "no server answers at http://own:1"),
            (httpx.ReadTimeout("slow"), "did not answer in time"),
            (httpx.RemoteProtocolError("cut"), "broke"),
        ],
    )
    async def test_a_server_that_cannot_be_reached_is_one_sentence(self, fault: Exception, sentence: str) -> None:
        """Whatever the network does is Unreachable, with the address and without the bearer."""

        def answer(_: httpx.Request) -> httpx.Response:
            raise fault

        async with _fake(answer, "http://own:1", "wh-secret") as client:
            with pytest.raises(Unreachable, match=sentence) as error:
                await client.list_tasks()
        assert "wh-secret" not in str(error.value)

    async def test_a_closed_port_is_unreachable(self, unused_port: int) -> None:
        """A real refused connection is told as such."""
        async with StepplaneClient(f"http://127.0.0.1:{unused_port}") as client:
            with pytest.raises(Unreachable):
                await client.is_stepplane()

    @pytest.mark.parametrize(
        "url", ["", "own:1", "ftp://own", "http://", "http://u:secret@own", "http://own?x", "http://own:x"]
    )
    def test_a_url_that_is_no_server_is_refused(self, url: str) -> None:
        """A bad URL is told before anything is sent, and not repeated."""
        with pytest.raises(ClientError) as error:
            StepplaneClient(url)
        assert "secret" not in str(error.value)

    @pytest.mark.parametrize("token", ["a b", "a\nb", "tök"])
    def test_a_token_that_cannot_travel_is_refused(self, token: str) -> None:
        """A bad token is told before anything is sent, and not repeated."""
        with pytest.raises(ClientError) as error:
            StepplaneClient("http://own", token)
        assert token not in str(error.value)

    async def test_a_name_that_no_url_can_hold_is_an_error_of_the_client(self) -> None:
        """Too long a name is a sentence, not a crash."""
        async with _fake(lambda _: httpx.Response(200)) as client:
            with pytest.raises(ClientError, match="no URL can hold"):
                await client.get_step("T-1", "x" * 70_000)


@pytest.fixture
async def unused_port() -> int:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return port


def _fake(
    answer: Callable[[httpx.Request], httpx.Response], base_url: str = "http://own:1", token: str | None = None
) -> StepplaneClient:
    return StepplaneClient(base_url, token, httpx.MockTransport(answer))
