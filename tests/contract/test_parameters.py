"""Query parameters: a misspelt one never asks for something else in silence."""

import re
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts

from app.config import Settings
from app.main import create_app
from app.routes import KnownRoute
from tests.contract.pipeline import Pipeline, bearer, code_of, one_database

pytestmark = one_database
ROUTES = list(iter_route_contexts(create_app(Settings(database_url="sqlite:///never.db")).routes))
ASKED = [(method, route.path or "") for route in ROUTES for method in sorted(route.methods or ())]


@pytest.mark.parametrize(("method", "path"), ASKED, ids=" ".join)
async def test_no_route_takes_a_parameter_that_it_does_not_know(
    client: httpx.AsyncClient, method: str, path: str
) -> None:
    """Every route and page, by every method, refuses an unknown name, and lets through one that begins with ``_``."""
    pipeline = await Pipeline.create(client)
    step = await pipeline.output("plan", 1)
    ids = {"task": pipeline.task_id, "run": pipeline.run_id, "name": "plan"}
    url = re.sub(r"\{(\w+)(?::\w+)?\}", lambda match: ids.get(match[1], "plan"), path)
    headers = bearer(step) if path.startswith("/v1/worker") or (method, "/v1/data") == ("POST", path[:8]) else {}
    refused = await client.request(method, url, params={"zzz": "1"}, headers=headers)
    assert refused.status_code == 400, refused.text
    if method != "HEAD":
        assert "zzz" in refused.text
        assert "unknown_parameter" in refused.text or not path.startswith("/v1")
    passed = await client.request(method, url, params={"_": "1", "_zzz": "2"}, headers=headers)
    assert "_zzz" not in passed.text


@pytest.mark.parametrize(
    ("method", "url", "nearest"),
    [
        ("POST", "/v1/worker/submit?verdct=blocked", "verdict"),
        ("POST", "/v1/worker/submit?verdict=pass&okay=true", "ok"),
        ("POST", "/v1/worker/artifact?nme=part", "name"),
        ("GET", "/v1/worker/prompt?task=ST-1", "task_id"),
        ("GET", "/v1/runs?statuss=failed", "status"),
        ("GET", "/v1/tasks?cursr=x", "cursor"),
        ("DELETE", "/v1/runs/R-0123456789abcdef?forc=true", "force"),
        ("GET", "{steps}/plan/content?pth=$.a", "path"),
        ("GET", "{steps}/plan?attempts=1", "attempt"),
        ("GET", "{steps}/plan/outline?limits=1", "limit"),
    ],
)
async def test_the_nearest_name_is_told(client: httpx.AsyncClient, method: str, url: str, nearest: str) -> None:
    """A misspelt parameter is 400 with the name that was meant, and nothing is kept."""
    pipeline = await Pipeline.create(client)
    step = await pipeline.dispatch("plan")
    headers = bearer(step) if "/worker/" in url else {}
    answer = await client.request(method, url.format(steps=pipeline.steps_url), content=b"x", headers=headers)
    assert code_of(answer) == (400, "unknown_parameter")
    assert f"the nearest that it knows is {nearest!r}" in answer.json()["error"]
    assert nearest in answer.json()["details"]["known"]
    assert await pipeline.names() == []


@pytest.mark.parametrize("tail", ["", "?status=done&status=failed", "?limit=1&limit=1"])
async def test_a_parameter_stands_once(client: httpx.AsyncClient, tail: str) -> None:
    """A parameter that is given twice is refused: each reader would take another of the two."""
    assert (await client.get("/v1/runs" + tail)).status_code == (400 if tail else 200)
    pipeline = await Pipeline.create(client)
    await pipeline.output("plan", {"a": 1})
    twice = await client.get(pipeline.url("plan", "/content") + "?path=$.a&path=$.b")
    assert code_of(twice) == (400, "invalid_parameter")


def test_what_a_route_declares_is_what_its_document_tells(app: FastAPI) -> None:
    """The names that are let in are the query parameters of the OpenAPI document."""
    paths = app.openapi()["paths"]
    for context in iter_route_contexts(app.routes):
        route = context.original_route
        if isinstance(route, KnownRoute) and route.include_in_schema:
            for method in route.methods or ():
                told = paths[context.path_format][method.lower()].get("parameters", ())
                assert route.known_parameters() == {each["name"] for each in told if each["in"] == "query"}


@pytest.mark.parametrize(
    ("url", "document", "place", "nearest"),
    [
        ("/v1/tasks", {"gaol": "x"}, "$.gaol", "goal"),
        ("/v1/runs/{run}/steps", {"ref": "a", "directive": 1, "ttl": 5}, "$.ttl", "ttl_seconds"),
        ("/v1/runs/{run}/finish", {"status": "done", "reslt": 5}, "$.reslt", "result"),
        ("/v1/worker/result", {"task_id": "ST-1", "value": 1, "okay": True}, "$.okay", "ok"),
        ("/v1/worker/stats", {"usage": {"input_token": 1}}, "$.usage.input_token", "input_tokens"),
        (
            "/v1/data/emit",
            {"event": {"type": "progress", "stage": "x", "notes": "y"}},
            "$.event.progress.notes",
            "note",
        ),
        (
            "/v1/data/emit",
            {"event": {"type": "final", "ok": True, "content": {"kind": "file_ref", "path": "/x", "mme": "y"}}},
            "$.event.final.content.file_ref.mme",
            "mime",
        ),
    ],
)
async def test_an_unknown_field_of_a_body_is_told_with_the_nearest(
    client: httpx.AsyncClient, url: str, document: dict[str, Any], place: str, nearest: str
) -> None:
    """A misspelt field is 422 with its place and the name that was meant, at any depth."""
    pipeline = await Pipeline.create(client)
    step = await pipeline.dispatch("plan")
    headers = bearer(step) if url.startswith(("/v1/worker", "/v1/data")) else {}
    answer = await client.post(url.format(run=pipeline.run_id), json=document, headers=headers)
    assert code_of(answer) == (422, "invalid_request")
    faults = {fault["path"]: fault["message"] for fault in answer.json()["details"]}
    assert faults[place] == f'is no known field; the nearest is "{nearest}"'


def test_no_request_takes_a_field_that_is_not_described(app: FastAPI) -> None:
    """In the OpenAPI document the body of every request, and what is in it, has no further fields."""
    document = app.openapi()
    schemas = document["components"]["schemas"]

    def reached(node: Any) -> set[str]:
        if isinstance(node, list):
            return set().union(*map(reached, node)) if node else set()
        if not isinstance(node, dict):
            return set()
        own = {str(node["$ref"]).rpartition("/")[2]} if "$ref" in node else set()
        return own | reached(list(node.values()))

    operations = [operation for item in document["paths"].values() for operation in item.values()]
    names, seen = reached([operation.get("requestBody") for operation in operations]), set[str]()
    while names - seen:
        name = (names - seen).pop()
        seen.add(name)
        names |= reached(schemas[name])
    objects = [name for name in seen if schemas[name].get("type") == "object"]
    assert len(objects) > 10
    assert [name for name in objects if schemas[name].get("additionalProperties") is not False] == []
