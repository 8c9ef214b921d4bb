"""The outline of an output: what is inside it, by the rules of the debug plane.

Source: contract §2.
"""

import json
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from pydantic import SecretStr

from app.config import Settings
from app.services.outlines import CACHED_BYTES
from tests.contract.pipeline import (
    Pipeline,
    bearer,
    blueprint_of,
    code_of,
    one_database,
    parsed,
    serving,
)
from tests.contract.test_queries import BODIES, Statements

VALUE: Any = {
    "a": {"b": [1, "two", None, {"c": True}]},
    "": "an empty key",
    "a/b": 1.5,
    'say "hi" \\ [0].x': [],
    "計画": {"🙂": 10**30},
    "$": False,
    "text": "line\nline " * 100,
}


async def outline(pipeline: Pipeline, name: str, /, **query: Any) -> dict[str, Any]:
    told: dict[str, Any] = parsed(await pipeline.get(name, "/outline", **query))
    return told


class TestShape:
    async def test_every_node_is_told_as_content_serves_it(self, client: httpx.AsyncClient) -> None:
        """From the root down, each child's path is taken back by outline and content, with the size that was told."""
        pipeline = await Pipeline.create(client)
        await pipeline.output("s", VALUE)
        waiting, seen = ["$"], 0
        while waiting:
            path = waiting.pop()
            told = await outline(pipeline, "s", path=path)
            assert (told["path"], told["next_cursor"]) == (path, None)
            body = await pipeline.content("s", path=path)
            assert told["size_bytes"] == len(body)
            value = json.loads(body)
            assert told["child_count"] == len(told["children"])
            for child in told["children"]:
                seen += 1
                served = await pipeline.content("s", path=child["path"])
                assert json.loads(served) == value[child["key"]]
                assert child["size_bytes"] == len(served)
                waiting.append(child["path"])
        assert seen == 14

    async def test_the_fields_stand_in_their_order(self, client: httpx.AsyncClient) -> None:
        """An outline and its children have exactly the documented fields, whatever is asked for."""
        pipeline = await Pipeline.create(client)
        await pipeline.output("s", {"k": [1, 2], "b": "x" * 300})
        assert list((await outline(pipeline, "s")).items()) == [
            ("name", "s"),
            ("path", "$"),
            ("type", "object"),
            ("size_bytes", len(await pipeline.content("s"))),
            ("child_count", 2),
            (
                "children",
                [
                    {
                        "key": "b",
                        "path": "$.b",
                        "type": "string",
                        "size_bytes": 302,
                        "child_count": 0,
                        "preview": '"' + "x" * 119 + "…",
                        "truncated": True,
                    },
                    {
                        "key": "k",
                        "path": "$.k",
                        "type": "array",
                        "size_bytes": 12,
                        "child_count": 2,
                        "preview": "[ 1, 2 ]",
                        "truncated": False,
                    },
                ],
            ),
            ("next_cursor", None),
        ]

    @pytest.mark.parametrize(
        ("value", "type_"),
        [({}, "object"), ([], "array"), ("", "string"), (0, "number"), (True, "boolean"), (None, "null")],
    )
    async def test_a_value_without_children_has_a_type(self, client: httpx.AsyncClient, value: Any, type_: str) -> None:
        """Scalars, null and what is empty are outlined too, and have no children."""
        pipeline = await Pipeline.create(client)
        await pipeline.output("s", value)
        for query in ({}, {"path": ""}, {"path": "$"}):
            told = await outline(pipeline, "s", **query)
            assert (told["type"], told["child_count"], told["children"]) == (type_, 0, [])
            assert told["size_bytes"] == len(await pipeline.content("s", path="$"))

    async def test_an_artifact_of_text_is_text(self, client: httpx.AsyncClient) -> None:
        """A staged text is no JSON and has the size of itself; one that was emitted as JSON is outlined as that."""
        pipeline = await Pipeline.create(client)
        dispatched = await pipeline.dispatch("s")
        await pipeline.stage(dispatched, "notes.md", "# Überschrift")
        content = {"kind": "inline", "value": {"k": 1}}
        await pipeline.emit(dispatched, {"type": "artifact", "name": "data.json", "content": content})
        told = await outline(pipeline, "notes.md")
        assert (told["type"], told["size_bytes"], told["children"]) == ("text", 14, [])
        assert [child["path"] for child in (await outline(pipeline, "data.json"))["children"]] == ["$.k"]

    async def test_it_looks_past_the_file(self, client: httpx.AsyncClient, work_dir: Any) -> None:
        """A step with a materialized file is outlined by its value, and so is every name that leads to it."""
        pipeline = await Pipeline.create(
            client, blueprint_of(("p", "$.draft"), names={"p": "the plan"}), work_dir=str(work_dir)
        )
        await pipeline.output("p", {"a": 1})
        assert "file_path" in await pipeline.step("p")
        for name in ("p", "draft", "the plan"):
            told = await outline(pipeline, name)
            assert (told["name"], [child["path"] for child in told["children"]]) == ("the plan", ["$.a"])

    async def test_earlier_ones_are_outlined(self, client: httpx.AsyncClient) -> None:
        """Attempt and occurrence lead to earlier values, and ``_ctx`` to the whole result."""
        pipeline = await Pipeline.create(client)
        first = await pipeline.output("s", ["first"])
        await pipeline.result(await pipeline.retry(first), ["a", "retry"])
        await pipeline.output("s", ["a", "second", "time"])
        await pipeline.finish(result={"r": {"x": 1}})
        for query, count in (({}, 3), ({"occurrence": 1}, 2), ({"occurrence": 1, "attempt": 1}, 1)):
            assert (await outline(pipeline, "s", **query))["child_count"] == count
        assert (await outline(pipeline, "_ctx", path="$.r"))["children"][0]["path"] == "$.r.x"


