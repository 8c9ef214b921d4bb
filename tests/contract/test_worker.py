"""The worker's side, contract §4: what a prompt tells, what a body becomes, and what is refused with nothing kept."""

import hashlib
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from app.config import Settings
from app.domain.rendering import read_submission
from app.main import create_app
from app.storage.urls import parse_database_url
from tests.contract.pipeline import (
    Dispatched,
    Pipeline,
    bearer,
    blueprint_of,
    code_of,
    dumped,
    parsed,
    serving,
    step_node,
)
from tests.contract.test_queries import Statements, multiplied

LIMIT = 32 * 1024
"""The largest body of these tests."""

WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
"""The characters of the Unicode property White_Space."""


@pytest.fixture
def settings(database_url: str) -> Settings:
    """Settings with a small limit."""
    return Settings(database_url=database_url, max_output_bytes=LIMIT)


@pytest.fixture
async def pipeline(client: httpx.AsyncClient) -> Pipeline:
    """A run without a Blueprint."""
    return await Pipeline.create(client)


_OWN_QUERY: dict[str, dict[str, str]] = {"submit": {}, "result": {}, "artifact": {"name": "part"}}


async def _count(database_url: str, table: str) -> int:
    engine = create_async_engine(parse_database_url(database_url).async_url)
    try:
        async with engine.connect() as connection:
            return int((await connection.execute(text(f"SELECT count(*) FROM {table}"))).scalar_one())  # noqa: S608
    finally:
        await engine.dispose()


async def _finals(database_url: str, dispatched: Dispatched) -> list[Any]:
    """Read every Final of a step from the database itself, in the order in which they came."""
    query = (
        "SELECT b.data FROM outputs o JOIN bodies b ON b.id = o.body_id "
        "WHERE o.step_id = :step AND o.type = 'final' ORDER BY o.seq"
    )
    engine = create_async_engine(parse_database_url(database_url).async_url)
    try:
        async with engine.connect() as connection:
            rows = (await connection.execute(text(query), {"step": dispatched["step_id"]})).all()
    finally:
        await engine.dispose()
    return [json.loads(bytes(row[0])) for row in rows]


async def _send(
    pipeline: Pipeline, dispatched: Dispatched, body: Any, route: str = "submit", **query: Any
) -> httpx.Response:
    return await pipeline.http.post(f"/v1/worker/{route}", content=body, params=query, headers=bearer(dispatched))


async def _value(pipeline: Pipeline, name: str) -> Any:
    return json.loads(await pipeline.content(name, format="json"))


class TestPrompt:
    """GET /v1/worker/prompt."""

    @pytest.fixture
    def dialect(self) -> str:
        """One database is enough: what it keeps of a text is tried elsewhere."""
        return "sqlite"

    async def test_a_directive_is_the_prompt(self, pipeline: Pipeline) -> None:
        """A string directive is the prompt as it is, any other value its compact JSON."""
        cases: list[tuple[Any, str]] = [
            ("  do it\n\n", "  do it\n\n"),
            ('{"looks": "like JSON"}', '{"looks": "like JSON"}'),
            ("", ""),
            ("nul \x00 and 日本 and \x01", "nul \x00 and 日本 and \x01"),
            ({"b": [1, 2.5, None], "a": "é"}, '{"b":[1,2.5,null],"a":"é"}'),
            ([], "[]"),
            (12345678901234567890123, "12345678901234567890123"),
            (True, "true"),
            (None, "null"),
        ]
        for directive, expected in cases:
            prompt = await pipeline.prompt(await pipeline.dispatch("ask", directive))
            assert prompt["prompt"] == expected, directive

    async def test_a_prompt_says_whose_it_is(self, pipeline: Pipeline) -> None:
        """The prompt names its step, attempt and ref, the same with and without ``task_id``."""
        first = await pipeline.dispatch("ask")
        second = await pipeline.retry(first)
        for attempt, dispatched in enumerate((first, second), 1):
            prompt = await pipeline.prompt(dispatched)
            assert (prompt["task_id"], prompt["attempt"], prompt["agent"]) == (first["step_id"], attempt, "ask")
            assert prompt["context"]["task_id"] == first["step_id"]
            assert (prompt["context"]["agent"], prompt["context"]["attempt"]) == ("ask", attempt)
            assert prompt["context"]["run_id"] == pipeline.run_id
            assert "system" not in prompt
            assert "system_ref" not in prompt
            answer = await pipeline.http.get(dispatched["prompt_url"], headers=bearer(dispatched))
            assert parsed(answer) == prompt

    async def test_a_long_system_prompt_is_referred_to(self, pipeline: Pipeline) -> None:
        """Up to 25,600 bytes the system prompt travels along; over that, its place, digest and size do."""
        inline = "é" * 12_800
        prompt = await pipeline.prompt(await pipeline.dispatch("ask", system=inline))
        assert prompt["system"] == inline
        assert "system_ref" not in prompt

        long = inline + "\n"
        dispatched = await pipeline.dispatch("ask", system=long)
        prompt = await pipeline.prompt(dispatched)
        assert "system" not in prompt
        reference = prompt["system_ref"]
        address, _, ticket = reference.pop("uri").rpartition("&ticket=")
        assert address == f"/v1/worker/prompt/system?task_id={dispatched['step_id']}&attempt=1"
        assert re.fullmatch("[0-9a-f]{32}", ticket)
        assert reference == {
            "sha256": hashlib.sha256(long.encode()).hexdigest(),
            "size_bytes": 25_601,
            "mode": "http",
        }
        served = await pipeline.http.get(address, headers=bearer(dispatched))
        assert served.content == long.encode()
        assert served.headers["content-type"] == "text/plain; charset=utf-8"
        for query in ({"attempt": 2}, {"task_id": "ST-another"}):
            refused = await pipeline.http.get("/v1/worker/prompt/system", params=query, headers=bearer(dispatched))
            assert code_of(refused) == (403, "forbidden")
        without = await pipeline.dispatch("ask")
        answer = await pipeline.http.get("/v1/worker/prompt/system", headers=bearer(without))
        assert code_of(answer) == (404, "not_found")

    async def test_urls_are_absolute_behind_a_base_url(self, database_url: str) -> None:
        """With a base URL each URL that a worker is given begins with it, whatever its trailing slashes."""
        application = create_app(Settings(database_url=database_url, base_url="https://plane.example/debug//"))
        async with (
            application.router.lifespan_context(application),
            httpx.AsyncClient(transport=httpx.ASGITransport(application), base_url="http://test") as http,
        ):
            pipeline = await Pipeline.create(http)
            await pipeline.output("first", 1)
            dispatched = await pipeline.dispatch("second", system="x" * 25_601)
            prompt = await pipeline.prompt(dispatched)
        urls = [dispatched["prompt_url"], dispatched["submit_url"], prompt["system_ref"]["uri"]]
        urls += [pointer["content_url"] for pointer in prompt["context"]["steps"]]
        assert len(urls) == 4
        assert all(url.startswith("https://plane.example/debug/v1/") for url in urls), urls


