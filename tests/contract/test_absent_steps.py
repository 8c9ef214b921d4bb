"""A step that is asked for and has nothing to show: whether it is under way, or a name that nothing has."""

import json
from typing import Any

import httpx
import pytest

from tests.contract.pipeline import Dispatched, Pipeline, bearer, blueprint_of, code_of, quoted

READS = ("", "/content", "/outline")


@pytest.fixture
async def pipeline(client: httpx.AsyncClient) -> Pipeline:
    return await Pipeline.create(client)


async def _refusals(pipeline: Pipeline, name: str, worker: Dispatched | None = None) -> list[dict[str, Any]]:
    """Ask for a name in every way, by GET and HEAD alike, and return what each GET was refused with."""
    headers = {} if worker is None else bearer(worker)
    told = []
    for tail in READS:
        answer = await pipeline.http.get(pipeline.url(name, tail), headers=headers)
        assert (await pipeline.http.head(pipeline.url(name, tail), headers=headers)).status_code == answer.status_code
        told.append(json.loads(answer.content) | {"status": answer.status_code})
    return told


async def test_a_step_in_flight_is_told_from_a_wrong_name(pipeline: Pipeline) -> None:
    """What was dispatched and has put nothing out is ``step_not_submitted``, and says which attempt and since when."""
    first = await pipeline.dispatch("plan")
    second = await pipeline.retry(first)
    (entry,) = [entry for entry in await pipeline.entries() if entry["attempt"] == 2]
    for told in await _refusals(pipeline, "plan"):
        assert (told["status"], told["code"]) == (404, "step_not_submitted")
        assert told["error"] == f"'plan' was dispatched at {entry['started_at']}, attempt 2, and put nothing out yet"
        assert told["details"] == {
            "step_id": second["step_id"],
            "attempt": 2,
            "occurrence": 1,
            "dispatched_at": entry["started_at"],
        }


async def test_an_alias_of_a_step_in_flight_leads_to_it(client: httpx.AsyncClient) -> None:
    """Any name of a step in flight tells that it is."""
    blueprint = blueprint_of(("planner", "$.plan"), names={"planner": "the plan"})
    pipeline = await Pipeline.create(client, blueprint)
    await pipeline.dispatch("planner")
    for name in ("planner", "plan", "the plan"):
        assert {told["code"] for told in await _refusals(pipeline, name)} == {"step_not_submitted"}


async def test_a_step_of_a_blueprint_that_nobody_dispatched_is_not_found(client: httpx.AsyncClient) -> None:
    """A step that the Blueprint has and that was not dispatched yet is under way nowhere."""
    pipeline = await Pipeline.create(client, blueprint_of(("planner", "$.plan"), ("builder", "$.house")))
    await pipeline.dispatch("planner")
    assert {told["code"] for told in await _refusals(pipeline, "builder")} == {"step_not_found"}


async def test_a_step_that_never_submitted_is_told_so_after_the_end(pipeline: Pipeline) -> None:
    """After the end of the run a step that put nothing out is told as one that never will."""
    await pipeline.dispatch("plan")
    await pipeline.finish("failed")
    for told in await _refusals(pipeline, "plan"):
        assert told["code"] == "step_not_submitted"
        assert told["error"].endswith(f"and put nothing out before run {pipeline.run_id} ended as failed")


async def test_an_output_ends_the_refusal(pipeline: Pipeline) -> None:
    """As soon as it has put something out, it is found, also while a retry of it is under way."""
    step = await pipeline.output("plan", 1)
    await pipeline.retry(step)
    assert await pipeline.content("plan") == b"1"


@pytest.mark.parametrize(
    ("asked", "close"),
    [
        ("plam", ["plan"]),
        ("Builder", ["builder"]),
        ("notes.mb", ["notes.md"]),
        ("review-4", ["review-1", "review-2", "review-3"]),
        ("hous", ["house"]),
        ("nothing like it", []),
        ("p" * 5_000, []),
    ],
)
async def test_close_names_are_told(client: httpx.AsyncClient, asked: str, close: list[str]) -> None:
    """A name that nothing has is told with up to three that are close: outputs, parts, aliases, what is in flight."""
    pipeline = await Pipeline.create(client, blueprint_of(("builder", "$.house")))
    await pipeline.stage(await pipeline.output("plan", 1), "notes.md", "text")
    for ref in ("builder", "review-1", "review-2", "review-3", "review-7-of-another-kind"):
        await pipeline.dispatch(ref)
    for told in await _refusals(pipeline, asked):
        assert (told["status"], told["code"]) == (404, "step_not_found")
        assert sorted(told["details"]["names"]) == close
        assert all(repr(name) in told["error"] for name in close)


async def test_names_are_those_of_the_run(pipeline: Pipeline) -> None:
    """Close names are this run's own, never another's."""
    await pipeline.output("plan", 1)
    another = await pipeline.another_run()
    assert {str(told["details"]["names"]) for told in await _refusals(another, "plam")} == {"[]"}


@pytest.mark.parametrize("name", ["secret", "secrex", "hidden", "secret-notes.md"])
async def test_a_worker_learns_nothing_that_its_policy_hides(client: httpx.AsyncClient, name: str) -> None:
    """What a policy hides is 403, the same whether it is under way, was put out, or is nowhere."""
    policy = {"steps": ["open"]}
    agents = [{"name": "worker", "meta": {"context_policy": policy}}]
    blueprint = blueprint_of(("worker", "$.w"), ("open", "$.o"), ("secret", "$.hidden"), agents=agents)
    pipeline = await Pipeline.create(client, blueprint)
    worker = await pipeline.dispatch("worker")
    before = [(told["status"], told["error"]) for told in await _refusals(pipeline, name, worker)]
    secret = await pipeline.dispatch("secret")
    await pipeline.stage(secret, "secret-notes.md", "x")
    assert [(told["status"], told["error"]) for told in await _refusals(pipeline, name, worker)] == before
    assert {status for status, _ in before} == {403}


async def test_close_names_are_those_that_a_policy_shows(client: httpx.AsyncClient) -> None:
    """Names that a policy hides are close to nothing, and a step that it shows is told as it is."""
    agents = [{"name": "worker", "meta": {"context_policy": {"steps_exclude": ["plan-a"]}}}]
    blueprint = blueprint_of(("worker", "$.w"), ("plan-a", "$.plan-alias"), ("plan-b", "$.b"), agents=agents)
    pipeline = await Pipeline.create(client, blueprint)
    worker = await pipeline.dispatch("worker")
    await pipeline.stage(await pipeline.output("plan-a", 1), "plan-part", "x")
    await pipeline.dispatch("plan-b")
    for told in await _refusals(pipeline, "plan-c", worker):
        assert told["details"]["names"] == ["plan-b"]
    assert {told["code"] for told in await _refusals(pipeline, "plan-b", worker)} == {"step_not_submitted"}
    own = await client.get(pipeline.url("worker"), headers=bearer(worker))
    assert code_of(own) == (404, "step_not_submitted")
    assert quoted("plan-a") not in own.text
