"""The orchestrator's side: tasks, runs, dispatches, finishing and deleting, and the values that travel through them.

Source: contract §3.
"""

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from sqlalchemy import func, make_url, select
from sqlalchemy.ext.asyncio import create_async_engine

from app.domain.rendering import render_json
from app.storage.tables import metadata
from tests.contract.pipeline import Pipeline, bearer, blueprint_of, code_of, dumped, parsed, step_node

ENTRY = [
    "step_id",
    "step_ref",
    "name",
    "status",
    "attempt",
    "occurrence",
    "started_at",
    "completed_at",
    "duration_ms",
    "worker_kind",
    "model",
    "usage",
]
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
YAML = {"Content-Type": "application/yaml; charset=utf-8"}


async def post(http: httpx.AsyncClient, url: str, document: Any) -> httpx.Response:
    return await http.post(url, content=dumped(document))


class TestTasks:
    async def test_create(self, client: httpx.AsyncClient) -> None:
        """A task is answered with its Location, its first run, and the names of its steps in flow order."""
        blueprint = blueprint_of(("planner", "$.plan"), ("code", "$.out.code"), names={"planner": "the plan"})
        for document in (blueprint, {"kind": "inline", "value": blueprint}):
            answer = await post(client, "/v1/tasks", {"goal": "g", "blueprint": document, "init_ctx": [1]})
            created = parsed(answer, 201)
            assert answer.headers["location"] == f"/v1/tasks/{created['task_id']}"
            assert list(created) == ["task_id", "run_id", "status", "steps", "warnings"]
            assert re.fullmatch("T-[0-9a-f]{16}", created["task_id"])
            assert re.fullmatch("R-[0-9a-f]{16}", created["run_id"])
            assert (created["status"], created["warnings"]) == ("running", [])
            assert created["steps"] == [
                {"step_ref": "planner", "name": "the plan", "aliases": ["plan", "planner"]},
                {"step_ref": "code", "name": "code", "aliases": ["code", "out"]},
            ]
            found = parsed(await client.get(answer.headers["location"]))
            assert list(found) == ["task", "runs"]
            assert (found["task"]["blueprint"], found["task"]["init_ctx"]) == (blueprint, [1])
            assert [run["id"] for run in found["runs"]] == [created["run_id"]]

    async def test_without_a_start_there_is_no_run(self, client: httpx.AsyncClient) -> None:
        """``start: false`` kicks nothing; each run that is kicked later is answered with its own Location."""
        created = parsed(await post(client, "/v1/tasks", {"start": False}), 201)
        assert (created["run_id"], created["status"], created["steps"]) == (None, "pending", [])
        url = f"/v1/tasks/{created['task_id']}"
        found = parsed(await client.get(url))
        assert (found["runs"], found["task"]["status"], found["task"]["latest_run_id"]) == ([], "pending", None)
        ids = []
        for _ in range(2):
            answer = await client.post(f"{url}/runs")
            run = parsed(answer, 201)
            assert answer.headers["location"] == f"/v1/runs/{run['id']}"
            assert (run["task_id"], run["status"], run["error"]) == (created["task_id"], "running", None)
            ids.append(run["id"])
        found = parsed(await client.get(url))
        assert [run["id"] for run in found["runs"]] == ids[::-1]
        assert (found["task"]["status"], found["task"]["latest_run_id"]) == ("running", ids[1])
        assert code_of(await client.post("/v1/tasks/T-0/runs")) == (404, "task_not_found")
        assert code_of(await client.get("/v1/tasks/T-0")) == (404, "task_not_found")
        assert code_of(await client.get("/v1/tasks/R-0")) == (400, "invalid_id")

    async def test_yaml_is_json_in_other_words(self, client: httpx.AsyncClient) -> None:
        """A YAML body makes the same task as its JSON; what YAML alone would read into a word stays that word."""
        document = {
            "goal": "yes",
            "task_metadata": {"when": "2026-01-02", "no": "off", "n": 10**30, "f": 1.5, "none": None, "é": [True]},
            "blueprint": blueprint_of(("a", "$.a")),
        }
        text = yaml.safe_dump(document, allow_unicode=True)
        plain = text.replace("'2026-01-02'", "2026-01-02").replace("'off'", "off").replace("'no'", "no")
        plain = plain.replace("'yes'", "yes")
        assert plain != text
        tasks = []
        for body, headers in ((dumped(document), {}), (text.encode(), YAML), (plain.encode(), YAML)):
            created = parsed(await client.post("/v1/tasks", content=body, headers=headers), 201)
            tasks.append(parsed(await client.get(f"/v1/tasks/{created['task_id']}"))["task"])
        kept = [(task["goal"], task["task_metadata"], task["blueprint"]) for task in tasks]
        assert kept == [(document["goal"], document["task_metadata"], document["blueprint"])] * 3
        laughs = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "\n".join(
            f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 10)}]" for n in range(8)
        )
        for bad in (b"a: [", b"1: x", b"goal: !!python/object:os.system {}", b"goal: .nan", laughs.encode(), b"\xff"):
            assert code_of(await client.post("/v1/tasks", content=bad, headers=YAML)) == (400, "invalid_json"), bad

    async def test_an_odd_blueprint_is_warned_of(self, client: httpx.AsyncClient) -> None:
        """Two undeclared steps that claim one name make a warning, which names both and who keeps the name."""
        created = parsed(await post(client, "/v1/tasks", {"blueprint": blueprint_of(("a", "$.b"), ("b", "$.b"))}), 201)
        (warning,) = created["warnings"]
        assert '"a"' in warning
        assert '"b"' in warning
        assert [step["aliases"] for step in created["steps"]] == [["a"], ["b"]]

    async def test_what_is_wrong_is_told_with_its_place(self, client: httpx.AsyncClient) -> None:
        """A body that is no task is 422 and says where and what; nothing of it is kept."""
        lit = {"op": "lit", "value": 1}
        step = step_node("a", "$.a")
        flow_fault = {"kind": "seq", "children": [step, {"kind": "step", "ref": "", "in": lit, "out": lit}]}
        for document, code, path in (
            ({"goal": 1}, "invalid_request", "$.goal"),
            ({"golf": "x"}, "invalid_request", "$.golf"),
            ({"project_root": "relative/dir"}, "invalid_request", "$.project_root"),
            ({"work_dir": "./here"}, "invalid_request", "$.work_dir"),
            ({"work_dir": "/nul\x00"}, "invalid_request", "$.work_dir"),
            ({"start": "perhaps"}, "invalid_request", "$.start"),
            ({"goal": "\ud800"}, "invalid_request", "$.goal"),
            ([], "invalid_request", "$"),
            (None, "invalid_request", "$"),
            ("text", "invalid_request", "$"),
            ({"blueprint": 1}, "invalid_blueprint", "$"),
            ({"blueprint": {"id": "x"}}, "invalid_blueprint", "$.flow"),
            ({"blueprint": {"flow": step}}, "invalid_blueprint", "$.id"),
            ({"blueprint": {"id": "x", "flow": {"kind": "sequence"}}}, "invalid_blueprint", "$.flow.kind"),
            ({"blueprint": {"id": "x", "flow": flow_fault}}, "invalid_blueprint", "$.flow.children[1].ref"),
            ({"blueprint": {"id": "x", "flow": step, "agent": []}}, "invalid_blueprint", "$.agent"),
            ({"blueprint": {"kind": "inline", "value": {"id": "x", "flow": 1}}}, "invalid_blueprint", "$.flow"),
            (
                {"blueprint": {"id": "x", "flow": step, "projection_placement": {"dir_template": "../{task_id}"}}},
                "invalid_blueprint",
                "$.projection_placement.dir_template",
            ),
            (
                {"blueprint": {"id": "x", "flow": step, "agents": [{"name": "a", "meta": {"projection_nam": "p"}}]}},
                "invalid_blueprint",
                "$.agents[0].meta.projection_nam",
            ),
        ):
            answer = await post(client, "/v1/tasks", document)
            assert code_of(answer) == (422, code), document
            body = answer.json()
            assert [detail["path"] for detail in body["details"]] == [path], document
            assert body["details"][0]["message"] in body["error"]
        nearest = await post(client, "/v1/tasks", {"blueprint": {"id": "x", "flow": step, "agent": []}})
        assert '"agents"' in nearest.json()["error"]
        declared = blueprint_of(("a", "$.a"), ("b", "$.b"), names={"b": "a"})
        collision = await post(client, "/v1/tasks", {"blueprint": declared})
        assert code_of(collision) == (422, "step_naming_collision")
        details = collision.json()["details"]
        assert details == {"name": "a", "first_step_ref": "a", "second_step_ref": "b"}
        assert parsed(await client.get("/v1/tasks")) == {"tasks": [], "next_cursor": None}