class TestContext:
    """The view and the pointers of a prompt."""

    @pytest.fixture
    def dialect(self) -> str:
        """One database is enough: the names and the order of a run's outputs are tried elsewhere."""
        return "sqlite"

    async def test_a_policy_filters_what_is_shown_and_nothing_else(
        self, client: httpx.AsyncClient, work_dir: Path
    ) -> None:
        """A policy hides fields from the worker; files, ``@file:`` and the submit format go by the unfiltered view."""
        policy = {"exclude": ["work_dir", "run_id", "extra", "task_metadata"]}
        blueprint = blueprint_of(("ask", "$.ask"), default_context_policy=policy)
        pipeline = await Pipeline.create(client, blueprint, work_dir=str(work_dir), task_metadata={"k": 1})
        switches = {"allow_file_submit": True, "submit_format": "text", "seen": 1}
        dispatched = await pipeline.dispatch("ask", ctx=switches)
        context = (await pipeline.prompt(dispatched))["context"]
        assert context == {"task_id": dispatched["step_id"], "agent": "ask", "attempt": 1, "steps": []}
        (work_dir / "body.json").write_text('{"a": 1}')
        await pipeline.submit(dispatched, f"@file:{work_dir}/body.json")
        assert await _value(pipeline, "ask") == '{"a": 1}'
        assert Path((await pipeline.step("ask"))["file_path"]).is_relative_to(work_dir)

    async def test_the_view_lies_in_the_ctx_file_too(self, client: httpx.AsyncClient, work_dir: Path) -> None:
        """``ctx_projection`` is the file that holds what the worker is shown, without the pointers."""
        pipeline = await Pipeline.create(client, work_dir=str(work_dir), task_metadata={"k": [1]})
        dispatched = await pipeline.dispatch("ask", ctx={"project_name_alias": "p", "x": "y"})
        context = (await pipeline.prompt(dispatched))["context"]
        path = Path(dispatched["ctx_projection"])
        assert path == work_dir / f"workspace/tasks/{dispatched['step_id']}/ctx/_ctx.md"
        assert json.loads(read_submission(path.read_bytes())) == {
            name: item for name, item in context.items() if name != "steps"
        }
        assert context["extra"] == {"x": "y"}
        assert (context["work_dir"], context["task_metadata"]) == (str(work_dir), {"k": [1]})

    async def test_the_tiers_of_a_view_lie_over_each_other(self, client: httpx.AsyncClient) -> None:
        """Launch input wins over the dispatch's ctx, that over the agent's, its meta's, and the Blueprint's."""
        every = {"project_root": "/blueprint", "work_dir": "/blueprint", "project_name_alias": "blueprint"}
        blueprint = blueprint_of(
            ("ask", "$.ask"),
            agents=[{"name": "ask", "meta": {"meta_ref": "shared", "ctx": {"c": "agent", "d": "agent"}}}],
            metas=[{"name": "shared", "ctx": {"b": "meta", "c": "meta"}}],
            default_agent_ctx={**every, "a": "blueprint", "b": "blueprint", "extra": {"inner": 1}},
        )
        pipeline = await Pipeline.create(client, blueprint, project_root="/launch")
        dispatched = await pipeline.dispatch("ask", ctx={"project_root": "/dispatch", "d": "dispatch", "task_id": "no"})
        context = (await pipeline.prompt(dispatched))["context"]
        assert (context["project_root"], context["work_dir"]) == ("/launch", "/blueprint")
        assert context["project_name_alias"] == "blueprint"
        assert context["task_id"] == dispatched["step_id"]
        assert context["extra"] == {"a": "blueprint", "b": "meta", "c": "agent", "d": "dispatch", "inner": 1}

    async def test_a_pointer_is_what_the_debug_plane_tells(self, client: httpx.AsyncClient, work_dir: Path) -> None:
        """A pointer's size, digest, URL and file are those of the debug plane, at each fetch anew; never a content."""
        pipeline = await Pipeline.create(client)
        plain = await pipeline.output("plain", {"text": "x" * 3_000})
        filed = await pipeline.dispatch("filed", ctx={"work_dir": str(work_dir)})
        await pipeline.submit(filed, "in a file")
        await pipeline.stage(plain, "part.md", "# part")
        reader = await pipeline.dispatch("reader")
        seen = []
        for body in ("first", "second"):
            await pipeline.submit(plain, body)
            pointers = (await pipeline.prompt(reader))["context"]["steps"]
            summaries = await pipeline.steps()
            fields = ("name", "size_bytes", "file_path", "content_url", "sha256")
            assert pointers == [{field: step[field] for field in fields if field in step} for step in summaries]
            for pointer in pointers:
                body_now = await client.get(pointer["content_url"])
                assert hashlib.sha256(body_now.content).hexdigest() == pointer["sha256"]
                assert len(body_now.content) == pointer["size_bytes"]
            seen.append(pointers)
        assert [pointer["name"] for pointer in seen[0]] == ["filed", "part.md", "plain"]
        assert seen[0][2]["sha256"] != seen[1][2]["sha256"]
        assert "file_path" in seen[0][0]

    async def test_a_policy_chooses_the_steps_by_any_of_their_names(self, client: httpx.AsyncClient) -> None:
        """``steps`` and ``steps_exclude`` take canonical names and aliases; exclusion wins; ``[]`` is none."""
        policies: dict[str, tuple[dict[str, Any] | None, list[str]]] = {
            "everything": (None, ["code", "the plan", "undeclared"]),
            "nothing": ({"steps": []}, []),
            "by-name": ({"steps": ["the plan"]}, ["the plan"]),
            "by-ref": ({"steps": ["plan"]}, ["the plan"]),
            "by-out": ({"steps": ["draft"]}, ["the plan"]),
            "but-one": ({"steps_exclude": ["draft"]}, ["code", "undeclared"]),
            "both": ({"steps": ["plan", "code"], "steps_exclude": ["the plan"]}, ["code"]),
            "unknown": ({"steps": ["undeclared", "nobody"]}, ["undeclared"]),
        }
        blueprint = blueprint_of(("plan", "$.draft"), ("code", "$.code"))
        blueprint["flow"]["children"] += [step_node(name, f'$["{name}"]') for name in policies]
        blueprint["agents"] = [{"name": "plan", "meta": {"projection_name": "the plan"}}] + [
            {"name": name, "meta": {} if policy is None else {"context_policy": policy}}
            for name, (policy, _) in policies.items()
        ]
        pipeline = await Pipeline.create(client, blueprint)
        for ref in ("plan", "code", "undeclared"):
            await pipeline.output(ref, ref)
        for name, (_, expected) in policies.items():
            prompt = await pipeline.prompt(await pipeline.dispatch(name))
            assert [pointer["name"] for pointer in prompt["context"]["steps"]] == expected, name

    async def test_a_worker_is_never_pointed_at_itself(self, client: httpx.AsyncClient) -> None:
        """A worker's own step is not among its pointers, in no attempt and no occurrence, by whatever name."""
        blueprint = blueprint_of(("plan", "$.draft"), ("code", "$.code"), names={"plan": "the plan"})
        pipeline = await Pipeline.create(client, blueprint)
        first = await pipeline.output("plan", 1)
        await pipeline.output("code", 2)
        for dispatched in (first, await pipeline.retry(first), await pipeline.dispatch("plan")):
            prompt = await pipeline.prompt(dispatched)
            assert [pointer["name"] for pointer in prompt["context"]["steps"]] == ["code"]

    async def test_of_too_many_steps_the_newest_are_pointed_at(self, database_url: str) -> None:
        """Beyond ``max_pointers`` those submitted last are pointed at, by name; the rest is a count and a URL."""
        async with serving(Settings(database_url=database_url, max_pointers=3)) as http:
            pipeline = await Pipeline.create(http)
            reader = await pipeline.dispatch("reader")
            first = await pipeline.output("a-first", 1)
            for name in ("d", "c", "b"):
                await pipeline.output(name, name)
            await pipeline.submit(reader, "its own, which counts as none of them")
            context: dict[str, Any] = {}
            for submitted in ("once more", "and again"):
                await pipeline.submit(first, submitted)
                context = (await pipeline.prompt(reader))["context"]
                listed = [step for step in await pipeline.steps() if step["name"] != "reader"]
                newest = sorted(listed, key=lambda step: step["submitted_at"], reverse=True)[:3]
                fields = ("name", "size_bytes", "content_url", "sha256")
                told = [{field: step[field] for field in fields} for step in listed]
                assert context["steps"] == [
                    pointer for pointer, step in zip(told, listed, strict=True) if step in newest
                ]
                assert context["steps_omitted"] == {"count": 1, "list_url": pipeline.steps_url}
            assert "a-first" in {pointer["name"] for pointer in context["steps"]}

    async def test_of_few_steps_nothing_is_told_beside_them(self, database_url: str) -> None:
        """As many pointers as are allowed, and the worker's own step, leave nothing out: no key tells of any."""
        async with serving(Settings(database_url=database_url, max_pointers=2)) as http:
            pipeline = await Pipeline.create(http)
            reader = await pipeline.output("reader", 0)
            for name in ("a", "b"):
                await pipeline.output(name, name)
            context = (await pipeline.prompt(reader))["context"]
            assert [pointer["name"] for pointer in context["steps"]] == ["a", "b"]
            assert "steps_omitted" not in context

    async def test_the_list_of_what_is_omitted_is_the_workers_to_fetch(self, database_url: str) -> None:
        """Behind ``list_url`` its handle finds every step that its policy shows and no other; ``count`` is of those."""
        blueprint = blueprint_of(("reader", "$.r"), default_context_policy={"steps_exclude": ["secret"]})
        settings = Settings(database_url=database_url, max_pointers=2, base_url="https://plane.example/debug")
        async with serving(settings) as http:
            pipeline = await Pipeline.create(http, blueprint)
            for name in ("secret", "a", "b", "c"):
                await pipeline.output(name, name)
            reader = await pipeline.dispatch("reader")
            context = (await pipeline.prompt(reader))["context"]
            omitted = context["steps_omitted"]
            assert omitted["list_url"].startswith("https://plane.example/debug/v1/")
            list_path = omitted["list_url"].removeprefix("https://plane.example/debug")
            listed = parsed(await http.get(list_path, headers=bearer(reader)))["steps"]
            assert [step["name"] for step in listed] == ["a", "b", "c"]
            assert omitted["count"] == len(listed) - len(context["steps"]) == 1

    async def test_five_thousand_earlier_steps_are_a_short_prompt(
        self, client: httpx.AsyncClient, app: FastAPI, database_url: str
    ) -> None:
        """Of 5,000 earlier steps a prompt has 200 pointers, in under 64 KiB, and counts the other 4,800."""
        pipeline = await Pipeline.create(client)
        await pipeline.output("step-00000", {"a": "body"})
        await multiplied(Statements(app, database_url), ("dispatches", "outputs", "projections"), "step-00000", 5_000)
        reader = await pipeline.dispatch("reader")
        answer = await client.get("/v1/worker/prompt", headers=bearer(reader))
        context = parsed(answer)["context"]
        assert len(context["steps"]) == 200
        assert context["steps_omitted"]["count"] == 4_800
        assert len(answer.content) < 64 * 1024

    async def test_pointers_stay_inside_the_run(self, client: httpx.AsyncClient) -> None:
        """What another run of the same task put out is pointed at by nobody."""
        first = await Pipeline.create(client)
        await first.output("plan", 1)
        second = await first.another_run()
        assert (await second.prompt(await second.dispatch("code")))["context"]["steps"] == []