class TestPages:
    async def test_pages_hold_every_child_once(self, client: httpx.AsyncClient) -> None:
        """Following the cursors gives all children in order, however many a page has."""
        pipeline = await Pipeline.create(client)
        await pipeline.output("s", {"list": list(range(250))})
        for limit in (None, 1000, 99):
            query = {"path": "$.list"} if limit is None else {"path": "$.list", "limit": limit}
            keys: list[int] = []
            pages = 0
            cursor: str | None = None
            while pages == 0 or cursor is not None:
                page = await outline(pipeline, "s", **query, **({} if cursor is None else {"cursor": cursor}))
                keys += [child["key"] for child in page["children"]]
                assert page["child_count"] == 250
                cursor, pages = page["next_cursor"], pages + 1
            assert keys == list(range(250))
            assert pages == {None: 3, 1000: 1, 99: 3}[limit]

    async def test_a_cursor_leads_on_in_its_own_value_alone(self, client: httpx.AsyncClient) -> None:
        """The cursor of another path, of what answered before, or made up, is refused: no page mixes two values."""
        pipeline = await Pipeline.create(client)
        dispatched = await pipeline.output("s", {"a": [1, 2, 3], "b": [1, 2, 3]})
        cursor = (await outline(pipeline, "s", path="$.a", limit=1))["next_cursor"]
        assert (await outline(pipeline, "s", path="$.a", limit=1, cursor=cursor))["children"][0]["key"] == 1
        for path, given in (("$.b", cursor), ("$.a", "x"), ("$.a", ""), ("$.a", "MS5h"), ("$.a", "é"), ("$.a", "===")):
            answer = await pipeline.get("s", "/outline", path=path, cursor=given)
            assert code_of(answer) == (400, "invalid_parameter"), given
        await pipeline.result(dispatched, {"a": [1, 2, 3, 4]})
        assert code_of(await pipeline.get("s", "/outline", path="$.a", cursor=cursor)) == (400, "invalid_parameter")

    async def test_a_large_body_is_outlined(self, client: httpx.AsyncClient) -> None:
        """A body of two megabytes is read page by page, the first time and from what is remembered."""
        pipeline = await Pipeline.create(client)
        await pipeline.output("s", {"rows": [{"row": row, "text": "x" * 180} for row in range(9000)], "tail": "y"})
        for _ in range(2):
            told = await outline(pipeline, "s")
            assert told["size_bytes"] == len(await pipeline.content("s")) > 2**20
            assert [child["child_count"] for child in told["children"]] == [9000, 0]
        page = await outline(pipeline, "s", path="$.rows[-1]")
        assert (page["path"], page["children"][0]["preview"]) == ("$.rows[8999]", "8999")


