"""The OpenAPI document: valid, complete, and told by the same code that answers.

Source: contract §2, "Errors"; RFC 9110.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openapi_spec_validator import validate

from app.api.steps import DebugPlane
from app.config import Settings
from app.main import create_app
from tests.contract.pipeline import Pipeline, bearer, blueprint_of, one_database, parsed, quoted, serving

METHODS = ("get", "put", "post", "delete", "patch", "head", "options")
ERROR = {"$ref": "#/components/schemas/ErrorBody"}
OPEN = {"get_health", "get_health_head"}
"""Operations that ask nothing of the database: they have no error of their own."""


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return create_app(Settings(database_url="sqlite:///never-opened.db")).openapi()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                yield method, path, item[method]


class TestDocument:
    async def test_it_is_valid_and_served(self, document: dict[str, Any]) -> None:
        """The document that the server hands out is valid OpenAPI, and the one that these tests look at."""
        transport = httpx.ASGITransport(create_app(Settings(database_url="sqlite:///never-opened.db")))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            served = parsed(await http.get("/openapi.json"))
        validate(served)
        assert served == document
        assert served["info"]["title"] == "stepplane"

    def test_every_operation_is_named_and_described(self, document: dict[str, Any]) -> None:
        """Every operation has a unique id in snake case, a tag, and says what it does."""
        ids = [operation["operationId"] for _, _, operation in operations(document)]
        assert len(ids) == len(set(ids)) > 15
        for _, path, operation in operations(document):
            assert re.fullmatch("[a-z]+(_[a-z]+)*", operation["operationId"]), path
            assert operation["tags"], path
            assert operation["description"].endswith((".", "!")), path

    def test_every_route_is_documented(self, document: dict[str, Any]) -> None:
        """Every path of the contract is in the document."""
        paths = set(document["paths"])
        # Templates that differ in a name alone are one path twice, which OpenAPI forbids.
        assert len({re.sub(r"\{\w+\}", "{}", path) for path in paths}) == len(paths)
        plane = "/v1/tasks/{task}/runs/{run}/steps"
        assert paths >= {
            *("/v1/tasks", "/v1/tasks/{task}", "/v1/tasks/{task}/runs"),
            *(plane, plane + "/{step}", plane + "/{step}/content", plane + "/{step}/outline"),
            *("/v1/runs", "/v1/runs/{run}", "/v1/runs/{run}/steps", "/v1/runs/{run}/finish"),
            *("/v1/worker/prompt", "/v1/worker/prompt/system", "/v1/worker/submit", "/v1/worker/result"),
            *("/v1/worker/artifact", "/v1/worker/degradation", "/v1/worker/stats"),
            *("/v1/data/emit", "/v1/data/{key}", "/v1/data/{out_id}/content", "/v1/healthz", "/v1/status", "/metrics"),
        }

    def test_every_error_has_the_one_schema(self, document: dict[str, Any]) -> None:
        """Every documented error names its codes and has the schema of all errors; the framework's own is gone."""
        assert "HTTPValidationError" not in document["components"]["schemas"]
        for _, path, operation in operations(document):
            errors = {status: told for status, told in operation["responses"].items() if status >= "400"}
            assert operation["operationId"] in OPEN or errors.keys() >= {"500", "503"}, path
            for status, told in errors.items():
                assert told["content"] == {"application/json": {"schema": ERROR}}, (path, status)
                assert re.match("`[a-z_0-9]+`: .+", told["description"]), (path, status)
            assert any(status < "400" for status in operation["responses"])

    def test_every_parameter_and_property_is_described(self, document: dict[str, Any]) -> None:
        """No parameter, no property and no schema is left to be guessed."""
        for _, path, operation in operations(document):
            for parameter in operation.get("parameters", ()):
                assert parameter.get("description"), (path, parameter["name"])
            names = re.findall(r"\{(\w+)\}", path)
            told = [parameter["name"] for parameter in operation.get("parameters", ()) if parameter["in"] == "path"]
            assert sorted(names) == sorted(told), path
        for name, schema in document["components"]["schemas"].items():
            assert schema.get("description"), name
            for field, told in schema.get("properties", {}).items():
                # A field that tells its kind apart is described by that kind.
                assert told.get("description") or "const" in told, f"{name}.{field}"


def compared(answer: httpx.Response) -> tuple[int, list[tuple[str, str]], bytes]:
    headers = [(name, value) for name, value in answer.headers.multi_items() if name != "x-request-id"]
    own = answer.headers["x-request-id"].encode()
    return answer.status_code, sorted(headers), answer.content.replace(own, b"")