class TestFolding:
    """What value a submitted body becomes."""

    @pytest.fixture
    def dialect(self) -> str:
        """One database is enough: a body is folded before it."""
        return "sqlite"

    async def test_a_json_container_is_that_value_and_all_else_text(self, pipeline: Pipeline) -> None:
        """An object or array is that value, also inside one fence; scalars and anything else stay the text."""
        big = 123456789012345678901234567890
        folded: list[tuple[str, Any]] = [
            ('{"a": [1, 2.5, null], "b": "é"}', {"a": [1, 2.5, None], "b": "é"}),
            ("[]", []),
            ("\ufeff{}", {}),
            ("\n\t {}", {}),
            (f'{{"big": {big}}}', {"big": big}),
            ('```json\n{"a": 1}\n```', {"a": 1}),
            ("```\n[1]\n```\n\n", [1]),
            ("~~~ json\r\n[1]\n~~~", [1]),
            ('````json\n{"code": "```"}\n````', {"code": "```"}),
            ("[" * 200 + "1" + "]" * 200, json.loads("[" * 200 + "1" + "]" * 200)),
        ]
        texts = [
            "42", "true", "null", '"quoted"', "1e5", "", "plain", "```json\n42\n```", "```\nno json\n```",
            'before\n```json\n{"a": 1}\n```', '```json\n{"a": 1}\n```\nafter', "```json\n{}\n```\n```json\n{}\n```",
            '{"a": 1', '{"a": NaN}', "[1e999]", "{} {}", "[1],", "  leading", "'[1]'", "[" * 201 + "1" + "}" * 201,
            "\ufeffplain", "\ufeff42", "a\x00b\x01", "<b>html</b>", "@files:/etc/passwd", "see @file:/etc/passwd",
            "@file:/etc/passwd\nand more",
        ]  # fmt: skip
        dispatched = await pipeline.dispatch("ask")
        for body, expected in [*folded, *((each, each) for each in texts)]:
            await pipeline.submit(dispatched, body)
            assert await _value(pipeline, "ask") == expected, body[:80]

    async def test_white_space_at_the_end_is_removed(self, pipeline: Pipeline) -> None:
        """Trailing Unicode white space goes, every character of it; U+001C to U+001F and all at the start stay."""
        cases = {f"x{space}": "x" for space in WHITE_SPACE}
        cases |= {f"x{char}": f"x{char}" for char in "\x1c\x1d\x1e\x1f\u200b\ufeff\u180e\x00"}
        cases |= {f"x{WHITE_SPACE}": "x", "x\u2028\x1c\u2029\x85": "x\u2028\x1c", WHITE_SPACE: "", " \xa0x": " \xa0x"}
        dispatched = await pipeline.dispatch("ask")
        for body, expected in cases.items():
            await pipeline.submit(dispatched, body)
            assert await _value(pipeline, "ask") == expected, repr(body)

    async def test_a_body_that_is_no_utf8_is_refused(self, pipeline: Pipeline, database_url: str) -> None:
        """Bytes that are no UTF-8 are 422 ``invalid_utf8`` on every raw route, and nothing of them is kept."""
        dispatched = await pipeline.dispatch("ask")
        for body in (b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"cut \xe2\x82", b'{"a": "\xe9"}'):
            for route, query in (("submit", {}), ("artifact", {"name": "part"})):
                answer = await _send(pipeline, dispatched, body, route, **query)
                assert code_of(answer) == (422, "invalid_utf8"), body
        assert await pipeline.steps() == []
        assert await _count(database_url, "outputs") == await _count(database_url, "bodies") == 0

    async def test_the_submit_format_json_takes_any_json_and_nothing_else(self, pipeline: Pipeline) -> None:
        """With ``submit_format: json`` a scalar is its value too, and what is no JSON is 422 ``not_json``."""
        dispatched = await pipeline.dispatch("ask", ctx={"submit_format": "json"})
        for body, expected in [("42", 42), ('"x"', "x"), ("null", None), ("```\ntrue\n```", True), ("[1]\n", [1])]:
            await pipeline.submit(dispatched, body)
            assert await _value(pipeline, "ask") == expected
        for body in ("", "plain", "{", "NaN", "1 2"):
            assert code_of(await _send(pipeline, dispatched, body)) == (422, "not_json")
        assert await _value(pipeline, "ask") == [1]

    async def test_the_submit_format_text_keeps_the_string(self, pipeline: Pipeline) -> None:
        """With ``submit_format: text`` a body is the string it is, JSON or not; an unknown format is the default."""
        plain = await pipeline.dispatch("ask", ctx={"submit_format": "text"})
        for body in ('{"a": 1}', "[1]", "```json\n{}\n```", "x"):
            await pipeline.submit(plain, body)
            assert await _value(pipeline, "ask") == body
        unknown = await pipeline.dispatch("other", ctx={"submit_format": ["json"]})
        await pipeline.submit(unknown, "[1]")
        assert await _value(pipeline, "other") == [1]

    async def test_a_parts_body_is_its_text(self, pipeline: Pipeline) -> None:
        """A staged part is the very bytes that were sent, white space at their end too; only a Final is folded."""
        dispatched = await pipeline.dispatch("ask", ctx={"submit_format": "json"})
        for body in ('{"b": 1,  "a": 2}', "# notes\n", " \n", "", "```json\n{}\n```\n", "x\u2028\x85\x1c"):
            await pipeline.stage(dispatched, "data.json", body)
            assert await pipeline.content("data.json") == body.encode()