class TestLists:
    async def test_paging_yields_each_task_once(self, client: httpx.AsyncClient) -> None:
        """Pages go from the newest to the oldest, each once, whatever is added while one reads."""
        ids = [(await Pipeline.create(client, goal=f"task {number}")).task_id for number in range(7)]
        assert [task["id"] for task in parsed(await client.get("/v1/tasks"))["tasks"]] == ids[::-1]
        for limit in (1, 2, 3, 7, 8, 500):
            seen: list[str] = []
            async for page in pages(client, "/v1/tasks", limit=limit):
                assert list(page) == ["tasks", "next_cursor"]
                assert 1 <= len(page["tasks"]) <= limit
                seen += [task["id"] for task in page["tasks"]]
                if limit in {2, 3} and len(seen) < 4:
                    await Pipeline.create(client, goal="added meanwhile")
            assert seen[-7:] == ids[::-1]
            assert len(seen) == len(set(seen))
        fields = ["id", "goal", "status", "latest_run_id", "project_root", "work_dir", "created_at", "goal_truncated"]
        assert all(list(task) == fields for task in parsed(await client.get("/v1/tasks"))["tasks"])

    async def test_runs_are_filtered(self, client: httpx.AsyncClient) -> None:
        """Runs are listed newest first, of one task or one status or both, a page at a time."""
        one, other = await Pipeline.create(client), await Pipeline.create(client)
        runs = [one, other, await one.another_run(), await other.another_run(), await one.another_run()]
        await runs[0].finish("failed", error="broke")
        await runs[2].finish("done", result={"large": "x" * 1000})
        of_one = [runs[4], runs[2], runs[0]]

        async def listed(**query: Any) -> list[dict[str, Any]]:
            return [run async for page in pages(client, "/v1/runs", **query) for run in page["runs"]]

        for query, expected in (
            ({}, runs[::-1]),
            ({"limit": 2}, runs[::-1]),
            ({"task_id": one.task_id}, of_one),
            ({"task_id": one.task_id, "limit": 1}, of_one),
            ({"status": "running"}, [runs[4], runs[3], runs[1]]),
            ({"status": "running", "task_id": one.task_id, "limit": 1}, [runs[4]]),
            ({"status": "done"}, [runs[2]]),
            ({"status": "cancelled"}, []),
        ):
            assert [run["id"] for run in await listed(**query)] == [run.run_id for run in expected], query
        failed = (await listed(status="failed"))[0]
        assert list(failed) == [
            *("id", "task_id", "status", "error", "created_at", "updated_at", "degradation_count", "error_truncated")
        ]
        assert (failed["task_id"], failed["status"], failed["error"]) == (one.task_id, "failed", "broke")
        assert code_of(await client.get("/v1/runs?task_id=T-0")) == (404, "task_not_found")
        assert code_of(await client.get("/v1/runs?task_id=0")) == (400, "invalid_id")
        assert code_of(await client.get("/v1/runs?status=over")) == (400, "invalid_parameter")

    async def test_a_malformed_cursor_or_limit_is_400(self, client: httpx.AsyncClient) -> None:
        """A cursor that no page gave out, and a limit out of its bounds, are 400 and never an empty page."""
        await Pipeline.create(client)
        numbers = ("0", "-1", "x", "1.5", str(2**70), "")
        cursors = ["", "x", "!!!!", "é", "%00", *(base64.urlsafe_b64encode(text.encode()).decode() for text in numbers)]
        bad = [("cursor", cursor) for cursor in cursors]
        bad += [("limit", limit) for limit in ("0", "-1", "501", "x", "", "1.5", str(10**30))]
        for route in ("/v1/tasks", "/v1/runs"):
            for pair in bad:
                assert code_of(await client.get(route, params=[pair])) == (400, "invalid_parameter"), pair
            for good in (1, 500):
                assert (await client.get(route, params={"limit": good})).status_code == 200


