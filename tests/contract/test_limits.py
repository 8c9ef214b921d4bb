"""What one request may cost the others, and what it may reach: limits that were found missing once."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.config import Settings
from app.domain.errors import InvalidJson
from app.domain.rendering import render_json, text_bytes
from app.domain.values import parse_json
from app.main import create_app
from app.storage.files import states as file_states
from tests.contract.pipeline import Pipeline, bearer, code_of, dumped, parsed

SEQUENCE = {"kind": "step", "ref": "a", "in": {"op": "path", "at": "$.in"}, "out": {"op": "path", "at": "$.a"}}


@given(st.integers(1, 420), st.integers(0, 420), st.sampled_from(["", ".0", ".5"]))
def test_a_number_is_exact_or_refused(digits: int, exponent: int, fraction: str) -> None:
    """However its digits and its exponent share its size: a number that no float holds is refused, never made null."""
    text = "[1" + "0" * (digits - 1) + fraction + (f"e{exponent}" if exponent else "") + "]"
    try:
        (value,) = parse_json(text)
    except InvalidJson:
        assert digits - 1 + exponent >= 308
    else:
        assert json.loads(render_json([value])) == [value]
        assert abs(value) < float("inf")


def test_a_lone_surrogate_becomes_one_character() -> None:
    """In raw bytes a lone surrogate is one U+FFFD, since UTF-8 has no form for it."""
    assert text_bytes("a\ud800b") == "a\ufffdb".encode()


async def test_an_earlier_part_is_judged_by_its_own_step(client: httpx.AsyncClient) -> None:
    """A worker whose policy excludes a step reads no part of it, also not behind a newer part of the same name."""
    agents = [{"name": "a", "meta": {"context_policy": {"steps_exclude": ["s"]}}}]
    pipeline = await Pipeline.create(client, {"id": "b", "flow": SEQUENCE, "agents": agents})
    secret, reader = await pipeline.dispatch("s"), await pipeline.dispatch("a")
    await pipeline.dispatch("s")
    await pipeline.stage(secret, "report.txt", "SECRET")
    await pipeline.stage(reader, "report.txt", "own")
    for tail in ("", "/content"):
        for query in ({}, {"occurrence": 1}, {"attempt": 1}, {"occurrence": 1, "attempt": 1}):
            url = pipeline.url("report.txt", tail)
            answer = await client.get(url, params=query, headers=bearer(reader))
            assert "SECRET" not in answer.text
            assert answer.status_code in {200, 403}, answer.text


async def test_a_result_of_many_keys_is_kept_whole(client: httpx.AsyncClient) -> None:
    """Every key of a large result answers; an artifact of such a name steps back; a key that is no name is in _ctx."""
    pipeline = await Pipeline.create(client)
    step = await pipeline.dispatch("worker")
    await pipeline.stage(step, "k7", "part")
    await pipeline.result(step, "own")
    result = {f"k{at}": at % 3 for at in range(3_000)} | {"worker": "other", "x" * 2_000: 1, "": 2}
    await pipeline.finish(result=result)
    summaries = {summary["name"]: summary for summary in await pipeline.steps()}
    assert sorted(summaries) == sorted({f"k{at}" for at in range(3_000)} | {"worker"})
    assert (await pipeline.get("k7", "/content")).content == b"1"
    assert summaries["k7"]["source"] == "result_ref"
    assert json.loads((await pipeline.get("worker", "/content")).content) == "own"
    assert json.loads((await pipeline.get("_ctx", "/content")).content) == result


async def test_yaml_is_for_tasks_and_bounded(client: httpx.AsyncClient) -> None:
    """Only a task may come as YAML, and not a long one: it is slow to read."""
    yaml = {"content-type": "application/yaml"}
    assert (await client.post("/v1/tasks", content="goal: x", headers=yaml)).status_code == 201
    long = await client.post("/v1/tasks", content="goal: " + "x" * 600_000, headers=yaml)
    assert code_of(long) == (400, "invalid_json")
    deep = await client.post("/v1/tasks", content="[" * 5_000, headers=yaml)
    assert code_of(deep) == (400, "invalid_json")
    pipeline = await Pipeline.create(client)
    step = await pipeline.dispatch("worker")
    result = await client.post("/v1/worker/result", content="value: 1", headers=bearer(step) | yaml)
    assert code_of(result) == (400, "invalid_json")


@pytest.mark.parametrize(
    ("host", "base_url", "status"),
    [
        ("127.0.0.1:7777", None, 200),
        ("localhost:7777", None, 200),
        ("[::1]:7777", None, 200),
        ("plane", None, 200),
        ("evil.example", None, 403),
        ("EVIL.example:7777", None, 403),
        ("127.0.0.1.evil.example", None, 403),
        ("plane.example", "https://plane.example/base", 200),
        ("plane.example:7777", "https://plane.example", 200),
        ("evil.example", "https://plane.example", 403),
    ],
)
async def test_a_strangers_domain_name_leads_nowhere(
    database_url: str, host: str, base_url: str | None, status: int
) -> None:
    """Without a token no browser is answered under a domain name that is not ours: a page's own may lead here."""
    app = create_app(Settings(database_url=database_url, base_url=base_url))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as http,
    ):
        browser = {"Host": host, "Accept-Language": "en"}
        assert (await http.get("/v1/tasks", headers=browser)).status_code == status
        assert (await http.post("/v1/tasks", content="{}", headers=browser)).status_code == (
            201 if status == 200 else 403
        )
        assert (await http.get("/v1/tasks", headers={"Host": host})).status_code == 200