class TestVerdict:
    """``ok`` and ``verdict``."""

    @pytest.fixture
    def dialect(self) -> str:
        """One database is enough: the words are judged before it."""
        return "sqlite"

    async def test_what_a_final_says_of_its_step(self, pipeline: Pipeline) -> None:
        """Each word and flag leads to its ``ok`` and its status, and a failed step's OUTPUT is shown all the same."""
        cases: list[tuple[dict[str, str], bool, str]] = [
            ({}, True, "passed"),
            ({"ok": "true"}, True, "passed"),
            ({"ok": "false"}, False, "blocked"),
            ({"verdict": "pass"}, True, "passed"),
            ({"verdict": "blocked"}, False, "blocked"),
            ({"verdict": "skip"}, True, "skipped"),
            ({"verdict": "pass", "ok": "true"}, True, "passed"),
            ({"verdict": "blocked", "ok": "false"}, False, "blocked"),
            ({"verdict": "skip", "ok": "true"}, True, "skipped"),
        ]
        dispatched = await pipeline.dispatch("ask")
        assert (await pipeline.entries())[0]["status"] == "dispatched"
        for query, ok, status in cases:
            await pipeline.submit(dispatched, f"said {query}", **query)
            assert (await pipeline.step("ask"))["ok"] is ok
            (entry,) = await pipeline.entries()
            assert entry["status"] == status, query
            assert entry["completed_at"] is not None
            assert await _value(pipeline, "ask") == f"said {query}"

    async def test_a_contradiction_is_refused(self, pipeline: Pipeline, database_url: str) -> None:
        """A verdict against ``ok``, an unknown one, or an ``ok`` that is no boolean is 400, and nothing is kept."""
        dispatched = await pipeline.dispatch("ask")
        cases: list[tuple[dict[str, str], str]] = [
            ({"verdict": "pass", "ok": "false"}, "invalid_verdict"),
            ({"verdict": "blocked", "ok": "true"}, "invalid_verdict"),
            ({"verdict": "skip", "ok": "false"}, "invalid_verdict"),
            ({"verdict": "PASS"}, "invalid_verdict"),
            ({"verdict": "fail"}, "invalid_verdict"),
            ({"verdict": ""}, "invalid_verdict"),
            ({"ok": "maybe"}, "invalid_parameter"),
        ]
        for query, code in cases:
            assert code_of(await _send(pipeline, dispatched, "x", **query)) == (400, code), query
        assert (await pipeline.entries())[0]["status"] == "dispatched"
        assert await _count(database_url, "outputs") == 0

    async def test_the_newest_final_settles_the_status(self, pipeline: Pipeline) -> None:
        """A step that was blocked and submits again as a pass has passed, with its last OUTPUT."""
        dispatched = await pipeline.dispatch("ask")
        await pipeline.submit(dispatched, "no", verdict="blocked")
        await pipeline.submit(dispatched, "yes")
        assert (await pipeline.entries())[0]["status"] == "passed"
        assert ((await pipeline.step("ask"))["ok"], await _value(pipeline, "ask")) == (True, "yes")