class TestConditional:
    async def test_a_tag_stands_for_all_that_the_answer_depends_on(self, client: httpx.AsyncClient) -> None:
        """Every other answer has another tag; the same question has the same one, and a 304 while it holds."""
        pipeline = await Pipeline.create(client)
        dispatched = await pipeline.output("s", {"a": [1, 2, 3]})
        answers: dict[str, bytes] = {}
        for query in ({}, {"path": "$.a"}, {"path": "$.a", "limit": 2}, {"path": "$.a", "limit": 1}):
            answer = await pipeline.get("s", "/outline", **query)
            tag = answer.headers["etag"]
            assert tag not in answers
            answers[tag] = answer.content
            again = await pipeline.get("s", "/outline", **query)
            assert (again.headers["etag"], again.content) == (tag, answer.content)
            for known in (tag, f'"x", W/{tag}', "*"):
                url = str(answer.request.url)
                unchanged = await client.get(url, headers={"If-None-Match": known})
                assert (unchanged.status_code, unchanged.content, unchanged.headers["etag"]) == (304, b"", tag)
            head = await client.head(str(answer.request.url))
            assert (head.status_code, head.content) == (200, b"")
            named = ("etag", "content-length", "content-type", "cache-control", "x-content-type-options")
            assert [head.headers[name] for name in named] == [answer.headers[name] for name in named]
        await pipeline.result(dispatched, {"a": [1, 2, 4]})
        changed = await client.get(pipeline.url("s", "/outline"), headers={"If-None-Match": ", ".join(answers)})
        assert (changed.status_code, changed.headers["etag"] in answers) == (200, False)

    async def test_a_star_does_not_hide_a_miss(self, client: httpx.AsyncClient) -> None:
        """Whoever has anything at all is still told that the path leads nowhere."""
        pipeline = await Pipeline.create(client)
        await pipeline.output("s", {})
        answer = await client.get(pipeline.url("s", "/outline?path=$.a"), headers={"If-None-Match": "*"})
        assert code_of(answer) == (404, "path_not_found")

    async def test_what_a_reader_has_is_not_loaded_again(
        self, client: httpx.AsyncClient, app: FastAPI, database_url: str
    ) -> None:
        """A 304 reads no body, and neither does a large value that was outlined just now."""
        pipeline = await Pipeline.create(client)
        statements = Statements(app, database_url)
        for name, value, is_remembered in (("small", {"a": 1}, False), ("large", {"a": "x" * 200_000}, True)):
            await pipeline.output(name, value)
            url = pipeline.url(name, "/outline")
            sent, answer = await statements.of(client, url)
            assert any(map(BODIES.search, sent))
            sent, _ = await statements.of(client, url, 304, **{"If-None-Match": answer.headers["etag"]})
            assert not any(map(BODIES.search, sent))
            sent, again = await statements.of(client, f"{url}?path=$.a")
            assert any(map(BODIES.search, sent)) is not is_remembered
            assert parsed(again)["type"] == ("string" if is_remembered else "number")

    async def test_what_is_remembered_is_bounded(
        self, client: httpx.AsyncClient, app: FastAPI, database_url: str
    ) -> None:
        """Of many large values those that were outlined last are remembered, and the others are read again."""
        pipeline = await Pipeline.create(client)
        statements = Statements(app, database_url)
        urls = []
        for number in range(CACHED_BYTES // 1_900_000 + 1):
            await pipeline.output(f"large {number}", str(number) * 1_900_000)
            urls.append(pipeline.url(f"large {number}", "/outline"))
            await statements.of(client, urls[-1])
        for url, is_remembered in ((urls[-1], True), (urls[0], False), (urls[0], True)):
            sent, _ = await statements.of(client, url)
            assert any(map(BODIES.search, sent)) is not is_remembered


class TestErrors:
    @pytest.mark.parametrize(
        ("tail", "expected"),
        [
            ("s/outline?path=$.no", (404, "path_not_found")),
            ("s/outline?path=$[", (404, "path_not_found")),
            ("s/outline?attempt=9", (404, "attempt_not_found")),
            ("s/outline?occurrence=9", (404, "occurrence_not_found")),
            ("s/outline?attempt=x", (400, "invalid_parameter")),
            ("s/outline?path=%FF", (400, "invalid_parameter")),
            ("s/outline?limit=0", (400, "invalid_parameter")),
            ("s/outline?limit=1001", (400, "invalid_parameter")),
            ("none/outline", (404, "step_not_found")),
            ("%FF/outline", (400, "invalid_parameter")),
            ("s/outline/", (404, "route_not_found")),
        ],
    )
    @one_database
    async def test_it_fails_as_content_does(
        self, client: httpx.AsyncClient, tail: str, expected: tuple[int, str]
    ) -> None:
        """What content refuses is refused with the same status, code and sentence."""
        pipeline = await Pipeline.create(client)
        await pipeline.output("s", {"a": 1})
        answer = await client.get(f"{pipeline.steps_url}/{tail}")
        assert code_of(answer) == expected
        if "limit" not in tail and not tail.endswith("/"):
            content = await client.get(f"{pipeline.steps_url}/{tail.replace('/outline', '/content')}")
            assert content.json()["error"] == answer.json()["error"]

    @one_database
    async def test_the_task_is_judged_first(self, client: httpx.AsyncClient) -> None:
        """Ids, the task, the run: in this order, as everywhere on the debug plane."""
        pipeline = await Pipeline.create(client)
        for task, run, expected in (
            ("0", "0", (400, "invalid_id")),
            ("T-0", "latest", (404, "task_not_found")),
            ("T-0", "R-0", (404, "task_not_found")),
            (pipeline.task_id, "R-0", (404, "run_not_found")),
        ):
            assert code_of(await client.get(f"/v1/tasks/{task}/runs/{run}/steps/s/outline")) == expected

    @pytest.mark.parametrize("name", ["a/b", "..", "outline", "content", "<script>alert(1)</script>", "計画", "a?b#c%"])
    @one_database
    async def test_any_name_is_outlined(self, client: httpx.AsyncClient, name: str) -> None:
        """A step is reached under any name, the route's own word included."""
        pipeline = await Pipeline.create(client)
        await pipeline.output(name, [name])
        assert (await outline(pipeline, name))["name"] == name
        assert (await pipeline.step(name))["name"] == name


class TestAccess:
    @one_database
    async def test_a_worker_sees_what_its_policy_shows(self, client: httpx.AsyncClient) -> None:
        """A worker handle outlines its own run alone, and of that the steps of its policy; it writes nothing."""
        steps = (("secret", "$.secret"), ("plan", "$.plan"), ("me", "$.me"))
        flow = blueprint_of(*steps, default_context_policy={"steps_exclude": ["secret"]})
        pipeline = await Pipeline.create(client, flow)
        other = await pipeline.another_run()
        for run in (pipeline, other):
            await run.output("secret", {"k": 1})
            await run.output("plan", {"k": 1})
        worker = bearer(await pipeline.dispatch("me"))
        expected = {pipeline.url("plan"): 200, pipeline.url("secret"): 403, other.url("plan"): 403}
        for url, status in expected.items():
            answer = await client.get(f"{url}/outline", headers=worker)
            assert answer.status_code == status, url
            assert (await client.get(f"{url}/content", headers=worker)).status_code == status
        assert code_of(await client.post(f"{pipeline.url('plan')}/outline", headers=worker)) == (403, "forbidden")
        assert code_of(await client.post(f"{pipeline.url('plan')}/outline")) == (405, "method_not_allowed")

    @one_database
    async def test_it_needs_the_operator(self, database_url: str) -> None:
        """With an operator token set, nobody outlines anything without it."""
        async with serving(
            Settings(database_url=database_url, operator_token=SecretStr("an-operators-token-4711"))
        ) as http:
            operator = {"Authorization": "Bearer an-operators-token-4711"}
            http.headers.update(operator)
            pipeline = await Pipeline.create(http)
            await pipeline.output("s", [1])
            del http.headers["Authorization"]
            url = pipeline.url("s", "/outline")
            assert code_of(await http.get(url)) == (401, "unauthenticated")
            assert code_of(await http.get(url, headers={"Authorization": "Bearer x"})) == (401, "unauthenticated")
            assert (await http.get(url, headers=operator)).status_code == 200