async def test_a_file_grown_beyond_all_measure_is_not_read(
    client: httpx.AsyncClient, work_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A materialized file that somebody made huge is no output of ours: the store answers in its place."""
    monkeypatch.setattr(file_states, "MAX_BYTES", 1_000)
    pipeline = await Pipeline.create(client, work_dir=str(work_dir))
    await pipeline.output("worker", {"a": 1})
    (summary,) = await pipeline.steps()
    os.truncate(summary["file_path"], 1_001)
    (summary,) = await pipeline.steps()
    assert "file_path" not in summary
    content = await pipeline.get("worker", "/content")
    assert (content.headers["content-type"], json.loads(content.content)) == ("application/json", {"a": 1})
    assert code_of(await pipeline.get("worker", "/content", format="file")) == (404, "file_not_found")


async def test_an_error_does_not_give_a_body_back(client: httpx.AsyncClient) -> None:
    """An unknown field is named, however long, in a sentence that a person can read."""
    answer = await client.post("/v1/tasks", json={"x" * 100_000: 1})
    assert code_of(answer) == (422, "invalid_request")
    assert len(answer.content) < 1_000


async def test_a_large_body_is_served_whole(client: httpx.AsyncClient) -> None:
    """A body that is read in pieces has the size and digest that its summary tells, HEAD and 304 too."""
    pipeline = await Pipeline.create(client)
    value = {"rows": ["x" * 1_000] * 1_600}
    await pipeline.output("worker", value)
    (summary,) = await pipeline.steps()
    content = await pipeline.get("worker", "/content")
    assert len(content.content) == summary["size_bytes"] > 1_500_000
    assert content.headers["etag"] == f'"sha256:{summary["sha256"]}"'
    assert json.loads(content.content) == value
    head = await client.head(pipeline.url("worker", "/content"))
    assert head.headers["content-length"] == str(summary["size_bytes"])
    assert parsed(await pipeline.get("worker", path="$.rows[1599]"))["size_bytes"] == 1_002


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_a_closed_stream_is_no_crash(closed: str, tmp_path: Path) -> None:
    """A command whose standard output or error was closed by its caller ends as it would, without a traceback."""
    redirect = {"stdout": ">&-", "stderr": "2>&-"}[closed]
    url = f"sqlite:///{tmp_path / 'x.db'}"
    line = f"exec {sys.executable} -m app migrate --database-url {url} {redirect}"
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr


async def test_a_body_that_would_render_to_many_times_its_size_is_refused(client: httpx.AsyncClient) -> None:
    """Nesting multiplies a body by its depth: over 32 MiB of indentation it is 413, by whatever route it comes."""
    deep = b"[" + b",".join([b"[" * 190 + b"]" * 190] * 1_000) + b"]"
    pipeline = await Pipeline.create(client)
    dispatched = await pipeline.dispatch("deep")
    submitted = await client.post("/v1/worker/submit", content=deep, headers=bearer(dispatched))
    document = b'{"task_id": "%b", "attempt": 1, "value": %b}' % (dispatched["step_id"].encode(), deep)
    result = await client.post("/v1/worker/result", content=document, headers=bearer(dispatched))
    finished = await client.post(
        f"/v1/runs/{pipeline.run_id}/finish", content=b'{"status": "done", "result": %b}' % deep
    )
    for answer in (submitted, result, finished):
        assert code_of(answer) == (413, "nested_too_deep"), answer.text
        assert "nests so deep" in answer.json()["error"]
    assert await pipeline.names() == []
    assert (await pipeline.record())["status"] == "running"


async def test_a_view_that_would_render_to_many_times_its_size_has_no_file(
    client: httpx.AsyncClient, work_dir: Path
) -> None:
    """A context nests as deep as it likes; the file of its view is then left out, as one that could not be written."""
    deep: Any = [1] * 100_000
    for _ in range(190):
        deep = [deep]
    pipeline = await Pipeline.create(client, work_dir=str(work_dir))
    dispatched = await pipeline.dispatch("s", ctx={"deep": deep})
    assert "ctx_projection" not in dispatched
    assert list(work_dir.rglob("*.md")) == []
    assert (await pipeline.prompt(dispatched))["context"]["extra"] == {"deep": deep}


async def test_what_a_worker_says_of_itself_is_bounded(client: httpx.AsyncClient) -> None:
    """A count that no reader could read back, and a report that would make a list of its own, are refused with 422."""
    pipeline = await Pipeline.create(client)
    dispatched = await pipeline.dispatch("s")
    for route, document in (
        ("stats", b'{"usage": {"total_tokens": %b}}' % (b"9" * 4_301)),
        ("stats", b'{"usage": {"input_tokens": 9223372036854775808}}'),
        ("stats", dumped({"model": "m" * 1_001})),
        ("degradation", dumped({"tool": "t" * 1_001, "error": "e", "fallback": "f"})),
        ("degradation", dumped({"tool": "t", "error": "e" * 16_385, "fallback": "f"})),
    ):
        answer = await client.post(f"/v1/worker/{route}", content=document, headers=bearer(dispatched))
        assert code_of(answer) == (422, "invalid_request"), answer.text
    largest = b'{"usage": {"total_tokens": 9223372036854775807}}'
    kept = await client.post("/v1/worker/stats", content=largest, headers=bearer(dispatched))
    assert kept.status_code == 204
    assert (await pipeline.entries())[0]["usage"]["total_tokens"] == 2**63 - 1