class TestFinals:
    """Submitting more than once, and the values of ``result``."""

    async def test_every_final_is_kept_and_the_newest_answers(self, pipeline: Pipeline, database_url: str) -> None:
        """Submitting again while the run lives appends: no Final is lost, the last one answers."""
        dispatched = await pipeline.dispatch("ask")
        await pipeline.submit(dispatched, "one")
        await pipeline.result(dispatched, {"two": 2})
        await pipeline.submit(dispatched, "three", ok=False)
        assert await _finals(database_url, dispatched) == ["one", {"two": 2}, "three"]
        assert await _value(pipeline, "ask") == "three"

    async def test_a_late_attempt_is_kept_behind_the_newer_one(self, pipeline: Pipeline, database_url: str) -> None:
        """A Final of attempt 1 after one of attempt 2 is kept, and attempt 2 still answers."""
        first = await pipeline.dispatch("ask")
        second = await pipeline.retry(first)
        await pipeline.submit(second, "second")
        await pipeline.submit(first, "late")
        assert await _value(pipeline, "ask") == "second"
        assert json.loads(await pipeline.content("ask", attempt=1)) == "late"
        assert await _finals(database_url, first) == ["second", "late"]
        assert [entry["status"] for entry in await pipeline.entries()] == ["passed", "passed"]

    async def test_a_result_is_kept_as_it_is_sent(self, pipeline: Pipeline) -> None:
        """``result`` neither folds nor trims: text stays text, a scalar a scalar, an integer of any size exact."""
        dispatched = await pipeline.dispatch("ask")
        values = [
            '{"a": 1}',
            "x \n",
            "",
            "nul \x00 \x01 \ufeff\U0001f600",
            None,
            False,
            0,
            2.5,
            10**40,
            [1, {"z": 1, "a": []}],
            "@file:/etc/passwd",
        ]
        for value in values:
            await pipeline.result(dispatched, value)
            kept = await _value(pipeline, "ask")
            assert (kept, type(kept)) == (value, type(value))
        await pipeline.result(dispatched, "no", ok=False, attempt=1)
        assert (await pipeline.step("ask"))["ok"] is False

    async def test_a_malformed_result_is_refused(self, pipeline: Pipeline, database_url: str) -> None:
        """A result without a value, with an unknown field or of no JSON says what is wrong, and is not kept."""
        dispatched = await pipeline.dispatch("ask")
        step_id = dispatched["step_id"]
        cases = [
            (dumped({"task_id": step_id}), 422, "invalid_request"),
            (dumped({"value": 1}), 422, "invalid_request"),
            (dumped({"task_id": step_id, "value": 1, "okay": True}), 422, "invalid_request"),
            (dumped({"task_id": step_id, "value": 1, "ok": None}), 422, "invalid_request"),
            (dumped({"task_id": step_id, "value": 1, "attempt": 0}), 422, "invalid_request"),
            (dumped({"task_id": "nonsense", "value": 1}), 400, "invalid_id"),
            (b'{"task_id": "' + step_id.encode() + b'", "value": NaN}', 400, "invalid_json"),
            (b"{", 400, "invalid_json"),
        ]
        for body, status, code in cases:
            answer = await _send(pipeline, dispatched, body, "result")
            assert code_of(answer) == (status, code), body
        assert await _count(database_url, "outputs") == 0