@one_database
async def test_the_documented_routes_answer_as_the_fast_path(
    client: httpx.AsyncClient, settings: Settings, work_dir: Path
) -> None:
    """The framework's routes of the debug plane and the middleware ahead of them give the very same answers."""
    plain: Any = create_app(settings)
    layer = plain.outer
    while not isinstance(layer._app, DebugPlane):
        layer = layer._app
    layer._app = layer._app._app
    pipeline = await Pipeline.create(
        client, blueprint_of(("p", "$.draft"), names={"p": "the plan"}), work_dir=str(work_dir)
    )
    odd = ("a/b", "a b?c#d%e", "..", ".", "content", "steps", "%2F", "計画", "\x00", "a;b=c", "~'()*!")
    dispatched = await pipeline.output("p", {"a": ["é"]})
    await pipeline.stage(dispatched, "part.md", "text")
    for name in odd:
        await pipeline.output(name, name)
    await pipeline.finish(result={"p": 1})
    steps, latest = pipeline.steps_url, f"/v1/tasks/{pipeline.task_id}/runs/latest/steps"
    etag = (await pipeline.get("p", "/content")).headers["etag"]
    urls = [steps, latest, *(f"{steps}/{quoted(name)}" for name in (*odd, "p", "draft", "the plan", "part.md", "_ctx"))]
    urls += [f"{url}/content" for url in urls[2:]]
    for query in ("path=$.a[0]", "format=json", "format=raw&path=", "format=file", "attempt=1&occurrence=1", "x=1"):
        urls += [f"{latest}/p?{query}", f"{latest}/p/content?{query}"]
    bad = (
        "format=x",
        "attempt=x",
        "attempt=2",
        "occurrence=9",
        "path=$.no",
        "path=%FF",
        "path=&format=file",
        "attempt=0",
    )
    urls += [f"{latest}/p{tail}?{query}" for query in bad for tail in ("", "/content")]
    urls += [
        f"/v1/tasks/{task}/runs/{run}/steps{tail}"
        for task in ("T-0", "0")
        for run in ("R-0", "0", "latest")
        for tail in ("", "/s")
    ]
    urls += [
        f"{steps}/none",
        f"{steps}/%FF",
        f"{steps}/%FF/content",
        f"{steps}/a/b",
        f"{steps}/",
        f"{steps}/a/content/",
    ]
    urls += [f"{steps}/%63ontent/%63ontent", f"{steps}/a%2fb/content", f"{steps}/%70"]
    async with serving(plain) as documented:
        for url in urls:
            for headers in ({"Range": "bytes=0-1"}, {"If-None-Match": f'"x", W/{etag}'}):
                fast, slow = await client.get(url, headers=headers), await documented.get(url, headers=headers)
                assert compared(fast) == compared(slow), url
    statuses = {(await client.get(url)).status_code for url in urls}
    assert statuses == {200, 400, 404}


