"""The append-only store over HTTP: events of any kind, kept, read back, and never hiding a Final."""

import hashlib
import json
from typing import Any

import httpx
import pytest

from tests.contract.pipeline import Pipeline, bearer, code_of, dumped, parsed

EVENTS: list[tuple[dict[str, Any], Any]] = [
    ({"type": "progress", "stage": "reading"}, {"stage": "reading", "note": None}),
    ({"type": "progress", "stage": "reading", "note": "half"}, {"stage": "reading", "note": "half"}),
    ({"type": "partial", "chunk": {"part": [1, None, "\x00"]}}, {"part": [1, None, "\x00"]}),
    ({"type": "artifact", "name": "a.md", "content": {"kind": "inline", "value": "# a\n"}}, "# a\n"),
    ({"type": "artifact", "name": "a.json", "content": {"kind": "inline", "value": [10**40]}}, [10**40]),
    (
        {"type": "artifact", "name": "big", "content": {"kind": "file_ref", "path": "/data/big", "mime": "text/csv"}},
        {"file_ref": "/data/big", "mime": "text/csv", "size_hint": None},
    ),
    ({"type": "final", "ok": True, "content": {"kind": "inline", "value": {"a": 1}}}, {"a": 1}),
]
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
async def pipeline(client: httpx.AsyncClient) -> Pipeline:
    return await Pipeline.create(client)


@pytest.mark.parametrize(("event", "value"), EVENTS)
async def test_an_event_is_read_back_as_it_was_sent(pipeline: Pipeline, event: dict[str, Any], value: Any) -> None:
    """An output answers with its event, its producer and its parents, and its content is the rendered value."""
    step = await pipeline.dispatch("worker")
    first = await pipeline.emit(step, {"type": "progress", "stage": "begun"})
    out_id = await pipeline.emit(step, event, parent_refs=[first])
    record = parsed(await pipeline.http.get(f"/v1/data/{out_id}"))
    assert record["event"] == event
    assert (record["id"], record["task_id"], record["run_id"]) == (out_id, step["step_id"], pipeline.run_id)
    assert (record["attempt"], record["producer_agent"], record["parent_refs"]) == (1, "worker", [first])
    content = await pipeline.http.get(f"/v1/data/{out_id}/content")
    assert json.loads(content.content) == value
    assert content.headers["etag"] == f'"sha256:{hashlib.sha256(content.content).hexdigest()}"'
    assert content.headers["cache-control"] == "private, max-age=31536000, immutable"
    again = await pipeline.http.get(f"/v1/data/{out_id}/content", headers={"If-None-Match": content.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


async def test_a_producer_named_by_the_url_may_have_any_name(pipeline: Pipeline) -> None:
    """The newest output of a producer answers under its name, percent-encoded, over all runs."""
    for run in (pipeline, await pipeline.another_run()):
        step = await run.dispatch("worker")
        document = {"task_id": step["step_id"], "attempt": 1, "event": {"type": "partial", "chunk": run.run_id}}
        answer = await run.http.post("/v1/data/a%2Fb%20%E8%A8%88", json=document, headers=bearer(step))
        newest = parsed(await run.http.get("/v1/data/a%2Fb%20%E8%A8%88"))
        assert newest["id"] == parsed(answer)["out_id"]
        assert (newest["producer_agent"], newest["event"]["chunk"]) == ("a/b 計", run.run_id)


async def test_no_other_event_hides_a_final(pipeline: Pipeline) -> None:
    """A progress or a partial after the Final changes nothing of what answers."""
    step = await pipeline.output("worker", {"done": True})
    before = await pipeline.get("worker", "/content")
    await pipeline.emit(step, {"type": "progress", "stage": "tidying"})
    await pipeline.emit(step, {"type": "partial", "chunk": "late"})
    after = await pipeline.get("worker", "/content")
    assert (after.content, after.headers["etag"]) == (before.content, before.headers["etag"])
    assert await pipeline.names() == ["worker"]


async def test_an_emitted_final_and_part_answer_on_the_debug_plane(pipeline: Pipeline) -> None:
    """Data events and worker routes write the same store: both are listed, and the step entry is completed."""
    step = await pipeline.dispatch("worker")
    await pipeline.emit(step, {"type": "artifact", "name": "n.md", "content": {"kind": "inline", "value": "x"}})
    await pipeline.emit(step, {"type": "final", "ok": False, "content": {"kind": "inline", "value": 7}})
    assert await pipeline.names() == ["n.md", "worker"]
    assert (await pipeline.get("worker", "/content")).content == b"7"
    assert [entry["status"] for entry in await pipeline.entries()] == ["blocked"]


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"task_id": "ST-other"}, 403, "forbidden"),
        ({"attempt": 2}, 403, "forbidden"),
        ({"producer_agent": "another", "event": EVENTS[-1][0]}, 403, "forbidden"),
        ({"parent_refs": ["out-0123456789abcdef"]}, 422, "unknown_parent"),
        ({"parent_refs": ["no id"]}, 400, "invalid_id"),
        ({"event": {"type": "artifact", "name": "worker", "content": {"kind": "inline", "value": 1}}}, 400, None),
        ({"event": {"type": "rumour"}}, 422, "invalid_request"),
        ({"event": {"type": "progress", "stage": "a", "mood": "b"}}, 422, "invalid_request"),
        ({"producer_agent": ""}, 422, "invalid_name"),
    ],
)
async def test_what_is_not_the_bearers_is_refused(
    pipeline: Pipeline, change: dict[str, Any], status: int, code: str | None
) -> None:
    """Only the bearer's own step and attempt, a Final only under its own name, only known parents; nothing is kept."""
    step = await pipeline.dispatch("worker")
    document = {"task_id": step["step_id"], "attempt": 1, "producer_agent": "worker", "event": EVENTS[0][0]}
    answer = await pipeline.http.post("/v1/data/emit", json=document | change, headers=bearer(step))
    assert answer.status_code == status, answer.text
    assert code is None or answer.json()["code"] == code
    assert parsed(await pipeline.http.get("/v1/status"))["counts"]["outputs"] == 0