class TestArtifact:
    """POST /v1/worker/artifact."""

    @pytest.fixture
    def dialect(self) -> str:
        """One database is enough: what it keeps of a text is tried elsewhere."""
        return "sqlite"

    async def test_the_newest_part_of_a_name_wins(self, pipeline: Pipeline) -> None:
        """A part is listed under its own name, with the type of its ending; staged again, the newest answers."""
        dispatched = await pipeline.dispatch("ask")
        for name in ("notes.md", "data.json", "log", "a/b c?.txt"):
            await pipeline.stage(dispatched, name, "first")
            await pipeline.stage(dispatched, name, f"second of {name}")
            assert await pipeline.content(name) == f"second of {name}".encode()
        steps = {step["name"]: step for step in await pipeline.steps()}
        assert {name: step["content_type"] for name, step in steps.items()} == {
            "a/b c?.txt": "text/plain; charset=utf-8",
            "data.json": "application/json",
            "log": "text/plain; charset=utf-8",
            "notes.md": "text/markdown; charset=utf-8",
        }
        assert all((step["kind"], step["ok"], step["step_ref"]) == ("artifact", None, "ask") for step in steps.values())
        assert (await pipeline.entries())[0]["status"] == "dispatched"

    async def test_a_part_has_a_name_that_can_be_kept(self, pipeline: Pipeline, database_url: str) -> None:
        """A part without a name, with an empty or endless one, or its own step's is refused, and not kept."""
        dispatched = await pipeline.dispatch("ask")
        cases: list[tuple[dict[str, str], tuple[int, str]]] = [
            ({}, (400, "invalid_parameter")),
            ({"name": ""}, (422, "invalid_name")),
            ({"name": "é" * 513}, (422, "invalid_name")),
            ({"name": "ask"}, (400, "invalid_parameter")),
        ]
        for query, expected in cases:
            assert code_of(await _send(pipeline, dispatched, "x", "artifact", **query)) == expected, query
        assert await _count(database_url, "outputs") == 0

    async def test_a_part_may_not_take_the_steps_own_files(self, client: httpx.AsyncClient, work_dir: Path) -> None:
        """A part called as the Final's file or the view's is 409 and never touches those files."""
        pipeline = await Pipeline.create(client, work_dir=str(work_dir))
        dispatched = await pipeline.dispatch("ask")
        view = Path(dispatched["ctx_projection"]).read_bytes()
        await pipeline.submit(dispatched, "the final")
        final = await pipeline.content("ask")
        for name in ("ask.md", "_ctx.md"):
            assert code_of(await _send(pipeline, dispatched, "the part", "artifact", name=name)) == (409, "name_taken")
        assert await pipeline.names() == ["ask"]
        assert await pipeline.content("ask") == final
        assert Path(dispatched["ctx_projection"]).read_bytes() == view


def _opens_of_this_process() -> list[object]:
    """Note what is opened from now on; a hook cannot be taken away, and an unused list costs nothing."""
    opened: list[object] = []
    sys.addaudithook(lambda event, given: opened.append(given[0]) if event == "open" else None)
    return opened


