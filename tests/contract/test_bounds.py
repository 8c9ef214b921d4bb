"""Bounds of requests: what a client can make larger has a limit, and an error that says it.

Source: docs/limits.md.
"""

import json
from typing import Any

import httpx
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from app.domain import limits
from app.domain.bounds import KEPT
from app.domain.records import Progress
from app.services.intake import Intake
from app.storage.urls import parse_database_url
from tests.contract.pipeline import Pipeline, bearer, code_of, parsed

ROUTES = {
    "task": "/v1/tasks",
    "dispatch": "/v1/runs/{run}/steps",
    "finish": "/v1/runs/{run}/finish",
    "result": "/v1/worker/result",
    "stats": "/v1/worker/stats",
    "degradation": "/v1/worker/degradation",
    "emit": "/v1/data/emit",
}
OF_WORKER = {"result", "stats", "degradation", "emit"}


async def sent(pipeline: Pipeline, step: dict[str, Any], route: str, document: dict[str, Any]) -> httpx.Response:
    headers = bearer(step) if route in OF_WORKER else {}
    own: dict[str, Any] = {"task_id": step["step_id"]} if route in {"result", "emit"} else {}
    if route == "emit":
        own |= {"attempt": 1, "producer_agent": "plan"}
    url = ROUTES[route].format(run=pipeline.run_id)
    return await pipeline.http.post(url, json=own | document, headers=headers)


@pytest.fixture
async def pipeline(client: httpx.AsyncClient) -> Pipeline:
    return await Pipeline.create(client)


STEP: dict[str, Any] = {"ref": "b", "directive": 1}
REPORT: dict[str, Any] = {"tool": "t", "error": "e", "fallback": "f"}


class TestStrictness:
    """Numbers are numbers, and flags are flags."""

    @pytest.mark.parametrize("given", [True, False, 0, -5, 1e12, 10**12, 60.0, 1.5, "60", [60], {}], ids=repr)
    async def test_a_time_to_live_is_an_integer_within_its_bounds(self, pipeline: Pipeline, given: Any) -> None:
        """Nothing but an integer from 1 to a year in seconds is taken for ``ttl_seconds``; nothing is dispatched."""
        step = await pipeline.dispatch("plan")
        answer = await sent(pipeline, step, "dispatch", {**STEP, "ttl_seconds": given})
        assert code_of(answer) == (422, "invalid_request")
        (fault,) = answer.json()["details"]
        assert fault["path"] == "$.ttl_seconds"
        assert fault["message"].startswith(
            ("must be an integer, not a", "must be at least 1", "must be at most 31536000")
        )
        assert len(await pipeline.entries()) == 1

    @pytest.mark.parametrize("given", [1, limits.TTL_SECONDS.value])
    async def test_the_bounds_are_taken(self, pipeline: Pipeline, given: int) -> None:
        """The least and the most are within."""
        await pipeline.dispatch("plan", ttl_seconds=given)

    @pytest.mark.parametrize(
        ("route", "document"),
        [
            ("task", {"start": "yes"}),
            ("task", {"start": 1}),
            ("result", {"value": 1, "ok": "yes"}),
            ("result", {"value": 1, "ok": 1}),
            ("result", {"value": 1, "attempt": True}),
            ("result", {"value": 1, "attempt": "1"}),
            ("result", {"value": 1, "attempt": 1.0}),
            ("stats", {"num_turns": True}),
            ("stats", {"num_turns": "3"}),
            ("stats", {"num_turns": -1}),
            ("stats", {"usage": {"input_tokens": True}}),
            ("stats", {"usage": {"input_tokens": "5"}}),
            ("stats", {"usage": {"total_tokens": 2**63}}),
            ("emit", {"attempt": "1", "event": {"type": "progress", "stage": "s"}}),
            ("emit", {"event": {"type": "final", "ok": "yes", "content": {"kind": "inline", "value": 1}}}),
            (
                "emit",
                {
                    "event": {
                        "type": "final",
                        "ok": True,
                        "content": {"kind": "file_ref", "path": "/x", "size_hint": "1"},
                    }
                },
            ),
        ],
        ids=repr,
    )
    async def test_what_only_looks_like_a_number_or_a_flag_is_refused(
        self, pipeline: Pipeline, route: str, document: dict[str, Any]
    ) -> None:
        """Words, floats and flags stand for no number, and numbers and words for no flag, in any request."""
        step = await pipeline.dispatch("plan")
        answer = await sent(pipeline, step, route, document)
        assert code_of(answer) == (422, "invalid_request")
        assert await pipeline.names() == []