async def pages(http: httpx.AsyncClient, route: str, **query: Any) -> AsyncIterator[dict[str, Any]]:
    """Page through a list; a list that has no end is a failure and not a hang."""
    for _ in range(50):
        page = parsed(await http.get(route, params=query))
        yield page
        if page["next_cursor"] is None:
            return
        query["cursor"] = page["next_cursor"]
    pytest.fail(f"{route} has no last page")


class TestDispatch:
    async def test_every_dispatch_is_listed_in_order(self, client: httpx.AsyncClient) -> None:
        """The entries of a run are its dispatches in their order, in-flight ones too, with what became of each."""
        pipeline = await Pipeline.create(client, blueprint_of(("p", "$.p"), names={"p": "plan"}))
        first = await pipeline.dispatch("p")
        skipped = await pipeline.dispatch("extra")
        second = await pipeline.dispatch("p")
        again = await pipeline.retry(first)
        await pipeline.submit(skipped, "s", verdict="skip")
        await pipeline.submit(first, "no", ok=False)
        await pipeline.submit(again, "yes")
        entries = await pipeline.entries()
        assert [list(entry) for entry in entries] == [ENTRY] * 4
        told = [[entry[key] for key in ("step_id", "name", "status", "attempt", "occurrence")] for entry in entries]
        assert told == [
            [first["step_id"], "plan", "blocked", 1, 1],
            [skipped["step_id"], "extra", "skipped", 1, 1],
            [second["step_id"], "plan", "dispatched", 1, 2],
            [first["step_id"], "plan", "passed", 2, 1],
        ]
        for entry in entries:
            in_flight = entry["status"] == "dispatched"
            assert TIME.fullmatch(entry["started_at"])
            assert (entry["completed_at"] is None, entry["duration_ms"] is None) == (in_flight, in_flight)
            assert in_flight or entry["duration_ms"] >= 0
        record = await pipeline.record()
        assert list(record) == [
            *("id", "task_id", "status", "error", "created_at", "updated_at", "degradation_count"),
            *("step_entries", "degradations", "result_ref"),
        ]
        assert (record["step_entries"], record["degradations"], record["result_ref"]) == (entries, [], None)
        assert record["updated_at"] >= record["created_at"]
        for tail in ("", "/steps"):
            assert code_of(await client.get(f"/v1/runs/R-0{tail}")) == (404, "run_not_found")
            assert code_of(await client.get(f"/v1/runs/x{tail}")) == (400, "invalid_id")

    async def test_a_dispatch_is_answered_with_all_that_its_worker_needs(
        self, client: httpx.AsyncClient, work_dir: Path
    ) -> None:
        """The answer names step, attempt, handle, its end and the URLs; the view is projected where a root resolves."""
        blueprint = blueprint_of(
            ("p", "$.p"),
            names={"p": "plan"},
            default_agent_ctx={"tone": "calm", "both": "blueprint"},
            metadata={"project_name_alias": "alias"},
        )
        pipeline = await Pipeline.create(client, blueprint, work_dir=str(work_dir), task_metadata={"m": 10**30})
        dispatched = await pipeline.dispatch("p", {"do": "é"}, ctx={"both": "dispatch", "x": [1]}, system="be brief")
        assert list(dispatched) == [
            *("step_id", "attempt", "step_ref", "name", "worker_handle", "expires_at"),
            *("prompt_url", "submit_url", "ctx_projection"),
        ]
        assert re.fullmatch("ST-[0-9a-f]{16}", dispatched["step_id"])
        assert re.fullmatch("wh-[0-9a-f]{32}", dispatched["worker_handle"])
        assert [dispatched[key] for key in ("attempt", "step_ref", "name")] == [1, "p", "plan"]
        assert dispatched["prompt_url"] == f"/v1/worker/prompt?task_id={dispatched['step_id']}"
        prompt = parsed(await client.get(dispatched["prompt_url"], headers=bearer(dispatched)))
        submitted = await client.post(dispatched["submit_url"], content=b"x", headers=bearer(dispatched))
        assert (prompt["prompt"], prompt["system"], submitted.status_code) == ('{"do":"é"}', "be brief", 204)
        path = Path(dispatched["ctx_projection"])
        assert path == work_dir / "workspace" / "tasks" / dispatched["step_id"] / "ctx" / "_ctx.md"
        front, _, view = path.read_text().partition("```json\n")
        assert front == f"---\ntask_id: {dispatched['step_id']}\n---\n\n"
        assert json.loads(view.removesuffix("\n```\n")) == {
            "task_id": dispatched["step_id"],
            "agent": "p",
            "attempt": 1,
            "work_dir": str(work_dir),
            "task_metadata": {"m": 10**30},
            "run_id": pipeline.run_id,
            "project_name_alias": "alias",
            "extra": {"tone": "calm", "both": "dispatch", "x": [1]},
        }
        rootless = await (await Pipeline.create(client)).dispatch("p")
        assert "ctx_projection" not in rootless

    async def test_a_handle_ends_when_it_is_said_to(self, client: httpx.AsyncClient) -> None:
        """``ttl_seconds`` sets the end of the handle, to the millisecond; without it the settings do."""
        pipeline = await Pipeline.create(client)
        for fields, seconds in (({}, 1800), ({"ttl_seconds": 1}, 1), ({"ttl_seconds": 86_400 * 365}, 86_400 * 365)):
            dispatched = await pipeline.dispatch("s", **fields)
            started = (await pipeline.entries())[-1]["started_at"]
            lives = datetime.fromisoformat(dispatched["expires_at"]) - datetime.fromisoformat(started)
            assert lives == timedelta(seconds=seconds)
        for given in (0, -1, 86_400 * 365 + 1, "soon", 1.5):
            answer = await post(
                client, f"/v1/runs/{pipeline.run_id}/steps", {"ref": "s", "directive": "go", "ttl_seconds": given}
            )
            assert code_of(answer) == (422, "invalid_request"), given

    async def test_a_retry_is_the_next_attempt_of_the_same_step(self, client: httpx.AsyncClient) -> None:
        """``retry_of`` keeps step, name and occurrence; a step of another run or of another ref is refused."""
        pipeline = await Pipeline.create(client)
        elsewhere = await (await pipeline.another_run()).dispatch("s")
        first, other = await pipeline.dispatch("s"), await pipeline.dispatch("t")
        second = await pipeline.dispatch("s")
        for attempt in (2, 3):
            again = await pipeline.retry(first)
            assert (again["step_id"], again["attempt"]) == (first["step_id"], attempt)
            assert again["worker_handle"] != first["worker_handle"]
            assert (await pipeline.entries())[-1]["occurrence"] == 1
        assert (await pipeline.retry(second))["attempt"] == 2
        url = f"/v1/runs/{pipeline.run_id}/steps"
        for step_id in (elsewhere["step_id"], other["step_id"], "ST-0"):
            answer = await post(client, url, {"ref": "s", "directive": "go", "retry_of": step_id})
            assert code_of(answer) == (422, "unknown_retry"), step_id
        for step_id in ("", "0", "R-1", "ST-\n"):
            answer = await post(client, url, {"ref": "s", "directive": "go", "retry_of": step_id})
            assert code_of(answer) == (400, "invalid_id"), step_id
        assert len(await pipeline.entries()) == 6

    async def test_a_name_of_another_step_is_taken(self, client: httpx.AsyncClient) -> None:
        """An unknown ref is its own name, but not where that is a name or alias of a step of the Blueprint."""
        pipeline = await Pipeline.create(client, blueprint_of(("p", "$.draft"), ("q", "$.r.x"), names={"p": "plan"}))
        url = f"/v1/runs/{pipeline.run_id}/steps"
        for ref in ("plan", "draft", "r"):
            answer = await post(client, url, {"ref": ref, "directive": "go"})
            assert code_of(answer) == (422, "name_taken"), ref
        for ref, name in (("p", "plan"), ("q", "q"), ("Plan", "Plan"), ("r.x", "r.x")):
            assert (await pipeline.dispatch(ref))["name"] == name
        assert [entry["step_ref"] for entry in await pipeline.entries()] == ["p", "q", "Plan", "r.x"]

    async def test_a_malformed_dispatch_is_refused(self, client: httpx.AsyncClient) -> None:
        """A dispatch without ref or directive, with unknown fields or a view of wrong types is 422 and kept nowhere."""
        pipeline = await Pipeline.create(client)
        for document, path in (
            ({"directive": "go"}, "$.ref"),
            ({"ref": "s"}, "$.directive"),
            ({"ref": 1, "directive": "go"}, "$.ref"),
            ({"ref": "s", "directive": "go", "ttl": 1}, "$.ttl"),
            ({"ref": "s", "directive": "go", "ctx": []}, "$.ctx"),
            ({"ref": "s", "directive": "go", "ctx": {"work_dir": 1}}, "$.ctx.work_dir"),
            ({"ref": "s", "directive": "go", "ctx": {"work_dir": "not/absolute"}}, "$.ctx.work_dir"),
            ({"ref": "s", "directive": "go", "ctx": {"project_root": "/nul\x00"}}, "$.ctx.project_root"),
            ({"ref": "s", "directive": "go", "ctx": {"project_root": "/\ud800"}}, "$.ctx.project_root"),
            ({"ref": "s", "directive": "go", "system": {}}, "$.system"),
        ):
            answer = await post(client, f"/v1/runs/{pipeline.run_id}/steps", document)
            assert code_of(answer) == (422, "invalid_request"), document
            assert [detail["path"] for detail in answer.json()["details"]] == [path]
        assert code_of(await post(client, "/v1/runs/R-0/steps", {"ref": "s", "directive": "go"})) == (
            404,
            "run_not_found",
        )
        assert await pipeline.entries() == []
        assert (await pipeline.dispatch("s", None))["attempt"] == 1

    async def test_concurrent_dispatches_are_numbered_apart(self, client: httpx.AsyncClient) -> None:
        """Of dispatches, retries and endings that come at once, each has its own number, and one ending holds."""
        pipeline = await Pipeline.create(client)
        first = await pipeline.dispatch("s")
        await asyncio.gather(*(pipeline.dispatch("s") for _ in range(8)), *(pipeline.retry(first) for _ in range(8)))
        entries = await pipeline.entries()
        numbers = sorted((entry["occurrence"], entry["attempt"]) for entry in entries)
        assert numbers == [(1, attempt) for attempt in range(1, 10)] + [(number, 1) for number in range(2, 10)]
        url = f"/v1/runs/{pipeline.run_id}/finish"
        outcomes = [{"status": "done", "result": number} for number in range(8)]
        answers = await asyncio.gather(*(post(client, url, outcome) for outcome in outcomes))
        (held,) = [number for number, answer in enumerate(answers) if answer.status_code == 200]
        assert [answer.status_code for answer in answers].count(409) == 7
        assert (await pipeline.record())["result_ref"] == held