class TestFileBodies:
    """``@file:`` as the whole body."""

    @pytest.fixture
    def dialect(self) -> str:
        """One database is enough: files are none of its affairs."""
        return "sqlite"

    @pytest.fixture
    async def pipeline(self, client: httpx.AsyncClient, work_dir: Path) -> Pipeline:
        """A run whose workers have a work_dir."""
        return await Pipeline.create(client, work_dir=str(work_dir))

    @pytest.fixture
    async def allowed(self, pipeline: Pipeline) -> Dispatched:
        """A step that may submit files."""
        return await pipeline.dispatch("ask", ctx={"allow_file_submit": True})

    async def test_a_file_stands_for_its_content(self, pipeline: Pipeline, allowed: Dispatched, work_dir: Path) -> None:
        """A regular file under the work_dir, after links are resolved, is taken as if its content had been sent."""
        (work_dir / "sub").mkdir()
        (work_dir / "sub/out.json").write_bytes(b'{"a": [1]} \n')
        (work_dir / "link").symlink_to(work_dir / "sub/out.json")
        (work_dir / "full").write_bytes(b"x" * LIMIT)
        for path in ("sub/out.json", "link", "sub/../sub/out.json"):
            await pipeline.submit(allowed, f"@file:{work_dir}/{path}\n")
            assert await _value(pipeline, "ask") == {"a": [1]}
            await pipeline.submit(allowed, "between")
        await pipeline.stage(allowed, "part.json", f"@file:{work_dir}/sub/out.json")
        assert await pipeline.content("part.json") == b'{"a": [1]} \n'
        await pipeline.submit(allowed, f"@file:{work_dir}/full")
        assert await _value(pipeline, "ask") == "x" * LIMIT

    async def test_only_exactly_true_allows_it(self, pipeline: Pipeline, work_dir: Path, database_url: str) -> None:
        """Anything but the boolean true in ``extra.allow_file_submit`` is a refusal."""
        (work_dir / "out").write_text("x")
        for given in ({}, *({"allow_file_submit": item} for item in (False, 1, 1.0, "true", [True], {"a": True}))):
            dispatched = await pipeline.dispatch("ask", ctx=given)
            for route, query in (("submit", {}), ("artifact", {"name": "part"})):
                answer = await _send(pipeline, dispatched, f"@file:{work_dir}/out", route, **query)
                assert code_of(answer) == (400, "file_submit_refused"), given
        assert await _count(database_url, "outputs") == 0

    async def test_what_lies_outside_is_refused_alike_whether_it_exists(
        self, pipeline: Pipeline, allowed: Dispatched, work_dir: Path, database_url: str
    ) -> None:
        """No answer tells whether there is a file outside, and none is ever read, by no spelling and no link."""
        outside = work_dir.parent / "secret"
        outside.write_text("the secret")
        sibling = work_dir.with_name(work_dir.name + "-sibling")
        sibling.mkdir()
        (sibling / "secret").write_text("the secret")
        (work_dir / "out").symlink_to(outside)
        (work_dir / "dangling").symlink_to(work_dir.parent / "nothing")
        (work_dir / "directory").symlink_to(work_dir.parent)
        (work_dir / "loop").symlink_to(work_dir / "loop")
        paths = [
            outside, work_dir.parent / "nothing", sibling / "secret", f"{work_dir}/../secret", f"{work_dir}/../nothing",
            work_dir / "out", work_dir / "dangling", work_dir / "directory/secret", work_dir / "directory/nothing",
            work_dir / "loop", work_dir / "missing", "/dev/zero", "/proc/self/environ", "relative", "", "~/secret",
            f"{work_dir}\x00/out", f"/{'x' * 5000}", "file:///etc/passwd", work_dir, "/",
        ]  # fmt: skip
        answers = set()
        for path in paths:
            for route, query in (("submit", {}), ("artifact", {"name": "part"})):
                answer = await _send(pipeline, allowed, f"@file:{path}", route, **query)
                told = json.loads(answer.content)
                del told["request_id"]
                answers.add((answer.status_code, json.dumps(told)))
        assert len(answers) == 1, answers
        ((status, told_alike),) = answers
        assert status == 400
        assert "secret" not in told_alike
        assert await _count(database_url, "outputs") == 0

    async def test_a_path_that_no_file_system_takes_is_refused_unasked(
        self, pipeline: Pipeline, allowed: Dispatched, work_dir: Path
    ) -> None:
        """A path of over 4,096 bytes, or with a part of over 255, is 400 and opens nothing, however long it is."""
        opened = _opens_of_this_process()
        fits = f"{work_dir}/{'./' * 2048}"[: 4096 - len("/out")] + "/out"
        (work_dir / "out").write_text("out")
        (work_dir / ("n" * 255)).write_text("long")
        for path in (fits, f"{work_dir}/{'n' * 255}"):
            await pipeline.submit(allowed, f"@file:{path}")
        assert len(fits.encode()) == 4096
        assert await _value(pipeline, "ask") == "long"
        for path in (
            f"{fits}x",
            f"/{fits}",
            f"{work_dir}/{'n' * 256}",
            f"{work_dir}/{'é' * 128}",
            "/" + "a/" * (LIMIT // 2 - 10),
        ):
            opened.clear()
            answer = await _send(pipeline, allowed, f"@file:{path}")
            assert code_of(answer) == (400, "file_submit_refused"), path[-20:]
            assert not [each for each in opened if isinstance(each, str) and each in {"/", str(work_dir)}]

    async def test_what_is_no_regular_file_is_refused(
        self, pipeline: Pipeline, allowed: Dispatched, work_dir: Path
    ) -> None:
        """A directory and a named pipe inside the work_dir are refused, and the pipe stops nobody."""
        (work_dir / "directory").mkdir()
        os.mkfifo(work_dir / "pipe")
        for name in ("directory", "pipe", "directory/..", "directory/"):
            answer = await _send(pipeline, allowed, f"@file:{work_dir}/{name}")
            assert code_of(answer) == (400, "file_submit_refused")

    async def test_a_file_of_two_names_or_of_another_user_is_refused(
        self, pipeline: Pipeline, allowed: Dispatched, work_dir: Path
    ) -> None:
        """A second name can stand for any file of the disk, and another's file is not the worker's to hand in."""
        (work_dir.parent / "secret").write_text("the secret")
        (work_dir / "linked").hardlink_to(work_dir.parent / "secret")
        names = ["linked"]
        if os.geteuid() == 0:  # who is not root cannot give a file away
            (work_dir / "foreign").write_text("another's")
            os.chown(work_dir / "foreign", 65_534, 65_534)
            names.append("foreign")
        for name in names:
            answer = await _send(pipeline, allowed, f"@file:{work_dir}/{name}")
            assert code_of(answer) == (400, "file_submit_refused"), name

    async def test_a_file_over_the_limit_is_413(
        self, pipeline: Pipeline, allowed: Dispatched, work_dir: Path, database_url: str
    ) -> None:
        """A file over ``max_output_bytes`` is 413 with the limit, and a file that is no UTF-8 is 422; none is kept."""
        (work_dir / "large").write_bytes(b"x" * (LIMIT + 1))
        (work_dir / "binary").write_bytes(b"\xff\xfe")
        answer = await _send(pipeline, allowed, f"@file:{work_dir}/large")
        assert code_of(answer) == (413, "output_too_large")
        assert answer.json()["details"]["limit_bytes"] == LIMIT
        assert code_of(await _send(pipeline, allowed, f"@file:{work_dir}/binary")) == (422, "invalid_utf8")
        assert await _count(database_url, "outputs") == 0

    async def test_a_step_without_a_work_dir_submits_no_file(self, client: httpx.AsyncClient, work_dir: Path) -> None:
        """Without a work_dir there is nothing to lie under; a project_root does not take its place."""
        (work_dir / "out").write_text("x")
        pipeline = await Pipeline.create(client, project_root=str(work_dir))
        dispatched = await pipeline.dispatch("ask", ctx={"allow_file_submit": True})
        answer = await _send(pipeline, dispatched, f"@file:{work_dir}/out")
        assert code_of(answer) == (400, "file_submit_refused")

    async def test_the_projection_roots_hold_for_it(self, database_url: str, work_dir: Path) -> None:
        """A file outside the projection_roots is refused, even where the work_dir holds it."""
        (work_dir / "in").mkdir()
        (work_dir / "in/out").write_text("in")
        (work_dir / "out").write_text("out")
        application = create_app(Settings(database_url=database_url, projection_roots=[work_dir / "in"]))
        async with (
            application.router.lifespan_context(application),
            httpx.AsyncClient(transport=httpx.ASGITransport(application), base_url="http://test") as http,
        ):
            pipeline = await Pipeline.create(http, work_dir=str(work_dir))
            dispatched = await pipeline.dispatch("ask", ctx={"allow_file_submit": True})
            await pipeline.submit(dispatched, f"@file:{work_dir}/in/out")
            refused = await _send(pipeline, dispatched, f"@file:{work_dir}/out")
            assert code_of(refused) == (400, "file_submit_refused")
            assert await _value(pipeline, "ask") == "in"


class TestLimit:
    """``max_output_bytes``."""

    @pytest.fixture
    def dialect(self) -> str:
        """One database is enough: a body is measured before it."""
        return "sqlite"

    async def test_a_body_up_to_the_limit_is_taken(self, pipeline: Pipeline) -> None:
        """A body of exactly the limit is taken, with and without a declared length."""
        dispatched = await pipeline.dispatch("ask")

        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(LIMIT // 1024):
                yield b"y" * 1024

        await pipeline.submit(dispatched, b"x" * LIMIT)
        assert await _value(pipeline, "ask") == "x" * LIMIT
        assert (await _send(pipeline, dispatched, chunks())).status_code == 204
        assert await _value(pipeline, "ask") == "y" * LIMIT

    async def test_a_declared_length_over_the_limit_is_refused_unread(
        self, pipeline: Pipeline, database_url: str
    ) -> None:
        """A declared length over the limit is 413 with limit and size; no byte is read, and nothing is kept."""
        dispatched = await pipeline.dispatch("ask")
        pulled = []

        async def chunks() -> AsyncIterator[bytes]:
            pulled.append(1)
            yield b"x"

        for route in ("submit", "result", "artifact"):
            headers = {**bearer(dispatched), "Content-Length": str(LIMIT + 1)}
            answer = await pipeline.http.post(
                f"/v1/worker/{route}", content=chunks(), headers=headers, params=_OWN_QUERY[route]
            )
            assert code_of(answer) == (413, "output_too_large"), route
            assert answer.json()["details"] == {"limit_bytes": LIMIT, "size_bytes": LIMIT + 1}
            assert str(LIMIT) in answer.json()["error"]
            assert str(LIMIT + 1) in answer.json()["error"]
        assert pulled == []
        assert await _count(database_url, "outputs") == await _count(database_url, "bodies") == 0

    async def test_a_stream_is_cut_off_at_the_limit(self, pipeline: Pipeline, database_url: str) -> None:
        """A body without a length is refused as soon as it is over, and nothing of it is kept."""
        dispatched = await pipeline.dispatch("ask")
        for route in ("submit", "result", "artifact"):
            pulled = 0

            async def chunks() -> AsyncIterator[bytes]:
                nonlocal pulled
                for _ in range(LIMIT // 1024 * 4):
                    pulled += 1
                    yield b"[" * 1024

            answer = await _send(pipeline, dispatched, chunks(), route, **_OWN_QUERY[route])
            assert code_of(answer) == (413, "output_too_large"), route
            assert answer.json()["details"]["limit_bytes"] == LIMIT
            assert pulled == LIMIT // 1024 + 1
        assert await pipeline.steps() == []
        assert await _count(database_url, "outputs") == await _count(database_url, "bodies") == 0