def texts(limit: limits.Limit, *places: tuple[str, str, dict[str, Any]]) -> list[Any]:
    return [pytest.param(*place, limit, id=f"{place[0]}-{place[1]}") for place in places]


def put(document: dict[str, Any], place: str, value: Any) -> dict[str, Any]:
    """Return a copy of a document with a value at a dotted place."""
    copy: dict[str, Any] = json.loads(json.dumps(document))
    *outer, last = place.split(".")
    inside = copy
    for key in outer:
        inside = inside[key]
    inside[last] = value
    return copy


PROGRESS = {"event": {"type": "progress", "stage": "s"}}
FILE = {"event": {"type": "final", "ok": True, "content": {"kind": "file_ref", "path": "/x"}}}


@pytest.mark.parametrize(
    ("route", "place", "document", "limit"),
    [
        *texts(limits.LONG_TEXT_BYTES, ("task", "goal", {}), ("finish", "error", {"status": "failed"})),
        *texts(limits.SYSTEM_BYTES, ("dispatch", "system", STEP)),
        *texts(
            limits.WORD_CHARS, ("stats", "worker_kind", {}), ("stats", "model", {}), ("degradation", "tool", REPORT)
        ),
        *texts(limits.WORD_CHARS, ("emit", "event.stage", PROGRESS), ("emit", "event.content.mime", FILE)),
        *texts(limits.REPORT_BYTES, ("degradation", "error", REPORT), ("degradation", "fallback", REPORT)),
        *texts(limits.REPORT_BYTES, ("degradation", "note", REPORT), ("emit", "event.note", PROGRESS)),
        *texts(limits.PATH_BYTES, ("task", "work_dir", {}), ("task", "project_root", {})),
        *texts(limits.PATH_BYTES, ("emit", "event.content.path", FILE)),
    ],
)
async def test_a_text_is_taken_up_to_its_limit(
    pipeline: Pipeline, route: str, place: str, document: dict[str, Any], limit: limits.Limit
) -> None:
    """A text of exactly its limit is taken; one more is 422 with the place, the limit, and how to mend it."""
    step = await pipeline.dispatch("plan")
    refused = await sent(pipeline, step, route, put(document, place, "/" + "x" * limit.value))
    assert code_of(refused) == (422, "invalid_request")
    (fault,) = refused.json()["details"]
    assert fault["path"].endswith(place.rpartition(".")[2])
    assert f"has {limit.value + 1} {limit.unit}, and at most {limit.value} are taken: shorten it" in fault["message"]
    if limit.unit == "bytes" and "path" not in place and "_" not in place:
        wide = await sent(pipeline, step, route, put(document, place, "é" * (limit.value // 2 + 1)))
        assert code_of(wide) == (422, "invalid_request")
    taken = await sent(pipeline, step, route, put(document, place, "/" + "x" * (limit.value - 1)))
    assert taken.status_code in {200, 201, 204}, taken.text


@pytest.mark.parametrize(
    ("route", "place", "document", "limit"),
    [
        ("dispatch", "ctx", STEP, limits.KEYS),
        ("task", "task_metadata", {}, limits.KEYS),
        ("emit", "parent_refs", PROGRESS, limits.PARENTS),
    ],
)
async def test_a_list_is_taken_up_to_its_limit(
    pipeline: Pipeline, route: str, place: str, document: dict[str, Any], limit: limits.Limit
) -> None:
    """A list or an object of more items than its limit is 422 with the place, the limit, and how to mend it."""
    step = await pipeline.dispatch("plan")
    many = ["out-1"] * (limit.value + 1) if place == "parent_refs" else {f"k{at}": at for at in range(limit.value + 1)}
    refused = await sent(pipeline, step, route, put(document, place, many))
    assert code_of(refused) == (422, "invalid_request")
    (fault,) = refused.json()["details"]
    assert fault["path"] == f"$.{place}"
    assert fault["message"].endswith(f"and at most {limit.value} are taken: send fewer")


async def test_a_cursor_is_bounded(client: httpx.AsyncClient) -> None:
    """A cursor that no page gave out is refused before it is read, however long."""
    for url in ("/v1/tasks", "/v1/runs"):
        assert code_of(await client.get(url, params={"cursor": "x" * 2_000})) == (400, "invalid_parameter")


async def test_what_was_kept_under_older_bounds_is_read(pipeline: Pipeline) -> None:
    """An event that is kept is read back whole, whatever is taken by now."""
    long = {"type": "progress", "stage": "s" * 5_000, "note": "n" * 50_000}
    assert Progress.model_validate(long, context=KEPT).model_dump() == long
    step = await pipeline.dispatch("plan")
    out_id = await pipeline.emit(step, {"type": "progress", "stage": "s", "note": "n"})
    assert parsed(await pipeline.http.get(f"/v1/data/{out_id}"))["event"]["note"] == "n"


class TestLists:
    """Lists cut long texts."""

    @pytest.mark.parametrize(
        "text",
        ["e" * 301, "\x00\x01" * 30_000, "é😀" * 9_000, "\x01" * 301],
        ids=["plain", "control", "wide", "escapes"],
    )
    async def test_a_long_text_is_cut_in_lists_and_whole_in_the_record(
        self, client: httpx.AsyncClient, text: str
    ) -> None:
        """A goal or an error of over 300 characters is cut there in every list, which says so; the record has it."""
        pipeline = await Pipeline.create(client, goal=text)
        finished = await pipeline.finish("failed", error=text)
        assert finished["error"] == text
        assert "error_truncated" not in finished
        (task,) = parsed(await client.get("/v1/tasks"))["tasks"]
        assert (task["goal"], task["goal_truncated"]) == (text[:300], True)
        whole = parsed(await client.get(f"/v1/tasks/{pipeline.task_id}"))
        assert whole["task"]["goal"] == text
        assert "goal_truncated" not in whole["task"]
        for (run,) in (whole["runs"], parsed(await client.get("/v1/runs"))["runs"]):
            assert (run["error"], run["error_truncated"]) == (text[:300], True)
        record = await pipeline.record()
        assert record["error"] == text
        assert "error_truncated" not in record

    @pytest.mark.parametrize(
        "text", [None, "", "e" * 300, "\x00" * 300, "😀" * 300], ids=["none", "empty", "plain", "escapes", "wide"]
    )
    async def test_a_short_text_is_whole_in_lists(self, client: httpx.AsyncClient, text: str | None) -> None:
        """A text of up to 300 characters is as it was sent, and the list says that it is whole."""
        pipeline = await Pipeline.create(client, goal=text)
        await pipeline.finish("failed", error=text)
        (task,) = parsed(await client.get("/v1/tasks"))["tasks"]
        assert (task["goal"], task["goal_truncated"]) == (text, False)
        (run,) = parsed(await client.get("/v1/runs"))["runs"]
        assert (run["error"], run["error_truncated"]) == (text, False)

    async def test_the_page_of_runs_is_fine_with_the_cut(self, client: httpx.AsyncClient) -> None:
        """The list of runs shows the beginning of a long goal and a long error, and an ellipsis."""
        pipeline = await Pipeline.create(client, goal="g" * 60_000)
        await pipeline.finish("failed", error="e" * 60_000)
        page = (await client.get("/ui")).text
        assert "g" * 300 + "…" in page
        assert "e" * 300 + "…" in page
        assert len(page) < 10_000


async def test_of_many_degradations_the_first_and_the_last_are_kept(pipeline: Pipeline) -> None:
    """Beyond the limit every report is taken and counted; the record has the first, the last, and the count."""
    step = await pipeline.dispatch("plan")
    total = limits.DEGRADATIONS.value + 7
    for at in range(total):
        assert (await sent(pipeline, step, "degradation", {**REPORT, "note": str(at)})).status_code == 204
    record = await pipeline.record()
    assert record["degradation_count"] == total
    half = limits.SHOWN_DEGRADATIONS.value // 2
    notes = [int(report["note"]) for report in record["degradations"]]
    assert notes == [*range(half), *range(total - half, total)]
    (run,) = parsed(await pipeline.http.get("/v1/runs"))["runs"]
    assert run["degradation_count"] == total
    page = (await pipeline.http.get(f"/ui/tasks/{pipeline.task_id}/runs/{pipeline.run_id}")).text
    assert f"The first 100; {total - 100} more in" in page


async def test_few_degradations_are_all_in_the_record(pipeline: Pipeline) -> None:
    """Up to what a record shows, each report is in it once, in the order it came."""
    step = await pipeline.dispatch("plan")
    for total in range(limits.SHOWN_DEGRADATIONS.value):
        await sent(pipeline, step, "degradation", {**REPORT, "note": str(total)})
        if total in {0, 98, 99, 100, 198, 199}:
            record = await pipeline.record()
            assert [int(report["note"]) for report in record["degradations"]] == list(range(total + 1))
            assert record["degradation_count"] == total + 1


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


class TestDepth:
    """Arrays and objects nest to a limit."""

    async def test_a_submit_is_taken_up_to_the_limit(self, pipeline: Pipeline) -> None:
        """A body that nests to the limit is its value; one more is 422, fenced or not; what is no JSON is text."""
        most = limits.DEPTH.value
        step = await pipeline.dispatch("plan")
        await pipeline.submit(step, nested(most))
        assert json.loads(await pipeline.content("plan")) == json.loads(nested(most))
        for body in (nested(most + 1), f"```json\n{nested(most + 1)}\n```\n", "[" * 2_000 + "]" * 2_000):
            answer = await pipeline.http.post("/v1/worker/submit", content=body, headers=bearer(step))
            assert code_of(answer) == (422, "nested_too_deep"), body[:20]
            assert f"deeper than {most} levels" in answer.json()["error"]
        assert json.loads(await pipeline.content("plan")) == json.loads(nested(most))
        for only_begins_so in ("[" * 100_000, nested(300) + "x", "[" * 300 + "}" * 300, nested(300) + "[]"):
            await pipeline.submit(step, only_begins_so)
            assert json.loads(await pipeline.content("plan")) == only_begins_so

    async def test_a_deep_text_is_taken_as_one(self, pipeline: Pipeline) -> None:
        """With ``submit_format: text`` a body that nests too deep is the text that it is."""
        step = await pipeline.dispatch("plan", ctx={"submit_format": "text"})
        await pipeline.submit(step, nested(300))
        assert json.loads(await pipeline.content("plan")) == nested(300)

    @pytest.mark.parametrize("route", ["task", "dispatch", "finish", "result", "emit"])
    async def test_every_body_is_held_to_it(self, pipeline: Pipeline, route: str) -> None:
        """The body of every request is 422 where it nests deeper, YAML too."""
        step = await pipeline.dispatch("plan")
        headers = bearer(step) if route in OF_WORKER else {}
        url = ROUTES[route].format(run=pipeline.run_id)
        answer = await pipeline.http.post(url, content='{"x":' + nested(200) + "}", headers=headers)
        assert code_of(answer) == (422, "nested_too_deep")
        if route == "task":
            yaml = {"content-type": "application/yaml"}
            answer = await pipeline.http.post(url, content="init_ctx: " + nested(200), headers=yaml)
            assert code_of(answer) == (422, "nested_too_deep")


async def test_a_value_that_was_kept_deeper_is_read(pipeline: Pipeline, database_url: str) -> None:
    """A value of 500 levels that an older release kept is served, narrowed, and outlined."""
    step = await pipeline.output("plan", ["old"])
    deep = ("[" * 500 + "]" * 500).encode()
    engine = create_async_engine(parse_database_url(database_url).async_url)
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE bodies SET data = :data"), {"data": deep})
    await engine.dispose()
    assert await pipeline.content("plan", path="$" + "[0]" * 498) == b"[\n  []\n]"
    assert parsed(await pipeline.get("plan", "/outline"))["child_count"] == 1
    assert step["attempt"] == 1


async def test_a_long_body_holds_a_million_values(pipeline: Pipeline) -> None:
    """A body with more values than are taken is 422, and says how many; strings may hold any number of commas."""
    most = limits.VALUES.value
    refused = await pipeline.http.post(f"/v1/runs/{pipeline.run_id}/finish", content="[" + "1," * most + "1]")
    assert code_of(refused) == (422, "too_many_values")
    assert str(most) in refused.json()["error"]
    await pipeline.finish(result="," * (most + 1))


async def test_a_step_has_a_thousand_parts(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step stages parts up to the limit; another name is 422, and a name that it has is staged again."""
    monkeypatch.setattr("app.services.appender.PARTS", limits.PARTS._replace(value=3))
    step = await pipeline.dispatch("plan")
    for name in ("a", "b", "c"):
        await pipeline.stage(step, name, "x")
    url = "/v1/worker/artifact"
    refused = await pipeline.http.post(url, content="x", params={"name": "d"}, headers=bearer(step))
    assert code_of(refused) == (422, "too_many_parts")
    emitted = {"event": {"type": "artifact", "name": "d", "content": {"kind": "inline", "value": 1}}}
    assert code_of(await sent(pipeline, step, "emit", emitted)) == (422, "too_many_parts")
    await pipeline.stage(step, "b", "again")
    assert await pipeline.content("b") == b"again"
    await pipeline.stage(await pipeline.dispatch("other"), "d", "x")


class TestIntake:
    """Long bodies are counted while they are held."""

    async def test_there_is_room_or_it_says_when_to_come_again(self, app: Any, pipeline: Pipeline) -> None:
        """A long body without room is 503 ``busy`` with ``Retry-After`` and nothing is kept; a short one is taken."""
        app.outer._intake = Intake(held_bytes=100_000)
        step = await pipeline.dispatch("plan")
        for route in ("submit", "artifact?name=part"):
            url = f"/v1/worker/{route}"
            refused = await pipeline.http.post(url, content="x" * 200_000, headers=bearer(step))
            assert code_of(refused) == (503, "busy")
            assert int(refused.headers["retry-after"]) > 0
        assert await pipeline.names() == []
        await pipeline.submit(step, "x" * 90_000)
        await pipeline.submit(step, "x" * 90_000)

    async def test_what_was_held_is_given_back_however_it_ended(self, app: Any, pipeline: Pipeline) -> None:
        """After a yes, a refusal, a body over its limit and one that is no JSON, nothing is held any more."""
        app.outer._intake = intake = Intake()
        step = await pipeline.dispatch("plan")
        await pipeline.submit(step, "x" * 300_000)
        for content in ("x" * 300_000, "[" * 300_000, json.dumps({"value": "x" * 300_000}), "x" * 5_000_000):
            await pipeline.http.post("/v1/worker/result", content=content, headers=bearer(step))
        await pipeline.finish(result="x" * 300_000)
        assert (intake._held, intake._worked) == (0, 0)