class TestFinish:
    async def test_a_run_is_finished_once(self, client: httpx.AsyncClient) -> None:
        """Finishing again with the same content is 200 and changes nothing, with any other 409; null is not none."""
        outcomes: tuple[dict[str, Any], ...] = (
            {"status": "done", "result": {"b": 1, "a": [2]}},
            {"status": "failed", "error": "broke"},
            {"status": "cancelled"},
            {"status": "interrupted", "result": None, "error": "stopped"},
        )
        for outcome in outcomes:
            pipeline = await Pipeline.create(client)
            url = f"/v1/runs/{pipeline.run_id}/finish"
            summary = parsed(await post(client, url, outcome))
            assert (summary["status"], summary["error"]) == (outcome["status"], outcome.get("error"))
            before = await pipeline.record()
            assert before["result_ref"] == outcome.get("result")
            # A result of null is one; none at all cannot be read.
            assert (await pipeline.get("_ctx", "/content")).status_code == (200 if "result" in outcome else 404)
            assert parsed(await post(client, url, dict(reversed(outcome.items())))) == summary
            without = {key: item for key, item in outcome.items() if key != "result"}
            for other in (
                outcome | {"status": "done" if outcome["status"] != "done" else "failed"},
                outcome | {"error": "else"},
                outcome | {"result": {"b": 1, "a": [3]}},
                without if "result" in outcome else outcome | {"result": None},
            ):
                assert code_of(await post(client, url, other)) == (409, "run_finished"), other
            assert await pipeline.record() == before
        pipeline = await Pipeline.create(client)
        refused: tuple[Any, ...] = (
            {"status": "running"},
            {"status": "pending"},
            {},
            {"status": "done", "x": 1},
            [],
            "",
        )
        for bad in refused:
            answer = await post(client, f"/v1/runs/{pipeline.run_id}/finish", bad)
            assert code_of(answer) == (422, "invalid_request")
            assert (await pipeline.record())["status"] == "running"
        assert code_of(await post(client, "/v1/runs/R-0/finish", {"status": "done"})) == (404, "run_not_found")

    async def test_a_terminal_run_takes_no_more(self, client: httpx.AsyncClient) -> None:
        """A run that ended refuses dispatches, retries and its workers' writes with 410, and keeps what it has."""
        for status in ("done", "failed", "interrupted", "cancelled"):
            pipeline = await Pipeline.create(client)
            dispatched = await pipeline.output("s", "kept")
            await pipeline.finish(status)
            url = f"/v1/runs/{pipeline.run_id}/steps"
            for document in ({"ref": "t"}, {"ref": "s", "retry_of": dispatched["step_id"]}):
                answer = await post(client, url, document | {"directive": "go"})
                assert code_of(answer) == (410, "run_finished")
            late = await client.post("/v1/worker/submit", content=b"late", headers=bearer(dispatched))
            assert code_of(late) == (410, "run_finished")
            assert await pipeline.content("s") == b'"kept"'
            assert len(await pipeline.entries()) == 1


