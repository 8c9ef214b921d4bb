"""The debug plane: lists, summaries and bytes of every step of a run, as its readers rely on them.

Source: contract §2; ``tests/vectors/result_ref.json``, ``key_resolve.json``, ``bodies.json``, ``preview.json``.
"""

import asyncio
import contextlib
import hashlib
import itertools
import json
import os
import re
import secrets
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
from sqlalchemy import make_url

from app.config import Settings
from tests.conftest import POSTGRES
from tests.contract.pipeline import Dispatched, Pipeline, blueprint_of, code_of, one_database, parsed, quoted, serving

VECTORS = Path(__file__).parents[1] / "vectors"
FIELDS = [
    "name",
    "size_bytes",
    "sha256",
    "content_type",
    "source",
    "content_url",
    "preview",
    "truncated",
    "kind",
    "ok",
    "step_id",
    "step_ref",
    "attempt",
    "attempts",
    "occurrence",
    "occurrences",
    "submitted_at",
]
FIELDS_WITH_FILE = [*FIELDS[:5], "file_path", *FIELDS[5:]]
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
JSON = "application/json"
MARKDOWN = "text/markdown; charset=utf-8"
TEXT = "text/plain; charset=utf-8"


def vectors(name: str) -> Any:
    return json.loads((VECTORS / name).read_text())


async def served(pipeline: Pipeline, name: str, **query: Any) -> tuple[bytes, dict[str, Any]]:
    """Return the bytes of a step and its summary, once they agree with each other in all that is told of them."""
    summary = await pipeline.step(name, **query)
    answer = await pipeline.http.get(summary["content_url"])
    assert answer.status_code == 200, answer.text
    body = answer.content
    told = (summary["size_bytes"], summary["sha256"], summary["content_type"])
    assert told == (len(body), hashlib.sha256(body).hexdigest(), answer.headers["content-type"])
    assert answer.headers["etag"] == f'"sha256:{summary["sha256"]}"'
    assert answer.headers["content-length"] == str(len(body))
    again = await pipeline.get(name, "/content", **query)
    assert (again.content, headers_of(again)) == (body, headers_of(answer))
    head = await pipeline.http.head(summary["content_url"])
    assert (head.status_code, head.content, headers_of(head)) == (200, b"", headers_of(answer))
    assert summary["preview"].removesuffix("…" if summary["truncated"] else "").encode() == body[:512]
    assert summary["truncated"] == (len(body) > 512)
    return body, summary


def headers_of(answer: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name != "x-request-id"}