@one_database
async def test_the_errors_that_happen_are_documented(client: httpx.AsyncClient, document: dict[str, Any]) -> None:
    """An error that an operation answers stands in the document, with its status and its code."""
    pipeline = await Pipeline.create(client)
    ended = await pipeline.another_run()
    late = await ended.dispatch("s")
    await ended.finish()
    worker = await pipeline.output("s", {"a": 1})
    run, task, steps = f"/v1/runs/{pipeline.run_id}", f"/v1/tasks/{pipeline.task_id}", pipeline.steps_url
    as_worker, as_late, as_nobody = bearer(worker), bearer(late), {"Authorization": "Bearer x"}
    clash = blueprint_of(("a", "$.a"), ("b", "$.b"), names={"b": "a"})
    dispatch = {"ref": "s", "directive": 1}
    requests: list[tuple[str, str, str, dict[str, Any]]] = [
        ("POST", "/v1/tasks", "/v1/tasks", {"content": b"{"}),
        ("POST", "/v1/tasks", "/v1/tasks", {"json": []}),
        ("POST", "/v1/tasks", "/v1/tasks", {"json": {"blueprint": 1}}),
        ("POST", "/v1/tasks", "/v1/tasks", {"json": {"blueprint": clash}}),
        ("POST", "/v1/tasks", "/v1/tasks", {"content": b" " * 2**25}),
        ("GET", "/v1/tasks", "/v1/tasks?limit=0", {}),
        ("GET", "/v1/tasks", "/v1/tasks", {"headers": as_nobody}),
        ("GET", "/v1/tasks", "/v1/tasks", {"headers": as_worker}),
        ("GET", "/v1/tasks/{task}", "/v1/tasks/T-0", {}),
        ("GET", "/v1/tasks/{task}", "/v1/tasks/0", {}),
        ("POST", "/v1/tasks/{task}/runs", "/v1/tasks/T-0/runs", {}),
        ("GET", "/v1/runs", "/v1/runs?task_id=T-0", {}),
        ("GET", "/v1/runs", "/v1/runs?task_id=0", {}),
        ("GET", "/v1/runs", "/v1/runs?cursor=0", {}),
        ("GET", "/v1/runs/{run}", "/v1/runs/R-0", {}),
        ("GET", "/v1/runs/{run}/steps", "/v1/runs/0/steps", {}),
        ("DELETE", "/v1/runs/{run}", run, {}),
        ("DELETE", "/v1/runs/{run}", run + "?force=x", {}),
        ("POST", "/v1/runs/{run}/steps", f"/v1/runs/{ended.run_id}/steps", {"json": dispatch}),
        ("POST", "/v1/runs/{run}/steps", f"{run}/steps", {"json": dispatch | {"ref": ""}}),
        ("POST", "/v1/runs/{run}/steps", f"{run}/steps", {"json": dispatch | {"retry_of": "ST-0"}}),
        ("POST", "/v1/runs/{run}/steps", f"{run}/steps", {"json": dispatch | {"retry_of": "0"}}),
        ("POST", "/v1/runs/{run}/finish", f"/v1/runs/{ended.run_id}/finish", {"json": {"status": "failed"}}),
        ("POST", "/v1/runs/{run}/finish", f"{run}/finish", {"json": {"status": "over"}}),
        ("POST", "/v1/worker/submit", "/v1/worker/submit?verdict=x", {"headers": as_worker}),
        ("POST", "/v1/worker/submit", "/v1/worker/submit?ok=x", {"headers": as_worker}),
        ("POST", "/v1/worker/submit", "/v1/worker/submit", {"headers": as_worker, "content": b"\xff"}),
        ("POST", "/v1/worker/submit", "/v1/worker/submit", {"headers": as_worker, "content": b"@file:/x"}),
        ("POST", "/v1/worker/submit", "/v1/worker/submit", {"headers": as_late}),
        ("POST", "/v1/worker/submit", "/v1/worker/submit", {"headers": as_nobody}),
        ("POST", "/v1/worker/submit", "/v1/worker/submit", {"headers": as_worker, "content": b" " * 2**22}),
        ("POST", "/v1/worker/artifact", "/v1/worker/artifact?name=", {"headers": as_worker}),
        ("POST", "/v1/worker/artifact", "/v1/worker/artifact?name=s", {"headers": as_worker}),
        ("POST", "/v1/worker/artifact", "/v1/worker/artifact", {"headers": as_worker}),
        (
            "POST",
            "/v1/worker/result",
            "/v1/worker/result",
            {"headers": as_worker, "json": {"task_id": "ST-0", "value": 1}},
        ),
        (
            "POST",
            "/v1/worker/result",
            "/v1/worker/result",
            {"headers": as_worker, "json": {"task_id": "0", "value": 1}},
        ),
        ("GET", "/v1/worker/prompt", "/v1/worker/prompt?task_id=0", {"headers": as_worker}),
        ("GET", "/v1/worker/prompt", "/v1/worker/prompt?task_id=ST-0", {"headers": as_worker}),
        ("GET", "/v1/worker/prompt/system", "/v1/worker/prompt/system", {"headers": as_worker}),
        ("GET", "/v1/worker/prompt/system", "/v1/worker/prompt/system?attempt=x", {"headers": as_worker}),
    ]
    plane = "/v1/tasks/{task}/runs/{run}/steps"
    of_step = plane + "/{step}"
    tails = {plane: "", of_step: "/s", of_step + "/content": "/s/content", of_step + "/outline": "/s/outline"}
    for template, tail in tails.items():
        requests += [
            ("GET", template, f"/v1/tasks/T-0/runs/latest/steps{tail}", {}),
            ("GET", template, f"/v1/tasks/0/runs/latest/steps{tail}", {}),
            ("GET", template, f"{task}/runs/R-0/steps{tail}", {}),
            ("GET", template, ended.steps_url + tail, {"headers": as_worker}),
            ("GET", template, steps + tail, {"headers": as_nobody}),
        ]
        if tail:
            queries = ["attempt=9", "occurrence=9", "path=$.no", "format=x", "attempt=x"]
            queries.append("limit=0" if tail.endswith("/outline") else "format=file")
            requests += [("GET", template, f"{steps}{tail}?{query}", {}) for query in queries]
            requests.append(("GET", template, f"{steps}{tail.replace('/s', '/none')}", {}))
    for method, template, url, options in requests:
        answer = await client.request(method, url, **options)
        assert answer.status_code >= 400, url
        told = document["paths"][template][method.lower()]["responses"].get(str(answer.status_code))
        assert told, (method, url, answer.text)
        assert f"`{answer.json()['code']}`: " in told["description"], (method, url, answer.text)


async def test_every_operation_says_which_bearer_it_needs(client: httpx.AsyncClient) -> None:
    """Workers' routes need a handle, the debug plane takes the operator or a handle, all else the operator."""
    document = parsed(await client.get("/openapi.json"))
    schemes = set(document["components"]["securitySchemes"])
    told = {
        (method, path): {name for each in operation["security"] for name in each}
        for path, item in document["paths"].items()
        for method, operation in item.items()
    }
    assert told.pop(("get", "/v1/healthz")) == set()
    assert all(names and names <= schemes for names in told.values())
    assert told["post", "/v1/worker/submit"] == {"workerHandle"}
    assert told["get", "/v1/tasks/{task}/runs/{run}/steps/{step}/content"] == {"operatorToken", "workerHandle"}
    assert told["post", "/v1/tasks"] == told["get", "/metrics"] == {"operatorToken"}