class TestDelete:
    async def test_a_deleted_run_is_gone(self, client: httpx.AsyncClient, database_url: str, work_dir: Path) -> None:
        """A run is deleted with every row of it, a running one only by force; other runs and files stay."""
        kept = await Pipeline.create(client, blueprint_of(("s", "$.s")), work_dir=str(work_dir))
        await kept.output("s", "kept")
        gone = await kept.another_run()
        for run in (gone, await kept.another_run()):
            dispatched = await run.output("s", "gone")
            await run.stage(dispatched, "part", "p")
            lesser = {"tool": "t", "error": "e", "fallback": "f"}
            told = await client.post("/v1/worker/degradation", json=lesser, headers=bearer(dispatched))
            assert told.status_code == 204
            assert all((await rows_by_table(database_url, run.run_id)).values())
            file = Path((await run.step("s"))["file_path"])
            url = f"/v1/runs/{run.run_id}"
            if run is gone:
                await run.finish(result={"s": 1, "x": 2})
            for query in ("", "?force=false"):
                if run is not gone:
                    assert code_of(await client.delete(url + query)) == (409, "run_running")
            answer = await client.delete(url + ("" if run is gone else "?force=true"))
            assert (answer.status_code, answer.content) == (204, b"")
            for read in (url, f"{url}/steps"):
                assert code_of(await client.get(read)) == (404, "run_not_found")
            assert code_of(await run.get()) == (404, "run_not_found")
            assert code_of(await run.get("s", "/content")) == (404, "run_not_found")
            assert code_of(await client.delete(url)) == (404, "run_not_found")
            late = await client.post("/v1/worker/submit", content=b"late", headers=bearer(dispatched))
            assert code_of(late) == (401, "unauthenticated")
            assert file.exists()
        assert await rows_by_table(database_url, gone.run_id) == dict.fromkeys(await tables_of_runs(), 0)
        latest = parsed(await client.get(f"/v1/tasks/{kept.task_id}/runs/latest/steps/s"))
        assert latest["content_url"] == kept.url("s", "/content")
        counted = await rows_by_table(database_url, kept.run_id)
        assert counted["outputs"] == counted["projections"] == counted["dispatches"] == counted["bodies"] == 1
        assert code_of(await client.delete("/v1/runs/R-0")) == (404, "run_not_found")
        assert code_of(await client.delete("/v1/runs/0")) == (400, "invalid_id")


