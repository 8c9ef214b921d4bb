"""Errors: one shape for whatever goes wrong, and an id that leads from the answer to the log.

Source: contract §2, "Errors, everywhere in the API".
"""

import asyncio
import contextlib
import json
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
from fastapi import FastAPI
from pydantic import SecretStr
from sqlalchemy import make_url
from structlog.testing import capture_logs

from app.config import Settings
from app.main import create_app
from tests.contract.pipeline import Pipeline, bearer, one_database, parsed, plane_of, serving

OWN_ID = re.compile("[0-9a-f]{16}")


def check(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Hold an answer to the one shape, and return its body."""
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/json"), answer.text
    body: dict[str, Any] = json.loads(answer.content)
    assert list(body) == ["error", "code", "request_id", *(["details"] if "details" in body else [])]
    assert body["code"] == code
    assert body["request_id"] == answer.headers["x-request-id"]
    assert re.fullmatch(r"\S.*\S", body["error"])  # one line
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-length"] == str(len(answer.content))
    assert "Traceback" not in answer.text
    assert ".py" not in answer.text
    return body


class TestShape:
    @one_database
    async def test_routing(self, client: httpx.AsyncClient) -> None:
        """A path that is no route is 404, another method of a route 405 with the methods it has: in the one shape."""
        pipeline = await Pipeline.create(client)
        for path in (
            "/nowhere",
            "/v1",
            "/v1/",
            "/v1/tasks/",
            "/v1/nothing",
            "/v2/tasks",
            "//v1/tasks",
            "/v1/tasks/T-1/runs/R-1",
        ):
            for method in ("GET", "POST", "DELETE", "PATCH"):
                check(await client.request(method, path), 404, "route_not_found")
        steps = pipeline.steps_url
        for method, path, allowed in (
            ("DELETE", "/v1/tasks", {"GET", "HEAD", "POST"}),
            ("PUT", "/v1/runs", {"GET", "HEAD"}),
            ("PATCH", f"/v1/runs/{pipeline.run_id}", {"GET", "HEAD", "DELETE"}),
            ("GET", f"/v1/runs/{pipeline.run_id}/finish", {"POST"}),
            ("POST", steps, {"GET", "HEAD"}),
            ("PUT", f"{steps}/s", {"GET", "HEAD"}),
            ("DELETE", f"{steps}/s/content", {"GET", "HEAD"}),
            ("BREW", "/v1/healthz", {"GET", "HEAD"}),
        ):
            answer = await client.request(method, path)
            check(answer, 405, "method_not_allowed")
            assert set(re.split(r",\s*", answer.headers["allow"])) == allowed, path
        head = await client.head("/v1/nothing")
        assert (head.status_code, head.content, head.headers["content-type"]) == (404, b"", "application/json")

    @one_database
    async def test_bodies_and_parameters(self, client: httpx.AsyncClient) -> None:
        """A body that is no JSON is 400, one of the wrong shape 422, a parameter of the wrong kind 400."""
        for body in (b"{", b"\xff", b"{'a': 1}", b'{"goal": NaN}', b"{} {}", b"\xef\xbb\xbf"):
            check(await client.post("/v1/tasks", content=body), 400, "invalid_json")
        for body in (b"", b"[]", b"1", b"null", b'{"goal": []}', b'{"nope": 1, "neither": 2}'):
            told = check(await client.post("/v1/tasks", content=body), 422, "invalid_request")
            assert all(set(detail) == {"path", "message"} for detail in told["details"])
        told = check(await client.get("/v1/runs?limit=x&status=y"), 400, "invalid_parameter")
        assert len(told["details"]) == 2
        check(await client.delete("/v1/runs/R-0?force=perhaps"), 400, "invalid_parameter")
        check(await client.get("/v1/runs/nope"), 400, "invalid_id")
        check(await client.get("/v1/tasks/T-0/runs/latest/steps/s?format=x"), 400, "invalid_parameter")

    @one_database
    async def test_access(self, database_url: str) -> None:
        """A missing, malformed or unknown bearer is 401 and says what is needed; a known one elsewhere 403."""
        async with serving(
            Settings(database_url=database_url, operator_token=SecretStr("the-right-operator-token"))
        ) as http:
            http.headers["Authorization"] = "Bearer the-right-operator-token"
            dispatched = await (await Pipeline.create(http)).dispatch("s")
            del http.headers["Authorization"]
            for given in (
                None,
                "Bearer wrong",
                "Bearer",
                "Basic cmlnaHQ=",
                "Bearer the-right-operator-token, Bearer the-right-operator-token",
                "right",
                "",
            ):
                headers = {} if given is None else {"Authorization": given}
                for path in ("/v1/tasks", "/v1/nothing", "/v1/tasks/T-0/runs/latest/steps", "/v1/worker/prompt"):
                    answer = await http.get(path, headers=headers)
                    told = check(answer, 401, "unauthenticated")
                    assert answer.headers["www-authenticate"] == "Bearer"
                    assert "wrong" not in told["error"]
            check(await http.get("/v1/tasks", headers=bearer(dispatched)), 403, "forbidden")

    @one_database
    async def test_a_body_over_the_limit(self, database_url: str) -> None:
        """A body over its limit is 413 with limit and size, whether its length is declared or only shows."""
        async with serving(Settings(database_url=database_url, max_output_bytes=1024)) as http:
            pipeline = await Pipeline.create(http)
            dispatched = await pipeline.dispatch("s")

            async def streamed(size_bytes: int) -> AsyncIterator[bytes]:
                for _ in range(size_bytes):
                    yield b"x"

            for url, limit_bytes in (("/v1/worker/submit", 1024), ("/v1/worker/artifact?name=p", 1024)):
                for body, size_bytes in (
                    (b"x" * (limit_bytes + 1), limit_bytes + 1),
                    (streamed(limit_bytes + 1), None),
                ):
                    answer = await http.post(url, content=body, headers=bearer(dispatched))
                    told = check(answer, 413, "output_too_large")
                    assert told["details"] == {"limit_bytes": limit_bytes, "size_bytes": size_bytes}
            told = check(await http.post("/v1/tasks", content=b" " * 10_000), 413, "output_too_large")
            assert told["details"]["limit_bytes"] < 10_000
            assert await pipeline.steps() == []
            await pipeline.submit(dispatched, b"x" * 1024)

    @one_database
    async def test_a_crash_tells_nothing(self, app: FastAPI, client: httpx.AsyncClient) -> None:
        """Whatever breaks inside is 500 with an id and not a word of what broke."""

        async def broken() -> None:
            message = "the secret is in app/main.py"
            raise RuntimeError(message)

        async def hopeless() -> None:
            raise ExceptionGroup("several", [ValueError("secret"), KeyError("secret")])

        app.add_api_route("/v1/broken", broken, methods=["GET", "POST"])
        app.add_api_route("/v1/hopeless", hopeless)
        for method, path in (("GET", "/v1/broken"), ("POST", "/v1/broken"), ("GET", "/v1/hopeless")):
            with capture_logs() as logged:
                answer = await client.request(method, path, headers={"X-Request-ID": "find-me"})
            told = check(answer, 500, "internal_error")
            assert told["request_id"] == "find-me"
            assert "secret" not in json.dumps(told)
            (crash,) = [entry for entry in logged if entry["event"] == "crashed"]
            assert (crash["request_id"], crash["log_level"], crash["exc_info"]) == ("find-me", "error", True)
        assert (await client.get("/v1/healthz")).text == "ok"

    @pytest.mark.parametrize("log_format", ["console", "json"])
    async def test_a_crash_logs_no_secret(self, tmp_path: Path, log_format: str) -> None:
        """The log tells what broke and where, and neither the bearer nor the settings that were at hand."""
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _CRASHING, log_format, str(tmp_path / "stepplane.db")),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, log = await program.communicate()
        assert (program.returncode, out.decode().split()) == (0, ["500", "find-me"]), log.decode()
        assert b"RuntimeError: it broke" in log
        assert b"find-me" in log
        assert b"in broken" in log
        for secret in (b"the-operator-token", b"authorization", b"SecretStr", b"sqlite://"):
            assert secret not in log, log.decode()

    @pytest.mark.parametrize("log_format", ["console", "json"])
    async def test_a_log_that_cannot_be_written_fails_no_request(self, tmp_path: Path, log_format: str) -> None:
        """With a full disk behind the log every answer is what it would be."""
        with Path("/dev/full").open("wb") as full:  # noqa: ASYNC230 - a device
            program = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", _CRASHING, log_format, str(tmp_path / "stepplane.db")),
                stdout=asyncio.subprocess.PIPE,
                stderr=full,
            )
        out, _ = await program.communicate()
        assert out.decode().split() == ["500", "find-me"]

    async def test_a_database_that_is_gone_for_a_while(
        self, app: FastAPI, client: httpx.AsyncClient, database_url: str
    ) -> None:
        """While the database cannot be reached every read is 503 with Retry-After; once it is back all is well."""
        pipeline = await Pipeline.create(client)
        await pipeline.output("s", 1)
        reads = (pipeline.steps_url, pipeline.url("s", "/content"), "/v1/tasks", f"/v1/runs/{pipeline.run_id}")
        for url in reads:
            async with unreachable(app, database_url):
                answer = await client.get(url)
                check(answer, 503, "unavailable")
                assert int(answer.headers["retry-after"]) > 0
            assert (await client.get(url)).status_code == 200


_CRASHING = """
import asyncio, sys, httpx
from app.config import Settings
from app.main import create_app
from app.observability import set_up_logs

async def broken():
    raise RuntimeError("it broke")

async def main():
    set_up_logs(sys.argv[1], "debug")
    app = create_app(Settings(database_url=f"sqlite:///{sys.argv[2]}", operator_token="the-operator-token"))
    app.add_api_route("/v1/broken", broken)
    headers = {"Authorization": "Bearer the-operator-token", "X-Request-ID": "find-me"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as http:
        answer = await http.get("/v1/broken", headers=headers)
        print(answer.status_code, answer.json()["request_id"])

asyncio.run(main())
"""


@contextlib.asynccontextmanager
async def unreachable(app: FastAPI, database_url: str) -> AsyncIterator[None]:
    """Take the database away: the file from SQLite's place; PostgreSQL lets nobody connect, nor stay."""
    url = make_url(database_url)
    if url.get_backend_name() == "sqlite":
        plane_of(app)._query._database._readers.close()
        await asyncio.sleep(0)  # the turn that read last ends, and gives its reader back
        path = Path(url.database or "")
        path.rename(path.with_suffix(".away"))
        yield
        path.with_suffix(".away").rename(path)
        return
    server = await asyncpg.connect(url.set(database="postgres").render_as_string(hide_password=False))
    await server.execute(f'ALTER DATABASE "{url.database}" WITH ALLOW_CONNECTIONS false')
    await server.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = $1", url.database
    )
    yield
    await server.execute(f'ALTER DATABASE "{url.database}" WITH ALLOW_CONNECTIONS true')
    await server.close()


class TestRequestIds:
    async def test_a_sane_id_is_kept(self) -> None:
        """An id that the client sends comes back in the header, and in an error's body too."""
        transport = httpx.ASGITransport(create_app(Settings(database_url="sqlite:///never-opened.db")))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            for given in ("abc", "A-b_c.9", "x" * 128, "0"):
                healthy = await http.get("/v1/healthz", headers={"X-Request-ID": given})
                missing = await http.get("/v1/nothing", headers={"X-Request-ID": given})
                assert [answer.headers.get_list("x-request-id") for answer in (healthy, missing)] == [[given]] * 2
                assert check(missing, 404, "route_not_found")["request_id"] == given

    @one_database
    async def test_any_other_is_replaced(self, client: httpx.AsyncClient) -> None:
        """An id that could forge a log line, or is over-long, gives way to one of ours, new for every request."""
        seen: list[str] = []
        pipeline = await Pipeline.create(client)
        etag = (await pipeline.get()).headers["etag"]
        for given in (b"", b"a b", b"x" * 129, b"a\tb", "é".encode(), b"<script>", b"a;b", b"%0A", b"a/b"):
            for url in ("/v1/healthz", "/v1/nothing", pipeline.steps_url, "/v1/tasks"):
                headers = [(b"x-request-id", given), (b"if-none-match", etag.encode())]
                answer = await client.get(url, headers=headers)
                (own,) = answer.headers.get_list("x-request-id")
                assert OWN_ID.fullmatch(own), given
                seen.append(own)
        for method, url in (("GET", "/v1/healthz"), ("POST", f"/v1/runs/{pipeline.run_id}/finish")):
            seen.append((await client.request(method, url)).headers["x-request-id"])
        assert len(seen) == len(set(seen)) == 38
        assert parsed(await client.get("/v1/tasks"))["tasks"][0]["id"] == pipeline.task_id
