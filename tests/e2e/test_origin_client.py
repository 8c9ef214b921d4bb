"""The origin's own worker, unchanged: the very requests that it sends, to a real server."""

import json
from typing import Any

import httpx

from tests.e2e.conftest import Server

_LONG = "Answer in one word. " * 2_000


def _posted(server: Server, path: str, document: Any) -> Any:
    answer = httpx.post(server.url + path, json=document)
    assert answer.status_code == 201, answer.text
    return answer.json()


def test_all_that_the_origins_worker_sends_is_taken(server: Server) -> None:
    """Its prompt, its long system prompt without a bearer, its nulls and its ``text/plain`` all succeed."""
    run_id = _posted(server, "/v1/tasks", {"goal": "g"})["run_id"]
    step = _posted(server, f"/v1/runs/{run_id}/steps", {"ref": "plan", "directive": "Plan.", "system": _LONG})
    worker = {"Authorization": f"Bearer {step['worker_handle']}"}

    prompt = httpx.get(f"{server.url}/v1/worker/prompt?task_id={step['step_id']}", headers=worker).json()
    uri = server.url + prompt["system_ref"]["uri"]
    assert httpx.get(uri).text == _LONG

    stats = (
        b'{"worker_kind":"sub","model":"m","usage":{"input_tokens":3,"output_tokens":4,"total_tokens":7},'
        b'"num_turns":2,"adapter_data":null}'
    )
    degradation = b'{"tool":"search","error":"timeout","fallback":"grep","note":null}'
    for route, body in (("stats", stats), ("degradation", degradation)):
        headers = {**worker, "Content-Type": "application/json"}
        answer = httpx.post(f"{server.url}/v1/worker/{route}", content=body, headers=headers)
        assert answer.status_code == 204, answer.text
    text = {**worker, "Content-Type": "text/plain"}
    submitted = httpx.post(f"{server.url}/v1/worker/submit?ok=true", content='{"plan": ["dig"]}', headers=text)
    assert submitted.status_code == 204, submitted.text

    run = httpx.get(f"{server.url}/v1/runs/{run_id}").json()
    (entry,) = run["step_entries"]
    told = (entry["status"], entry["worker_kind"], entry["model"], entry["usage"]["total_tokens"], entry["num_turns"])
    assert told == ("passed", "sub", "m", 7, 2)
    assert "adapter_data" not in entry
    assert run["degradations"][0]["fallback"] == "grep"
    ticket = uri.partition("ticket=")[2]
    assert ticket not in server.log
    assert ticket not in json.dumps(run)
