"""The faults that were found in the design's origin: each has a test that holds that it is not ours.

Most are laws of their own place; :data:`HELD` names the test of each. The others stand here.
"""

import ast
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.domain.rendering import read_submission
from tests.contract.pipeline import Pipeline, blueprint_of, code_of, dumped

HELD = {
    "names and files are forgotten at a restart": "contract/test_debug_plane.py::test_a_restart_changes_no_answer",
    "another run's value is served instead": "contract/test_debug_plane.py::test_two_runs_never_mix",
    "the list hashes every body": "contract/test_queries.py::test_a_list_takes_as_many_statements_whatever_its_length",
    "only attempt 1 is visible, loops collapse": "contract/test_debug_plane.py::test_occurrences_and_attempts",
    "a path indexes no array and misses a quoted key": "contract/test_debug_plane.py::test_paths",
    "the first of two artifacts is shown": "contract/test_debug_plane.py::test_the_newest_artifact_of_a_name_wins",
    "a progress event hides a Final": "contract/test_debug_plane.py::test_other_events_never_hide_a_final",
    "a declared name escapes": "contract/security/test_path_traversal.py::test_no_path_traversal_by_a_projection_name",
    "tokens are unchecked on submit": "contract/test_guards.py::test_no_bearer_that_is_unknown_gets_in",
    "late writes are accepted": "contract/test_guards.py::test_a_terminal_run_takes_no_write_of_a_worker",
    "content URLs are unencoded": "e2e/test_server.py::test_every_name_is_reached_by_the_url_that_is_handed_out",
    "latest is arbitrary": "contract/test_debug_plane.py::test_latest_is_the_run_that_was_created_last",
    "errors are plain text": "contract/test_errors.py::test_routing",
}


@pytest.mark.parametrize("fault", HELD)
def test_a_fault_of_the_origin_is_held_by_a_test(fault: str) -> None:
    """The test that holds it is still there, under the name by which it is found."""
    path, _, name = HELD[fault].partition("::")
    tree = ast.parse((Path(__file__).parents[2] / path).read_text(encoding="utf-8"))
    functions = [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert functions.count(name) == 1


async def test_a_workers_json_is_no_escaped_string(client: httpx.AsyncClient) -> None:
    """JSON that a worker submits is that value, so that a path leads into it, over arrays and quoted keys too."""
    pipeline = await Pipeline.create(client)
    await pipeline.submit(await pipeline.dispatch("ask"), '{"a": [1, {"b c": "deep"}]}')
    assert json.loads(await pipeline.content("ask")) == {"a": [1, {"b c": "deep"}]}
    for path in ('$.a[1]["b c"]', '$["a"][-1]["b c"]'):
        assert await pipeline.content("ask", path=path) == b'"deep"'


async def test_a_code_fence_in_a_value_breaks_no_file(client: httpx.AsyncClient, work_dir: Path) -> None:
    """A value with fences, front matter and all is read back from its file as it was."""
    pipeline = await Pipeline.create(client, work_dir=str(work_dir))
    value = "---\nok: no\n---\n```json\n1\n```\n````\n~~~\n```"
    await pipeline.result(await pipeline.dispatch("ask"), {"text": value, "```": "```json"})
    step = await pipeline.step("ask")
    for file in (Path(step["file_path"]).read_bytes(), await pipeline.content("ask")):
        assert json.loads(read_submission(file)) == {"text": value, "```": "```json"}


async def test_a_policy_that_hides_the_run_switches_no_guard_off(client: httpx.AsyncClient) -> None:
    """A worker that is not shown its run is held to that run all the same: late it is 410, elsewhere it is 403."""
    policy = {"exclude": ["run_id", "task_id", "agent", "attempt", "steps"]}
    pipeline = await Pipeline.create(client, blueprint_of(("ask", "$.ask"), default_context_policy=policy))
    dispatched = await pipeline.dispatch("ask")
    assert "run_id" not in (await pipeline.prompt(dispatched))["context"]
    other = await pipeline.another_run()
    headers = {"Authorization": f"Bearer {dispatched['worker_handle']}"}
    assert code_of(await client.get(other.steps_url, headers=headers)) == (403, "forbidden")
    elsewhere = dumped({"task_id": (await other.dispatch("ask"))["step_id"], "value": 1})
    answer = await client.post("/v1/worker/result", content=elsewhere, headers=headers)
    assert code_of(answer) == (403, "forbidden")
    await pipeline.finish()
    for url in ("/v1/worker/submit", "/v1/worker/artifact?name=part"):
        assert code_of(await client.post(url, content=b"late", headers=headers)) == (410, "run_finished")


async def test_what_is_wrong_with_a_request_is_never_500(client: httpx.AsyncClient) -> None:
    """A Blueprint, a body or a path that cannot be verified is the client's fault, told in the one error shape."""
    documents: list[Any] = [{"blueprint": {}}, {"blueprint": {"id": 1, "flow": {"kind": "no"}}}, {"goal": []}, [], 1]
    for document in documents:
        answer = await client.post("/v1/tasks", content=dumped(document))
        assert answer.status_code in {400, 422}
        assert answer.json().keys() >= {"error", "code", "request_id"}