async def tables_of_runs() -> list[str]:
    return [table.name for table in metadata.sorted_tables if table.name == "runs" or "run_id" in table.c]


async def rows_by_table(database_url: str, run_id: str) -> dict[str, int]:
    """Count the rows of a run in every table that can have any; in the whole database where ``run_id`` is gone."""
    url = make_url(database_url)
    driver = "sqlite+aiosqlite" if url.get_backend_name() == "sqlite" else "postgresql+asyncpg"
    engine = create_async_engine(url.set(drivername=driver))
    counted = {}
    async with engine.connect() as connection:
        for name in await tables_of_runs():
            table = metadata.tables[name]
            column = table.c.id if name == "runs" else table.c.run_id
            rows = await connection.execute(select(func.count()).select_from(table).where(column == run_id))
            counted[name] = rows.scalar_one()
    await engine.dispose()
    return counted


def nested(depth: int) -> Any:
    """Nest arrays and objects in turn."""
    value: Any = "leaf"
    for level in range(depth):
        value = [value] if level % 2 else {"k": value}
    return value


VALUES: dict[str, Any] = {
    "integer of 400 digits": -(10**399) - 7,
    "integer of 4,300 digits": 10**4299 + 1,
    "beyond 64 bits": [2**63, 2**64, -(2**63) - 1, {"n": 2**200}],
    "floats": [0.1, -0.0, 1.0, 1e16, 1e22, 1e-7, 5e-324, 1.7976931348623157e308, 123456789.12345679, 1e-5],
    "lone surrogates": ["\ud800", {"\udfff": "a\udc00b"}, "\udc00\ud800", "\U0001f600"],
    "control characters": "\x00\x01\x1f\x7f\u0080\u2028\ufeff",
    "empty": [{}, [], "", None, {"": ""}],
    "keys": {"é": 1, "e": 2, "Z": 3, "\x00": 4, "a/b": 5, "_ctx": 6, "\U0001f600": 7, "\uffff": 8},
    "deep": nested(190),
}