async def test_a_worker_reads_back_its_own_run_alone(pipeline: Pipeline) -> None:
    """A handle reaches outputs of its own run, by id or by name; those of another are not there for it."""
    step = await pipeline.dispatch("worker")
    own = await pipeline.emit(step, {"type": "partial", "chunk": "own"})
    other = await pipeline.another_run()
    foreign_step = await other.dispatch("worker")
    foreign = await other.emit(foreign_step, {"type": "partial", "chunk": "foreign"})
    assert parsed(await pipeline.http.get("/v1/data/worker"))["id"] == foreign
    for key, status in (
        (own, 200),
        ("worker", 200),
        (f"{own}/content", 200),
        (foreign, 404),
        (f"{foreign}/content", 404),
    ):
        answer = await pipeline.http.get(f"/v1/data/{key}", headers=bearer(step))
        assert answer.status_code == status, key
    assert parsed(await pipeline.http.get("/v1/data/worker", headers=bearer(step)))["id"] == own


async def test_a_trace_context_is_kept_when_it_is_one(pipeline: Pipeline) -> None:
    """A well-formed traceparent header stays on the output; another is left out, and so is none."""
    step = await pipeline.dispatch("worker")
    for given, kept in ((TRACEPARENT, TRACEPARENT), ("rubbish", None), (None, None)):
        headers = bearer(step) | ({} if given is None else {"traceparent": given})
        answer = await pipeline.http.post("/v1/worker/submit", content=b"x", headers=headers)
        assert answer.status_code == 204
        assert parsed(await pipeline.http.get("/v1/data/worker")).get("traceparent") == kept