class TestList:
    async def test_a_run_that_put_out_nothing_lists_nothing(self, client: httpx.AsyncClient) -> None:
        """The list of a run without outputs is empty, names the concrete run, and is no error."""
        pipeline = await Pipeline.create(client)
        await pipeline.dispatch("in flight")
        for run in (pipeline.run_id, "latest"):
            answer = await client.get(f"/v1/tasks/{pipeline.task_id}/runs/{run}/steps")
            expected = {"task_id": pipeline.task_id, "run_id": pipeline.run_id, "steps": []}
            assert (answer.headers["content-type"], list(parsed(answer).items())) == (JSON, list(expected.items()))

    async def test_every_field_stands_in_its_order(self, client: httpx.AsyncClient, work_dir: Path) -> None:
        """A summary has exactly the fields of the contract in their order; the list holds the very same summaries."""
        pipeline = await Pipeline.create(client, work_dir=str(work_dir))
        stored = await Pipeline.create(client)
        step_ids = []
        for run in (pipeline, stored):
            dispatched = await run.dispatch("plan")
            step_ids.append(dispatched["step_id"])
            await run.stage(dispatched, "notes.txt", "a part")
            await run.submit(dispatched, '{"b": [1], "a": "é"}', verdict="blocked")
            await run.finish(result={"plan": "hidden by the data plane", "later": [1, 2]})
            assert await run.steps() == [await run.step(name) for name in ("later", "notes.txt", "plan")]
            for name in ("later", "notes.txt", "plan"):
                await served(run, name)
        later, notes, plan = await stored.steps()
        assert [list(summary) for summary in (later, notes, plan)] == [FIELDS] * 3
        assert TIME.fullmatch(plan.pop("submitted_at"))
        assert TIME.fullmatch(notes.pop("submitted_at"))
        source = {
            "step_id": step_ids[1],
            "step_ref": "plan",
            "attempt": 1,
            "attempts": 1,
            "occurrence": 1,
            "occurrences": 1,
        }
        assert plan == source | {
            "name": "plan",
            "size_bytes": len(plan["preview"].encode()),
            "sha256": hashlib.sha256(plan["preview"].encode()).hexdigest(),
            "content_type": JSON,
            "source": "data_plane",
            "content_url": stored.url("plan", "/content"),
            "preview": '{\n  "a": "é",\n  "b": [\n    1\n  ]\n}',
            "truncated": False,
            "kind": "step",
            "ok": False,
        }
        assert notes == source | {
            "name": "notes.txt",
            "size_bytes": 6,
            "sha256": hashlib.sha256(b"a part").hexdigest(),
            "content_type": TEXT,
            "source": "data_plane",
            "content_url": stored.url("notes.txt", "/content"),
            "preview": "a part",
            "truncated": False,
            "kind": "artifact",
            "ok": None,
        }
        assert later == dict.fromkeys(FIELDS) | {
            "name": "later",
            "size_bytes": 12,
            "sha256": hashlib.sha256(b"[\n  1,\n  2\n]").hexdigest(),
            "content_type": JSON,
            "source": "result_ref",
            "content_url": stored.url("later", "/content"),
            "preview": "[\n  1,\n  2\n]",
            "truncated": False,
            "kind": "step",
        }
        assert [list(summary) for summary in await pipeline.steps()] == [FIELDS, FIELDS_WITH_FILE, FIELDS_WITH_FILE]

    async def test_previews(self, client: httpx.AsyncClient) -> None:
        """A preview is the first 512 bytes at most, cut between characters, in the list and the summary alike."""
        pipeline = await Pipeline.create(client)
        dispatched = await pipeline.dispatch("w")
        cases = vectors("preview.json")["cases"]
        for number, case in enumerate(cases):
            await pipeline.stage(dispatched, f"{number:02}", case["body"])
        expected = [(case["preview"], case["truncated"]) for case in cases]
        assert [(step["preview"], step["truncated"]) for step in await pipeline.steps()] == expected
        assert len(expected) > 5
        for number, case in enumerate(cases):
            # As JSON the same text begins with a quote, so its preview is another one.
            summary = await pipeline.step(f"{number:02}", format="json")
            assert summary["preview"].startswith('"' + case["preview"][:100])

    async def test_the_order_is_bytewise(self, linguistic: Pipeline) -> None:
        """Steps stand in the order of their names' UTF-8 bytes, whatever order of text the database has itself."""
        names = [
            "b",
            "B",
            "a",
            "A",
            "_",
            "-",
            "a b",
            "a-b",
            "ab",
            "é",
            "e\u0301",
            "z",
            "Z",
            "10",
            "9",
            "ß",
            "ss",
            "計画",
        ]
        names += ["\x00", "\x01", "\x02", "a\x00", "a\x01", "a\x01\x01", "\x7f", "\x80", "\uffff", "\U0001f600", "퟿"]
        for name in names:
            await linguistic.output(name, name)
        assert await linguistic.names() == sorted(names, key=str.encode)

    async def test_latest_is_the_run_that_was_created_last(
        self, settings: Settings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """``latest`` follows the order of creation, also when the clock stands still or goes back."""
        ticks = itertools.chain(
            [datetime(2026, 1, 2, tzinfo=UTC)] * 16, itertools.repeat(datetime(2020, 1, 1, tzinfo=UTC))
        )
        monkeypatch.setattr("app.main.now", lambda: next(ticks))
        async with serving(settings) as http:
            run = await Pipeline.create(http)
            for number in range(6):
                await run.output("s", number)
                latest = parsed(await http.get(f"/v1/tasks/{run.task_id}/runs/latest/steps/s"))
                assert latest["content_url"] == run.url("s", "/content")
                assert (await http.get(f"/v1/tasks/{run.task_id}/runs/latest/steps/s/content")).text == str(number)
                run = await run.another_run()
            assert next(ticks).year == 2020

    async def test_two_runs_never_mix(self, client: httpx.AsyncClient, work_dir: Path) -> None:
        """A value is of the run that was asked for or of none: other runs with equal names stay out of it."""
        naming = blueprint_of(("plan", "$.plan"), ("code", "$.code"))
        first = await Pipeline.create(client, naming, work_dir=str(work_dir))
        second, other = await first.another_run(), await Pipeline.create(client, naming, work_dir=str(work_dir))
        dispatched = await first.dispatch("plan")
        await first.stage(dispatched, "part", "of the first")
        await first.result(dispatched, "of the first")
        await first.finish(result={"code": "of the first"})
        for run in (second, other):
            assert await run.steps() == []
            for name in ("plan", "code", "part", "_ctx"):
                assert code_of(await run.get(name, "/content")) == (404, "step_not_found")
        await second.output("plan", "of the second")
        await second.finish(result={"code": 2})
        assert [await run.content("plan", format="raw") for run in (first, second)] == [
            b"of the first",
            b"of the second",
        ]
        assert [await run.content("code") for run in (first, second)] == [b'"of the first"', b"2"]
        assert (await first.step("plan"))["file_path"] != (await second.step("plan"))["file_path"]
        foreign = f"/v1/tasks/{other.task_id}/runs/{first.run_id}/steps"
        for tail in ("", "/plan", "/plan/content"):
            assert code_of(await client.get(foreign + tail)) == (404, "run_not_found")


@pytest.fixture
async def linguistic(dialect: str, tmp_path: Path) -> AsyncIterator[Pipeline]:
    """A pipeline on a database that would order text by a language's rules, where the dialect has such."""
    async with contextlib.AsyncExitStack() as stack:
        url = f"sqlite:///{tmp_path / 'stepplane.db'}"
        if dialect == "postgresql":
            url = await stack.enter_async_context(_linguistic_postgres())
        yield await Pipeline.create(await stack.enter_async_context(serving(Settings(database_url=url))))


@contextlib.asynccontextmanager
async def _linguistic_postgres() -> AsyncIterator[str]:
    server = make_url(POSTGRES or "").set(drivername="postgresql")
    name = f"stepplane_icu_{secrets.token_hex(6)}"
    url = server.set(database=name).render_as_string(hide_password=False)
    admin = await asyncpg.connect(server.render_as_string(hide_password=False))
    locale = "ENCODING 'UTF8' LOCALE_PROVIDER icu ICU_LOCALE 'en-US'"
    await admin.execute(f'CREATE DATABASE "{name}" TEMPLATE template0 {locale}')
    try:
        connection = await asyncpg.connect(url)
        assert await connection.fetchval("SELECT 'a' < 'B' AND 'B' < 'c'")
        await connection.close()
        yield url
    finally:
        await admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
        await admin.close()


class TestNames:
    async def test_an_alias_answers_as_its_step(self, client: httpx.AsyncClient, work_dir: Path) -> None:
        """Ref, declared name and out path lead to one step: equal bytes and ETag, and the canonical name is told."""
        blueprint = blueprint_of(("planner", "$.plan"), names={"planner": "the plan"})
        for fields in ({}, {"work_dir": str(work_dir)}):
            pipeline = await Pipeline.create(client, blueprint, **fields)
            assert pipeline.created["steps"][0]["aliases"] == ["plan", "planner"]
            await pipeline.output("planner", {"x": 1})
            body, summary = await served(pipeline, "the plan")
            assert summary["name"] == "the plan"
            for alias in ("planner", "plan"):
                assert await pipeline.step(alias) == summary
                answer = await pipeline.get(alias, "/content")
                canonical = await pipeline.get("the plan", "/content")
                assert (answer.content, headers_of(answer)) == (body, headers_of(canonical))
            assert await pipeline.names() == ["the plan"]

    async def test_ctx_is_the_whole_result(self, client: httpx.AsyncClient) -> None:
        """``_ctx`` is the whole ``result_ref``, never listed, and 404 until there is one; a null is one."""
        for result, expected in (({"b": [1], "a": None}, b'{\n  "a": null,\n  "b": [\n    1\n  ]\n}'), (None, b"null")):
            pipeline = await Pipeline.create(client)
            await pipeline.output("s", 1)
            assert code_of(await pipeline.get("_ctx")) == (404, "step_not_found")
            assert code_of(await pipeline.get("_ctx", "/content")) == (404, "step_not_found")
            await pipeline.finish(result=result)
            body, summary = await served(pipeline, "_ctx")
            assert body == expected
            assert "_ctx" not in await pipeline.names()
            assert (summary["name"], summary["source"], summary["kind"]) == ("_ctx", "result_ref", "step")
        absent = await Pipeline.create(client)
        await absent.finish()
        assert code_of(await absent.get("_ctx", "/content")) == (404, "step_not_found")

    async def test_the_newest_artifact_of_a_name_wins(self, client: httpx.AsyncClient, work_dir: Path) -> None:
        """Artifacts are listed under their own names, once; of equal names the newest answers, whoever staged it."""
        for fields in ({}, {"work_dir": str(work_dir)}):
            pipeline = await Pipeline.create(client, **fields)
            one, two = await pipeline.dispatch("one"), await pipeline.dispatch("two")
            for dispatched, body in ((one, "1"), (two, "2"), (one, "3")):
                await pipeline.stage(dispatched, "part", body)
                assert (await served(pipeline, "part"))[0] == body.encode()
                assert (await pipeline.step("part"))["step_id"] == dispatched["step_id"]
            assert await pipeline.names() == ["part"]
            assert await pipeline.content("part", attempt=1, occurrence=1) == b"3"
            await pipeline.finish(result={"part": "from the result"})
            _, summary = await served(pipeline, "part")
            assert (summary["kind"], summary["source"]) == ("step", "result_ref")

    async def test_a_step_beats_an_artifact(self, client: httpx.AsyncClient) -> None:
        """The name or alias of a step always beats an artifact's, whichever came first, and before its first OUTPUT."""
        pipeline = await Pipeline.create(client, blueprint_of(("plan", "$.draft"), ("code", "$.code")))
        worker = await pipeline.dispatch("plan")
        for name in ("code", "draft", "later", "own"):
            await pipeline.stage(worker, name, f"artifact {name}")
        assert await pipeline.names() == ["later", "own"]
        for name, code in (("code", "step_not_found"), ("draft", "step_not_submitted"), ("plan", "step_not_submitted")):
            assert code_of(await pipeline.get(name)) == (404, code)
        later = await pipeline.dispatch("later")
        assert code_of(await pipeline.get("later", "/content")) == (404, "step_not_submitted")
        assert await pipeline.names() == ["own"]
        await pipeline.result(later, "step later")
        await pipeline.stage(worker, "later", "artifact again")
        await pipeline.result(worker, "step plan")
        assert [(step["name"], step["kind"]) for step in await pipeline.steps()] == [
            ("later", "step"),
            ("own", "artifact"),
            ("plan", "step"),
        ]
        assert [await pipeline.content(name) for name in ("later", "draft")] == [b'"step later"', b'"step plan"']


class TestAnswers:
    """Which value answers for a name."""

    async def test_occurrences_and_attempts(self, client: httpx.AsyncClient, work_dir: Path) -> None:
        """The newest attempt of the newest occurrence answers; every earlier one keeps an address and is counted."""
        for fields in ({}, {"work_dir": str(work_dir)}):
            pipeline = await Pipeline.create(client, **fields)
            first = await pipeline.output("loop", "1.1")
            second = await pipeline.output("loop", "2.1")
            await pipeline.result(await pipeline.retry(first), "1.2")
            again = await pipeline.retry(second)
            await pipeline.result(again, "2.2")
            await pipeline.result(again, "2.2 again")

            async def value(
                run: Pipeline = pipeline, of: tuple[Dispatched, ...] = (first, second), **query: Any
            ) -> tuple[str, tuple[Any, ...]]:
                body, summary = await served(run, "loop", format="raw", **query)
                assert summary["step_id"] == of[summary["occurrence"] - 1]["step_id"]
                counts = ("attempt", "attempts", "occurrence", "occurrences")
                return body.decode(), tuple(summary[field] for field in counts)

            assert await value() == ("2.2 again", (2, 2, 2, 2))
            assert await value(occurrence=1) == ("1.2", (2, 2, 1, 2))
            assert await value(attempt=1) == ("2.1", (1, 2, 2, 2))
            assert await value(occurrence=1, attempt=1) == ("1.1", (1, 2, 1, 2))
            assert await value(occurrence=2, attempt=2) == ("2.2 again", (2, 2, 2, 2))
            for query in ({"occurrence": 3}, {"occurrence": 3, "attempt": 1}, {"occurrence": 0}):
                assert code_of(await pipeline.get("loop", **query)) == (404, "occurrence_not_found")
            for query in ({"attempt": 3}, {"occurrence": 1, "attempt": 3}, {"attempt": 10**30}, {"attempt": 0}):
                assert code_of(await pipeline.get("loop", "/content", **query)) == (404, "attempt_not_found")

    async def test_an_output_is_visible_at_once_and_nothing_hides_it(self, client: httpx.AsyncClient) -> None:
        """A Final can be read while its run goes on, and no newer occurrence or attempt without one ever blanks it."""
        pipeline = await Pipeline.create(client)
        first = await pipeline.dispatch("s")
        for value in (*range(9), "old"):
            await pipeline.result(first, value)
            assert json.loads(await pipeline.content("s")) == value
            assert [json.loads(step["preview"]) for step in await pipeline.steps()] == [value]
        await pipeline.dispatch("s")
        await pipeline.retry(first)
        body, summary = await served(pipeline, "s")
        assert body == b'"old"'
        assert [summary[key] for key in ("attempt", "attempts", "occurrence", "occurrences")] == [1, 2, 1, 2]
        assert await pipeline.steps() == [summary]
        assert code_of(await pipeline.get("s", attempt=2)) == (404, "attempt_not_found")
        missing = await pipeline.get("s", occurrence=2)
        assert code_of(missing) == (404, "occurrence_not_found")
        assert missing.json()["details"] == {"occurrences": 2}

    async def test_a_late_final_of_an_older_attempt_is_kept_but_does_not_answer(
        self, client: httpx.AsyncClient, work_dir: Path
    ) -> None:
        """A late Final of an older attempt or occurrence is kept under its own address and changes no other answer."""
        for fields in ({}, {"work_dir": str(work_dir)}):
            pipeline = await Pipeline.create(client, **fields)
            first = await pipeline.dispatch("s")
            second = await pipeline.retry(first)
            third = await pipeline.dispatch("s")
            await pipeline.result(second, "1.2")
            before = await served(pipeline, "s")
            await pipeline.result(first, "1.1")
            assert await served(pipeline, "s") == before
            assert await pipeline.content("s", attempt=2) == before[0]
            assert await pipeline.content("s", attempt=1) == b'"1.1"'
            await pipeline.result(third, "2.1")
            newest = await served(pipeline, "s")
            await pipeline.result(second, "1.2 again")
            assert await served(pipeline, "s") == newest
            assert await pipeline.content("s", format="raw", occurrence=1) == b"1.2 again"

    async def test_other_events_never_hide_a_final(self, client: httpx.AsyncClient) -> None:
        """Progress, partial and artifact events, before or after it, leave a step's Final where it is."""
        pipeline = await Pipeline.create(client)
        dispatched = await pipeline.dispatch("s")
        events = (
            {"type": "progress", "stage": "thinking", "note": "hard"},
            {"type": "partial", "chunk": "beg"},
            {"type": "artifact", "name": "part", "content": {"kind": "inline", "value": {"n": 10**30}}},
        )
        for event in events:
            await pipeline.emit(dispatched, event)
        assert await pipeline.names() == ["part"]
        assert code_of(await pipeline.get("s", "/content")) == (404, "step_not_submitted")
        await pipeline.result(dispatched, "the end")
        for event in events:
            await pipeline.emit(dispatched, event)
        assert (await served(pipeline, "s"))[0] == b'"the end"'
        assert (await served(pipeline, "part"))[0] == b'{\n  "n": 1000000000000000000000000000000\n}'

    async def test_result_ref_answers_where_the_data_plane_has_nothing(self, client: httpx.AsyncClient) -> None:
        """By each step's own out path, its names, or every key where there is no table."""
        for case in vectors("result_ref.json")["cases"]:
            names = case.get("projection_names", {})
            agents = [{"name": ref, "meta": {"projection_name": name}} for ref, name in names.items()]
            blueprint = case["flow"] and {"id": "case", "flow": case["flow"], "agents": agents}
            pipeline = await Pipeline.create(client, blueprint)
            await pipeline.finish(result=case["result_ref"])
            expected = case["expect"]
            assert await pipeline.names() == sorted(expected), case
            for name, value in expected.items():
                body, summary = await served(pipeline, name)
                assert json.loads(body) == value, case
                assert (summary["source"], summary["name"]) == ("result_ref", name)
            for name in set(case.get("absent", ())) - set(expected):
                answer = await pipeline.get(name)
                # An alias may lead to a step; the key itself is none.
                assert answer.status_code == 404 or answer.json()["name"] in expected, (case, name)

    async def test_a_restart_changes_no_answer(self, settings: Settings, work_dir: Path) -> None:
        """Names, values, files, handles and numbering are all there again when another process serves the database."""
        blueprint = blueprint_of(("plan", "$.draft"), ("code", "$.code"), names={"plan": "the plan"})
        tails = ("", "/draft", "/draft/content", "/part", "/code/content?path=$.x", "/_ctx", "/the%20plan?format=json")
        async with serving(settings) as http:
            ended = await Pipeline.create(http, blueprint, work_dir=str(work_dir))
            worker = await ended.output("plan", {"a": 1})
            await ended.stage(worker, "part", "p")
            await ended.finish(result={"code": {"x": 1}})
            running = await ended.another_run()
            going_on = await running.output("plan", "1.1")
            before = [await http.get(ended.steps_url + tail) for tail in tails]
        async with serving(settings) as http:
            after = [await http.get(ended.steps_url + tail) for tail in tails]
            running.http = http
            await running.result(going_on, "1.1 again")
            again = await running.retry(going_on)
            await running.result(again, "1.2")
            _, summary = await served(running, "draft")
            assert [summary[key] for key in ("name", "attempt", "attempts", "occurrences")] == ["the plan", 2, 2, 1]
        assert [answer.status_code for answer in before] == [200] * len(tails)
        assert [(answer.content, headers_of(answer)) for answer in after] == [
            (answer.content, headers_of(answer)) for answer in before
        ]

    async def test_the_data_plane_beats_the_result(self, client: httpx.AsyncClient) -> None:
        """What was submitted answers before ``result_ref``, and a path that misses on it never falls through."""
        pipeline = await Pipeline.create(client, blueprint_of(("plan", "$.plan"), ("code", "$.code")))
        await pipeline.output("plan", {"a": 1})
        await pipeline.dispatch("code")
        await pipeline.finish(result={"plan": {"b": 2}, "code": {"b": 2}, "else": 3})
        assert [(step["name"], step["source"]) for step in await pipeline.steps()] == [
            ("code", "result_ref"),
            ("plan", "data_plane"),
        ]
        assert await pipeline.content("plan", path="$.a") == b"1"
        assert code_of(await pipeline.get("plan", "/content", path="$.b")) == (404, "path_not_found")
        assert await pipeline.content("code", path="$.b") == b"2"
        for query in ({"attempt": 1}, {"occurrence": 1}):
            status, code = code_of(await pipeline.get("code", **query))
            assert (status, code) == (404, f"{next(iter(query))}_not_found")


class TestBodies:
    async def test_the_body_rule(self, client: httpx.AsyncClient, work_dir: Path) -> None:
        """A step's file before its JSON; an artifact's raw bytes from file and store alike; each with its type."""
        files = await Pipeline.create(client, work_dir=str(work_dir))
        store = await Pipeline.create(client)
        parts = {"a.md": MARKDOWN, "big.MD": MARKDOWN, "b.json": JSON, "c.txt": TEXT, "d": TEXT, "e.html": TEXT}
        body = '{"not": "rendered"}\n\n  # é'
        for pipeline in (files, store):
            dispatched = await pipeline.dispatch("s")
            for name, content_type in parts.items():
                await pipeline.stage(dispatched, name, body)
                served_body, summary = await served(pipeline, name)
                assert (served_body, summary["content_type"]) == (body.encode(), content_type)
                assert (summary.get("file_path") is not None) == (pipeline is files)
                raw, as_raw = await served(pipeline, name, format="raw")
                assert (raw, as_raw["content_type"]) == (body.encode(), TEXT)
                as_json, summary = await served(pipeline, name, format="json")
                assert (json.loads(as_json), summary["content_type"]) == (body, JSON)
                assert "file_path" not in summary
            await pipeline.result(dispatched, {"k": ["v"]})
        rendered = b'{\n  "k": [\n    "v"\n  ]\n}'
        on_disk, summary = await served(files, "s")
        assert summary["content_type"] == MARKDOWN
        assert on_disk == Path(summary["file_path"]).read_bytes()
        assert rendered in on_disk
        assert await served(files, "s", format="file") == (
            on_disk,
            summary | {"content_url": summary["content_url"] + "?format=file"},
        )
        for pipeline, query in ((store, {}), (store, {"format": "json"}), (files, {"format": "json"})):
            value, summary = await served(pipeline, "s", **query)
            assert (value, summary["content_type"], "file_path" in summary) == (rendered, JSON, False)
        for name in ("s", "a.md"):
            assert code_of(await store.get(name, "/content", format="file")) == (404, "file_not_found")
            assert code_of(await store.get(name, format="file")) == (404, "file_not_found")

    async def test_formats_of_every_kind_of_value(self, client: httpx.AsyncClient) -> None:
        """A value is served as the vectors render it; ``raw`` gives a string's own bytes, any other value as JSON."""
        pipeline = await Pipeline.create(client)
        dispatched = await pipeline.dispatch("s")
        for case in vectors("bodies.json")["json"]:
            await pipeline.result(dispatched, case["value"])
            body, summary = await served(pipeline, "s")
            assert body == case["body"].encode()
            assert (summary["size_bytes"], summary["sha256"]) == (case["size_bytes"], case["sha256"])
        for value in ("plain", "", "two\nlines é", '{"a": 1}', 'q"\\', "nul\x00\x01", "\u2028"):
            await pipeline.result(dispatched, value)
            body, summary = await served(pipeline, "s", format="raw")
            assert (body, summary["content_type"]) == (value.encode(), TEXT)
            body, summary = await served(pipeline, "s")
            assert (json.loads(body), summary["content_type"]) == (value, JSON)
        others: tuple[Any, ...] = (None, True, 0, -1.5, [], {}, ["x"], {"k": "v"})
        for other in others:
            await pipeline.result(dispatched, other)
            body, summary = await served(pipeline, "s", format="raw")
            assert (json.loads(body), summary["content_type"]) == (other, JSON)
            assert (await served(pipeline, "s", format="json"))[0] == body

    @one_database
    async def test_paths(self, client: httpx.AsyncClient) -> None:
        """A path narrows the JSON value as the vectors have it; a miss is ``path_not_found`` and no other error."""
        document = vectors("key_resolve.json")
        runs = {name: await Pipeline.create(client) for name in document["ctx"]}
        for name, pipeline in runs.items():
            await pipeline.finish(result=document["ctx"][name])
        for case in document["cases"]:
            pipeline, name = runs[case["ctx"]], case["step"] if case["step"] is not None else "_ctx"
            query = {} if case["path"] is None else {"path": case["path"]}
            if case["expect"]["found"]:
                body, summary = await served(pipeline, name, **query)
                assert json.loads(body) == case["expect"]["value"], case
                assert summary["content_type"] == JSON
            else:
                expected = "step_not_found" if case["path"] is None else "path_not_found"
                for tail in ("", "/content"):
                    assert code_of(await pipeline.get(name, tail, **query)) == (404, expected), case

    async def test_a_path_goes_with_everything_but_the_file(self, client: httpx.AsyncClient, work_dir: Path) -> None:
        """A path narrows the value also where a file stands; an empty one is the whole value as JSON."""
        for fields in ({}, {"work_dir": str(work_dir)}):
            pipeline = await Pipeline.create(client, **fields)
            first = await pipeline.dispatch("s")
            await pipeline.stage(first, "part.md", '["text", "not an array"]')
            await pipeline.result(first, {"a": [{"b": "old"}]})
            await pipeline.result(await pipeline.retry(first), {"a": [{"b": "new é"}]})
            whole = b'{\n  "a": [\n    {\n      "b": "new \xc3\xa9"\n    }\n  ]\n}'
            expected = (
                ("s", {"path": ""}, whole, JSON),
                ("s", {"path": "", "format": "raw"}, whole, JSON),
                ("s", {"path": "$.a[0].b"}, '"new é"'.encode(), JSON),
                ("s", {"path": "$.a[0].b", "format": "json"}, '"new é"'.encode(), JSON),
                ("s", {"path": "$.a[0].b", "format": "raw"}, "new é".encode(), TEXT),
                ("s", {"path": "$.a[-1].b", "format": "raw", "attempt": 1, "occurrence": 1}, b"old", TEXT),
                ("s", {"path": "$.a[0]", "format": "raw", "attempt": 1}, b'{\n  "b": "old"\n}', JSON),
                ("part.md", {"path": ""}, b'"[\\"text\\", \\"not an array\\"]"', JSON),
                ("part.md", {"path": "$", "format": "raw"}, b'["text", "not an array"]', TEXT),
            )
            for name, query, body, content_type in expected:
                for _ in range(2):  # the second time it is remembered
                    found, summary = await served(pipeline, name, **query)
                    assert (found, summary["content_type"]) == (body, content_type), query
                    assert "file_path" not in summary
            assert code_of(await pipeline.get("part.md", path="$[0]")) == (404, "path_not_found")
            for path in ("", "$.a"):
                for tail in ("", "/content"):
                    answer = await pipeline.get("s", tail, path=path, format="file")
                    assert code_of(answer) == (400, "invalid_parameter")

    async def test_the_content_url_carries_what_narrowed_it(self, client: httpx.AsyncClient) -> None:
        """A summary's ``content_url`` leads to the very bytes it tells of: query and concrete run are in it."""
        pipeline = await Pipeline.create(client)
        await pipeline.output("s", {"a b": ["x&y=z", "+", "%41", "é"]})
        query: dict[str, Any] = {"path": '$["a b"][0]', "format": "raw", "attempt": 1, "occurrence": 1}
        latest = f"/v1/tasks/{pipeline.task_id}/runs/latest/steps/s"
        summary = parsed(await client.get(latest, params=query))
        expected = "/content?path=%24%5B%22a%20b%22%5D%5B0%5D&format=raw&attempt=1&occurrence=1"
        assert summary["content_url"] == pipeline.url("s", expected)
        assert (await client.get(summary["content_url"])).content == b"x&y=z"
        assert (await pipeline.step("s"))["content_url"] == pipeline.url("s", "/content")


class TestErrors:
    @one_database
    async def test_what_cannot_be_read_is_400(self, client: httpx.AsyncClient) -> None:
        """A malformed id, a parameter that has a value it cannot have, and bytes that are no UTF-8 are 400."""
        pipeline = await Pipeline.create(client)
        await pipeline.output("s", 1)
        steps = pipeline.steps_url
        for url in (
            steps.replace("T-", "X-"),
            steps.replace("T-", "t-"),
            steps.replace(pipeline.task_id, "T-"),
            steps.replace(pipeline.task_id, "T-" + "a" * 65),
            steps.replace(pipeline.task_id, "T-a%20b"),
            steps.replace(pipeline.task_id, "T-a%2Fb"),
            steps.replace(pipeline.run_id, "Latest"),
            steps.replace(pipeline.run_id, "R-%C3%A9"),
            steps.replace(pipeline.run_id, "R-1%0A"),
        ):
            for tail in ("", "/s", "/s/content"):
                assert code_of(await client.get(url + tail)) == (400, "invalid_id"), url
        for query in (
            "format=yaml", "format=", "format=JSON", "attempt=one", "attempt=-1", "attempt=", "attempt=1.0",
            "occurrence=+1", "occurrence=%EF%BC%91", "path=%FF", "format=json&format=nope",
        ):  # fmt: skip
            for tail in ("/s", "/s/content"):
                assert code_of(await client.get(f"{steps}{tail}?{query}")) == (400, "invalid_parameter"), query
        for tail in ("/%FF", "/%ED%A0%80/content"):
            assert code_of(await client.get(steps + tail)) == (400, "invalid_parameter"), tail

    async def test_what_is_not_there_is_404_and_the_task_is_judged_first(self, client: httpx.AsyncClient) -> None:
        """Task, then run, then step, then attempt and occurrence, then path: the first that is missing is named."""
        pipeline, other = await Pipeline.create(client), await Pipeline.create(client, start=False)
        await pipeline.output("s", {"a": 1})
        await other.another_run()
        empty = await Pipeline.create(client, start=False)
        missing = f"/v1/tasks/{pipeline.task_id}/runs/R-0"
        for url, code in (
            (f"/v1/tasks/T-0/runs/{pipeline.run_id}", "task_not_found"),
            ("/v1/tasks/T-0/runs/R-0", "task_not_found"),
            ("/v1/tasks/T-0/runs/latest", "task_not_found"),
            (missing, "run_not_found"),
            (f"/v1/tasks/{other.task_id}/runs/{pipeline.run_id}", "run_not_found"),
            (f"/v1/tasks/{empty.task_id}/runs/latest", "run_not_found"),
        ):
            for tail in ("/steps", "/steps/s", "/steps/s/content", "/steps/none?attempt=9", "/steps/s?path=$.none"):
                assert code_of(await client.get(url + tail)) == (404, code), url + tail
        for query, code in (({}, "step_not_found"), ({"attempt": 9, "path": "$.none"}, "step_not_found")):
            assert code_of(await pipeline.get("none", **query)) == (404, code)
        assert code_of(await pipeline.get("s", attempt=9, path="$.none")) == (404, "attempt_not_found")
        assert code_of(await pipeline.get("s", attempt=9, occurrence=9)) == (404, "occurrence_not_found")
        assert code_of(await pipeline.get("s", path="$.none")) == (404, "path_not_found")

    @one_database
    async def test_routing_looks_at_the_path_as_it_was_sent(self, client: httpx.AsyncClient) -> None:
        """A slash separates, an encoded one is part of a name; a longer path or a slash at the end is no route."""
        pipeline = await Pipeline.create(client)
        await pipeline.output("a/content", 1)
        await pipeline.output("a", 2)
        assert (await client.get(f"{pipeline.steps_url}/a%2Fcontent/content")).text == "1"
        assert (await client.get(f"{pipeline.steps_url}/a/content")).text == "2"
        assert (await client.get(f"{pipeline.steps_url}/%61/content")).text == "2"
        assert (await client.get(f"{pipeline.steps_url}/a%2fcontent/%63ontent")).text == "1"
        for tail in ("/", "/a/", "/a/content/", "/a/content/content", "/a/b", "//content"):
            assert code_of(await client.get(pipeline.steps_url + tail)) == (404, "route_not_found"), tail


class TestHeaders:
    @one_database
    async def test_content_travels_whole_and_safely(self, client: httpx.AsyncClient) -> None:
        """Content comes whole whatever Range asks for, with the security headers and a file name by RFC 5987."""
        pipeline = await Pipeline.create(client)
        dispatched = await pipeline.dispatch('計 "画"\r\nX: y/..')
        await pipeline.result(dispatched, {"a": "<script>"})
        await pipeline.output("v1.2", "t")
        for part in ("notes", "page.html", "data.json", "read.MD"):
            await pipeline.stage(dispatched, part, "<script>alert(1)</script>")
        for name, query, file_name in (
            (dispatched["name"], {}, dispatched["name"] + ".json"),
            ("v1.2", {"format": "raw"}, "v1.2"),
            ("v1.2", {}, "v1.2.json"),
            ("notes", {}, "notes.txt"),
            ("page.html", {}, "page.html"),
            ("data.json", {}, "data.json"),
            ("data.json", {"format": "raw"}, "data.json"),
            ("read.MD", {}, "read.MD"),
            ("notes", {"format": "json"}, "notes.json"),
        ):
            answer = await pipeline.get(name, "/content", **query)
            assert headers_of(answer) == {
                "content-type": answer.headers["content-type"],
                "etag": f'"sha256:{hashlib.sha256(answer.content).hexdigest()}"',
                "cache-control": "private, no-cache",
                "content-length": str(len(answer.content)),
                "accept-ranges": "none",
                "x-content-type-options": "nosniff",
                "content-security-policy": "sandbox; default-src 'none'",
                "content-disposition": f"inline; filename*=UTF-8''{quoted(file_name)}",
            }
            assert "html" not in answer.headers["content-type"]
            for given in ("bytes=0-1", "bytes=5-", "bytes=0-0,2-2", "bytes=999-"):
                ranged = await client.get(answer.url, headers={"Range": given, "If-Range": "x"})
                assert (ranged.status_code, ranged.content) == (200, answer.content)
                assert headers_of(ranged) == headers_of(answer)

    async def test_a_matching_etag_is_304_without_a_body(self, client: httpx.AsyncClient, work_dir: Path) -> None:
        """If-None-Match, a list of tags, weak ones and ``*`` alike, answers 304; any other tag the body."""
        pipeline = await Pipeline.create(client, work_dir=str(work_dir))
        dispatched = await pipeline.output("s", {"a": "b"})
        await pipeline.stage(dispatched, "part", "p")
        urls = [pipeline.steps_url]
        urls += [
            pipeline.url("s", tail)
            for tail in ("", "?path=$.a", "/content", "/content?path=$.a", "/content?format=json")
        ]
        urls += [pipeline.url("part", "/content"), pipeline.url("part")]
        for url in urls:
            fresh = await client.get(url)
            etag = fresh.headers["etag"]
            assert etag == f'"sha256:{hashlib.sha256(fresh.content).hexdigest()}"'
            head = await client.head(url)
            assert (head.status_code, head.content, headers_of(head)) == (200, b"", headers_of(fresh))
            for given in (etag, f"W/{etag}", "*", f'"x", W/"y",{etag}', f'"a,b" , {etag}', f'W/{etag}, "x"', " * "):
                for method in ("GET", "HEAD"):
                    answer = await client.request(method, url, headers={"If-None-Match": given})
                    assert (answer.status_code, answer.content) == (304, b""), (url, given)
                    assert answer.headers["etag"] == etag
                    assert answer.headers["cache-control"] == "private, no-cache"
                    assert "content-length" not in answer.headers
            twice = [("If-None-Match", '"x"'), ("If-None-Match", etag)]
            assert (await client.get(url, headers=twice)).status_code == 304
            for given in ('"x"', etag.strip('"'), etag[:-2] + '"', '"*"', f'"{etag[1:-1]}x"', "W/*", ""):
                answer = await client.get(url, headers={"If-None-Match": given})
                assert (answer.status_code, answer.content) == (200, fresh.content), given

    async def test_list_and_step_have_an_etag_over_their_own_body(self, client: httpx.AsyncClient) -> None:
        """Whatever changes what a list or a summary tells changes its ETag; what changes nothing of it does not."""
        pipeline = await Pipeline.create(client)
        dispatched = await pipeline.output("s", 1)
        seen = set()

        async def tags() -> tuple[str, str]:
            return (await pipeline.get()).headers["etag"], (await pipeline.get("s")).headers["etag"]

        for change in (
            lambda: pipeline.result(dispatched, 2),
            lambda: pipeline.retry(dispatched),
            lambda: pipeline.dispatch("s"),
            lambda: pipeline.submit(dispatched, "2", ok=False),
        ):
            before = await tags()
            assert await tags() == before
            await change()
            after = await tags()
            assert before[0] != after[0]
            assert before[1] != after[1]
            seen.add(after)
        assert len(seen) == 4

    @one_database
    async def test_urls_are_made_of_the_base_url_alone(self, database_url: str) -> None:
        """``content_url`` is absolute when ``base_url`` is set, one slash between them; the Host never counts."""
        for base_url, prefix in ((None, ""), ('https://h:7777/"base"//', "https://h:7777/%22base%22")):
            async with serving(Settings(database_url=database_url, base_url=base_url)) as http:
                pipeline = await Pipeline.create(http)
                dispatched = await pipeline.output("a b", {"x": 1})
                await pipeline.stage(dispatched, "part", "p")
                await pipeline.finish(result={"r": 1})
                evil = {"Host": "evil.example", "X-Forwarded-Host": "evil.example", "Forwarded": "host=evil.example"}
                listed = parsed(await http.get(pipeline.steps_url, headers=evil))["steps"]
                assert [step["content_url"] for step in listed] == [
                    prefix + pipeline.url(name, "/content") for name in ("a b", "part", "r")
                ]
                for step in listed:
                    assert parsed(await http.get(pipeline.url(step["name"]), headers=evil)) == step
                narrowed = parsed(await http.get(pipeline.url("a b", "?path=$.x"), headers=evil))
                assert narrowed["content_url"] == prefix + pipeline.url("a b", "/content?path=%24.x")

    async def test_digests_hold_under_concurrent_writes(self, client: httpx.AsyncClient, work_dir: Path) -> None:
        """While many write, every answer is of one moment: ETag, length and summary are those of the same bytes."""
        for fields in ({}, {"work_dir": str(work_dir)}):
            pipeline = await Pipeline.create(client, **fields)
            workers = [await pipeline.output("s", f"{number} to begin with") for number in range(3)]
            for worker in workers:
                await pipeline.stage(worker, "part", "to begin with")
            seen: dict[str, int] = {}
            told: list[dict[str, Any]] = []

            async def write(worker: Dispatched, run: Pipeline = pipeline) -> None:
                for number in range(8):
                    await run.result(worker, {"worker": worker["step_id"], "value": "x" * number})
                    await run.stage(worker, "part", f"{worker['step_id']} {number}")

            async def read(
                run: Pipeline = pipeline, seen: dict[str, int] = seen, told: list[dict[str, Any]] = told
            ) -> None:
                for name in ("s", "part") * 12:
                    answer = await run.get(name, "/content")
                    digest = hashlib.sha256(answer.content).hexdigest()
                    assert answer.headers["etag"] == f'"sha256:{digest}"'
                    assert answer.headers["content-length"] == str(len(answer.content))
                    seen[digest] = len(answer.content)
                    told.append(await run.step(name))
                    steps = await run.steps()
                    assert [step["name"] for step in steps] == ["part", "s"]
                    told.extend(steps)

            await asyncio.gather(*(write(worker) for worker in workers), read(), read())
            assert all(seen[step["sha256"]] == step["size_bytes"] for step in told if step["sha256"] in seen)
            assert [await served(pipeline, step["name"]) for step in await pipeline.steps()]
            assert b'"value": "xxxxxxx"' in await pipeline.content("s")


class TestFiles:
    async def test_a_file_is_served_as_it_is_on_disk_now(self, client: httpx.AsyncClient, work_dir: Path) -> None:
        """An edited file is served and told of as it now is; list, summary, bytes and ETag agree throughout."""
        pipeline = await Pipeline.create(client, work_dir=str(work_dir))
        dispatched = await pipeline.output("s", "v")
        await pipeline.stage(dispatched, "part.txt", "p")
        for name in ("s", "part.txt"):
            before, summary = await served(pipeline, name)
            path = Path(summary["file_path"])
            large = b"0123456789abcde\n" * 300_000  # is sent in chunks
            for edited in (b"edited by hand", b"", "é".encode() * 300, large, b"\xff\x00 no text", before):
                path.write_bytes(edited)
                if edited.startswith(b"\xff"):  # its preview is not the beginning of its bytes
                    assert await pipeline.content(name) == edited
                    assert (await pipeline.step(name))["preview"] == "\ufffd\x00 no text"
                    continue
                body, now = await served(pipeline, name)
                assert body == edited
                assert [step for step in await pipeline.steps() if step["name"] == name] == [now]
            assert await served(pipeline, name) == (before, summary)

    async def test_the_digest_of_a_fresh_edit_is_never_stale(self, client: httpx.AsyncClient, work_dir: Path) -> None:
        """However fast a file is edited in place, with its size and times kept, the digest is that of its bytes."""
        pipeline = await Pipeline.create(client, work_dir=str(work_dir))
        await pipeline.output("s", "v")
        path = Path((await pipeline.step("s"))["file_path"])
        status, size = path.stat(), path.stat().st_size
        for number in range(40):
            edited = f"{number:0{size}}".encode()
            handle = os.open(path, os.O_WRONLY)
            os.pwrite(handle, edited, 0)
            os.close(handle)
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
            digest = hashlib.sha256(edited).hexdigest()
            answer = await pipeline.get("s", "/content")
            assert (answer.content, answer.headers["etag"]) == (edited, f'"sha256:{digest}"')
            assert (await pipeline.step("s"))["sha256"] == digest
            assert [step["sha256"] for step in await pipeline.steps()] == [digest]

    async def test_a_file_that_is_gone_or_no_plain_file_gives_way_to_the_store(
        self, client: httpx.AsyncClient, work_dir: Path, tmp_path: Path
    ) -> None:
        """Removed, replaced by a link, a directory or a pipe, a file is not read: the stored value answers."""
        secret = tmp_path / "secret"
        secret.write_text("not for you")
        pipeline = await Pipeline.create(client, work_dir=str(work_dir))
        dispatched = await pipeline.output("s", "kept")
        await pipeline.stage(dispatched, "part", "kept part")
        path = Path((await pipeline.step("s"))["file_path"])
        directory = path.parent
        for name, kept, content_type in (("s", b'"kept"', JSON), ("part", b"kept part", TEXT)):
            path = Path((await pipeline.step(name))["file_path"])
            for instead in ("nothing", "link", "directory", "pipe"):
                path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)
                if instead == "link":
                    path.symlink_to(secret)
                elif instead == "directory":
                    path.mkdir()
                elif instead == "pipe":
                    os.mkfifo(path)
                body, summary = await served(pipeline, name)
                assert (body, summary["content_type"], "file_path" in summary) == (kept, content_type, False)
                assert [step for step in await pipeline.steps() if step["name"] == name] == [summary]
                assert code_of(await pipeline.get(name, format="file")) == (404, "file_not_found")
            path.unlink()
        directory.rename(directory.with_name("moved"))
        directory.symlink_to(directory.with_name("moved"))
        (directory / "s.md").write_text("through a link")
        assert (await served(pipeline, "s"))[0] == b'"kept"'

    async def test_a_file_belongs_to_the_newest_final_of_its_step(
        self, client: httpx.AsyncClient, work_dir: Path
    ) -> None:
        """An older attempt is served as JSON though a file exists; each occurrence has a file of its own."""
        pipeline = await Pipeline.create(client, work_dir=str(work_dir))
        first = await pipeline.output("s", "1.1")
        await pipeline.result(await pipeline.retry(first), "1.2")
        await pipeline.output("s", "2.1")
        old, summary = await served(pipeline, "s", occurrence=1, attempt=1)
        assert (old, summary["content_type"], "file_path" in summary) == (b'"1.1"', JSON, False)
        assert code_of(await pipeline.get("s", occurrence=1, attempt=1, format="file")) == (404, "file_not_found")
        newest, of_first = await served(pipeline, "s", occurrence=1)
        assert b'"1.2"' in newest
        assert (await pipeline.content("s", occurrence=1, attempt=2, format="file")) == newest
        whole, of_second = await served(pipeline, "s")
        assert b'"2.1"' in whole
        assert of_first["file_path"] != of_second["file_path"]
        # A late Final of the older attempt takes the file from nobody.
        await pipeline.result(first, "1.1 late")
        assert (await served(pipeline, "s", occurrence=1))[0] == newest
        assert await pipeline.content("s", occurrence=1, attempt=2, format="file") == newest
        assert await pipeline.content("s", occurrence=1, attempt=1) == b'"1.1 late"'

    async def test_a_name_that_can_be_no_file_is_served_from_the_store(
        self, client: httpx.AsyncClient, work_dir: Path
    ) -> None:
        """Materializing is fail-open: an output whose name or root cannot be written is read from the store."""
        pipeline = await Pipeline.create(client, work_dir=str(work_dir))
        nowhere = await Pipeline.create(client, work_dir=str(work_dir / "missing"))

        async def put(run: Pipeline, ref: str) -> Dispatched:
            dispatched = await run.dispatch(ref)
            await run.stage(dispatched, "../part", "p")
            await run.result(dispatched, ref)
            return dispatched

        for run, ref in ((pipeline, "../../escape"), (pipeline, "n" * 300), (nowhere, "plain")):
            await put(run, ref)
            body, summary = await served(run, ref)
            assert (json.loads(body), "file_path" in summary) == (ref, False)
            assert (await served(run, "../part"))[0] == b"p"
        written = {path.name for path in work_dir.rglob("*") if path.is_file()}
        assert written == {"_ctx.md"}