class TestValues:
    async def test_values_come_back_byte_exact(self, client: httpx.AsyncClient) -> None:
        """Integers of any size, floats, lone surrogates and deep nesting go in and come out exactly, by every way."""
        for about, value in VALUES.items():
            expected = render_json(value)
            pipeline = await Pipeline.create(client, init_ctx=value, task_metadata=value)
            dispatched = await pipeline.dispatch("s", value, ctx={"v": value})
            await pipeline.result(dispatched, value)
            await pipeline.finish(result={"r": value, "s": "behind the submitted"})
            for name, query in (("s", {}), ("r", {}), ("_ctx", {"path": "$.r"})):
                assert await pipeline.content(name, **query) == expected, about
            record = await pipeline.record()
            task = parsed(await client.get(f"/v1/tasks/{pipeline.task_id}"))["task"]
            prompt = await pipeline.prompt(dispatched)
            directive = prompt["prompt"] if isinstance(value, str) else json.loads(prompt["prompt"])
            for found in (
                *(record["result_ref"]["r"], task["init_ctx"], task["task_metadata"], directive),
                *(prompt["context"]["extra"]["v"], prompt["context"]["task_metadata"]),
            ):
                assert render_json(found) == expected, about

    async def test_numbers_longer_than_python_reads_are_exact_too(self, client: httpx.AsyncClient) -> None:
        """An integer of ten thousand digits is served digit for digit, wherever it came in."""
        digits = b"9" * 10_000
        pipeline = await Pipeline.create(client)
        dispatched = await pipeline.dispatch("s")
        document = b'{"task_id": "%s", "value": [%s]}' % (dispatched["step_id"].encode(), digits)
        answer = await client.post("/v1/worker/result", content=document, headers=bearer(dispatched))
        assert answer.status_code == 204
        url = f"/v1/runs/{pipeline.run_id}/finish"
        answer = await client.post(url, content=b'{"status": "done", "result": {"r": %s}}' % digits)
        assert answer.status_code == 200
        assert await pipeline.content("s", path="$[0]") == await pipeline.content("r") == digits
        record = await client.get(f"/v1/runs/{pipeline.run_id}")
        assert b'"result_ref":{"r":%s}}' % digits in record.content

    async def test_what_is_no_json_value_is_refused(self, client: httpx.AsyncClient) -> None:
        """NaN, infinities, and numbers that no float holds are 400, and nothing is kept."""
        pipeline = await Pipeline.create(client)
        dispatched = await pipeline.dispatch("s")
        finish, submit = f"/v1/runs/{pipeline.run_id}/finish", "/v1/worker/result"
        for value in (
            b"NaN",
            b"Infinity",
            b"-Infinity",
            b"1e999",
            b"[-1e400]",
            b"01",
            b"1,",
            b"'x'",
        ):
            body = b'{"status": "done", "result": %s}' % value
            assert code_of(await client.post(finish, content=body)) == (400, "invalid_json"), value[:20]
            body = b'{"task_id": "%s", "value": %s}' % (dispatched["step_id"].encode(), value)
            answer = await client.post(submit, content=body, headers=bearer(dispatched))
            assert code_of(answer) == (400, "invalid_json"), value[:20]
            body = b'{"ref": "s", "directive": %s}' % value
            assert code_of(await client.post(f"/v1/runs/{pipeline.run_id}/steps", content=body)) == (
                400,
                "invalid_json",
            )
        assert await pipeline.steps() == []
        assert (await pipeline.record())["status"] == "running"
        assert len(await pipeline.entries()) == 1