async def test_degradations_are_kept_on_the_run(pipeline: Pipeline) -> None:
    """A degradation says who reported what, in order, and is never an output."""
    step = await pipeline.dispatch("worker")
    for note in ("first", None):
        document = {"tool": "search", "error": "timeout", "fallback": "cache", "note": note}
        answer = await pipeline.http.post("/v1/worker/degradation", json=document, headers=bearer(step))
        assert answer.status_code == 204, answer.text
    first, second = (await pipeline.record())["degradations"]
    assert (first["tool"], first["error"], first["fallback"], first["note"]) == ("search", "timeout", "cache", "first")
    assert (first["step_id"], first["attempt"], first["name"]) == (step["step_id"], 1, "worker")
    assert "note" not in second
    assert await pipeline.steps() == []


async def test_stats_are_shown_on_the_step_entry(pipeline: Pipeline) -> None:
    """What a worker says of itself stands on its entry; what it leaves out stays as it was."""
    step = await pipeline.dispatch("worker")
    said = [{"worker_kind": "llm", "usage": {"input_tokens": 3}, "num_turns": 2}, {"model": "m-1"}, {}]
    for stats in said:
        answer = await pipeline.http.post("/v1/worker/stats", json=stats, headers=bearer(step))
        assert answer.status_code == 204, answer.text
    (entry,) = await pipeline.entries()
    assert (entry["worker_kind"], entry["model"], entry["num_turns"]) == ("llm", "m-1", 2)
    assert entry["usage"]["input_tokens"] == 3


async def test_adapter_data_is_kept_as_it_is(pipeline: Pipeline) -> None:
    """Any JSON of at most 64 KiB is shown on the step entry as it was sent; null leaves what is there."""
    step = await pipeline.dispatch("plan")
    data = {"session": "s-1", "z": [1, None, {"deep": True}], "nul": "\x00", "large": 2**70}
    for said in ({"adapter_data": "first"}, {"adapter_data": data}, {"adapter_data": None, "model": "m"}):
        answer = await pipeline.http.post("/v1/worker/stats", content=dumped(said), headers=bearer(step))
        assert answer.status_code == 204, answer.text
    for route in ("steps", ""):
        shown = parsed(await pipeline.http.get(f"/v1/runs/{pipeline.run_id}/{route}".rstrip("/")))
        (entry,) = shown["steps" if route else "step_entries"]
        assert (entry["adapter_data"], entry["model"]) == (data, "m")


async def test_adapter_data_has_a_bound(pipeline: Pipeline) -> None:
    """64 KiB of compact JSON are kept, one byte more is 422 and keeps nothing of the report."""
    step = await pipeline.dispatch("plan")
    for size, status in ((65_536, 204), (65_537, 422)):
        said = {"adapter_data": "x" * (size - 2), "model": f"of {size}"}
        answer = await pipeline.http.post("/v1/worker/stats", content=dumped(said), headers=bearer(step))
        assert answer.status_code == status
        assert status == 204 or (code_of(answer)[1], "65536" in answer.text) == ("invalid_request", True)
    (entry,) = parsed(await pipeline.http.get(f"/v1/runs/{pipeline.run_id}/steps"))["steps"]
    assert entry["model"] == "of 65536"


@pytest.mark.parametrize("route", ["degradation", "stats"])
async def test_what_workers_say_is_checked(pipeline: Pipeline, route: str) -> None:
    """A report with an unknown field, or on a finished run, is refused."""
    step = await pipeline.dispatch("worker")
    url = f"/v1/worker/{route}"
    wrong = await pipeline.http.post(url, json={"mood": "fine"}, headers=bearer(step))
    assert (wrong.status_code, wrong.json()["code"]) == (422, "invalid_request")
    await pipeline.finish()
    document = {"tool": "a", "error": "b", "fallback": "c"} if route == "degradation" else {"model": "m"}
    late = await pipeline.http.post(url, json=document, headers=bearer(step))
    assert (late.status_code, late.json()["code"]) == (410, "run_finished")
