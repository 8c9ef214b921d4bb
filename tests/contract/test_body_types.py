"""What a body is, by its headers and its first bytes: codings and forms are refused, marks are no part of JSON."""

import gzip
import json

import httpx
import pytest
from fastapi import FastAPI

from tests.contract.pipeline import Pipeline, bearer, code_of
from tests.contract.test_guards import routes_of

FORM = "application/x-www-form-urlencoded"
MARK = b"\xef\xbb\xbf"


@pytest.fixture
def dialect() -> str:
    return "sqlite"


@pytest.fixture
async def pipeline(client: httpx.AsyncClient) -> Pipeline:
    return await Pipeline.create(client)


async def send(pipeline: Pipeline, route: str, body: bytes, **headers: str) -> tuple[httpx.Response, str]:
    """Submit or stage a body as a new step's; returns the answer and the name to read it by."""
    dispatched = await pipeline.dispatch("ask")
    named = {name.replace("_", "-"): value for name, value in headers.items()} | bearer(dispatched)
    answer = await pipeline.http.post(f"/v1/worker/{route}", content=body, headers=named)
    return answer, "ask" if route == "submit" else "part"


@pytest.mark.parametrize("coding", ["gzip", "br", "x-nonsense", "identity, gzip", "GZIP"])
@pytest.mark.parametrize("route", ["submit", "artifact?name=part", "submit?ok=true", "result", "stats"])
async def test_a_coded_body_is_415(pipeline: Pipeline, route: str, coding: str) -> None:
    """Whatever the route: what is compressed is not kept as if it were the output."""
    answer, _ = await send(pipeline, route, gzip.compress(b'{"a": 1}'), content_encoding=coding)
    assert code_of(answer) == (415, "unsupported_encoding")
    assert answer.json()["details"] == {"taken": ["identity"]}


async def test_a_coded_json_request_is_415(client: httpx.AsyncClient) -> None:
    """Also where the orchestrator sends it."""
    answer = await client.post("/v1/tasks", content=gzip.compress(b"{}"), headers={"content-encoding": "gzip"})
    assert code_of(answer) == (415, "unsupported_encoding")


@pytest.mark.parametrize("route", ["submit", "artifact?name=part"])
async def test_identity_is_no_coding(pipeline: Pipeline, route: str) -> None:
    """It says that the body is as it is."""
    answer, _ = await send(pipeline, route, b"x", content_encoding="identity")
    assert answer.status_code == 204


FORMS = {
    "curl -F": ("multipart/form-data; boundary=--x1", b'----x1\r\nContent-Disposition: form-data; name="f"\r\n\r\nx'),
    "quoted": ('multipart/form-data; boundary="a b"', b"\r\n--a b\r\n\r\nx\r\n--a b--"),
    "pairs": (FORM, b"output=done&ok=true"),
    "charset": (f"{FORM}; charset=utf-8", b"a=&b=2"),
    "escaped": (FORM.upper(), b"output=two%20words"),
}


@pytest.mark.parametrize("route", ["submit", "artifact?name=part", "submit?ok=true"])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
async def test_a_form_is_415_and_told_how_to_send_the_bytes(
    pipeline: Pipeline, route: str, form: tuple[str, bytes]
) -> None:
    """Its frame would be the output: nothing is kept, and the answer has the curl line."""
    answer, _ = await send(pipeline, route, form[1], content_type=form[0])
    assert code_of(answer) == (415, "unsupported_media_type")
    assert "curl --data-binary @x" in answer.json()["error"]
    assert await pipeline.names() == []


RAW = {
    "json": (FORM, b'{"a": "b=c&d=e"}'),
    "prose": (FORM, b"It works, as a=b & c=d show."),
    "one pair": (FORM, b"a=b"),
    "base64": (FORM, b"aGVsbG8="),
    "a url": (FORM, b"https://example.org/?a=b&c=d"),
    "lines": (FORM, b"A=1\nB=2"),
    "empty": (FORM, b""),
    "another type": ("text/plain", b"a=b&c=d"),
    "no frame": ("multipart/form-data; boundary=x", b"plain text"),
    "no boundary": ("multipart/form-data", b"--x"),
}


@pytest.mark.parametrize("raw", RAW.values(), ids=RAW)
async def test_a_raw_body_under_a_forms_type_is_kept(pipeline: Pipeline, raw: tuple[str, bytes]) -> None:
    """Curl names a form's type whatever it sends: what is no form for sure is the output, byte for byte."""
    answer, name = await send(pipeline, "submit", raw[1], content_type=raw[0])
    assert answer.status_code == 204
    kept = json.loads(await pipeline.content(name))
    assert kept == (json.loads(raw[1]) if raw[1].startswith(b"{") else raw[1].decode())


@pytest.mark.parametrize("body", [MARK + b'{"a": 1}', MARK + b'\n```json\n{"a": 1}\n```'])
async def test_a_mark_is_no_part_of_json(pipeline: Pipeline, body: bytes) -> None:
    """A submit that begins with a byte order mark is the value behind it."""
    await send(pipeline, "submit", body)
    assert json.loads(await pipeline.content("ask")) == {"a": 1}


@pytest.mark.parametrize("body", [MARK + b"text", MARK + b"{no json", MARK + b"1"])
async def test_a_mark_stays_in_a_text(pipeline: Pipeline, body: bytes) -> None:
    """What stays text is kept as it came."""
    await send(pipeline, "submit", body)
    assert json.loads(await pipeline.content("ask")) == body.decode()


async def test_a_request_may_begin_with_a_mark(client: httpx.AsyncClient) -> None:
    """Some shells write it: the document behind it is read."""
    answer = await client.post("/v1/tasks", content=MARK + b'{"goal": "g"}')
    assert answer.status_code == 201


async def test_head_is_answered_wherever_get_is(app: FastAPI, pipeline: Pipeline) -> None:
    """On every route of the document: the status and the type of GET, without its body; and no 405 hides it."""
    await pipeline.output("plan", {"a": 1})
    named = {"task_id": pipeline.task_id, "run_id": pipeline.run_id, "name": "plan", "step": "plan"}
    asked = 0
    for method, template in routes_of(app):
        if method != "get":
            continue
        url = template
        for key, value in named.items():
            url = url.replace("{" + key + "}", value)
        got, head = await pipeline.http.get(url), await pipeline.http.head(url)
        assert (head.status_code, head.content) == (got.status_code, b""), url
        assert head.headers["content-type"] == got.headers["content-type"], url
        asked += 1
    assert asked > 10
