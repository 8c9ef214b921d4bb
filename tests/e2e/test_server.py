"""A real server process: killed, restarted, asked over real sockets, and started where it cannot be."""

import asyncio
import hashlib
import http.client
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Self
from urllib.parse import quote

import httpx
import pytest

from app.storage.migrations import migrate
from app.storage.urls import parse_database_url
from tests.contract.pipeline import Dispatched, Pipeline, bearer, blueprint_of, code_of, dumped
from tests.e2e.conftest import Server

NAMES = ["..", ".", "a/b", "../../etc/passwd", "/", "%2F", "%2E%2E", "a b?c#d;e", "計画\u202e", "content", "steps",
         "a//b", "\x00",
         "healthz", "%", "+", "a\\b", "~", "é\u0301", "😀", "latest", "_ctx.md", "x" * 300]  # fmt: skip

OnlyOne = pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
"""For what is no affair of the database."""


def _ask(
    server: Server, path: str, headers: dict[str, str] | None = None, method: str = "GET"
) -> tuple[int, dict[str, str], bytes]:
    """Send a path as it stands: this client tidies nothing up."""
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)) as connection:
        connection.request(method, path, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read()


class TestRestart:
    """A restart changes no answer."""

    async def test_every_answer_is_the_same_after_a_kill_and_a_restart(self, server: Server, tmp_path: Path) -> None:
        """Bytes, digests, ETags, lists, tables of names, views and handles outlive a SIGKILL, whatever they are of."""
        work_dir = tmp_path / "work"
        work_dir.mkdir()
        blueprint = blueprint_of(("plan", "$.draft"), ("code", "$.code"), names={"plan": "the plan"})
        async with httpx.AsyncClient(base_url=server.url) as http:
            ended = await Pipeline.create(http, blueprint, work_dir=str(work_dir), goal="restart")
            first = await ended.dispatch("plan")
            second = await ended.retry(first)
            await ended.submit(first, "first")
            await ended.submit(second, '{"list": [1, {"k": "é"}]}', verdict="blocked")
            await ended.stage(second, "part.md", "# part")
            await ended.output("a/b", None)
            await ended.output("a/b", 2)
            await ended.finish(result={"code": [1], "draft": "hidden"})
            running = await ended.another_run()
            in_flight = await running.dispatch("code", {"d": 1}, system="s" * 30_000, ctx={"k": "v"})
            await running.stage(in_flight, "part.md", "staged")
            urls = ["/v1/tasks", f"/v1/tasks/{ended.task_id}", "/v1/runs", "/openapi.json"]
            for pipeline in (ended, running):
                run = f"/v1/runs/{pipeline.run_id}"
                urls += [pipeline.steps_url, run, f"{run}/steps"]
                for name in ("the plan", "plan", "draft", "code", "part.md", "a/b", "_ctx", "none"):
                    for tail in ("", "/content", "/content?format=json", "/content?format=raw", "/content?format=file",
                                 "?attempt=1", "?occurrence=1", "/content?path=list[-1].k",
                                 "/content?path="):  # fmt: skip
                        urls.append(pipeline.url(name, tail))
            urls += ["/v1/worker/prompt", "/v1/worker/prompt/system"]

            async def answers() -> dict[str, tuple[int, dict[str, str], bytes]]:
                told = {}
                for url in urls:
                    answer = await http.get(url, headers=bearer(in_flight) if "worker" in url else {})
                    headers = {key: item for key, item in answer.headers.items() if key not in {"date", "x-request-id"}}
                    body = answer.content
                    if answer.is_error:
                        document = answer.json()
                        del document["request_id"]
                        body, _ = json.dumps(document).encode(), headers.pop("content-length")
                    told[url] = (answer.status_code, headers, body)
                return told

            before = await answers()
            assert Counter(status for status, _, _ in before.values()).keys() == {200, 404}
            server.restart()
            after = await answers()
            for url in urls:
                assert after[url] == before[url], url
            etags = {url: headers["etag"] for url, (_, headers, _) in before.items() if "etag" in headers}
            for url, etag in etags.items():
                headers = {"If-None-Match": etag} | (bearer(in_flight) if "worker" in url else {})
                status = (await http.get(url, headers=headers)).status_code
                assert status == (200 if url.startswith("/v1/worker") else 304), url
            await running.submit(in_flight, "after the restart")
            assert json.loads(await running.content("code", format="json")) == "after the restart"
            assert (await running.retry(in_flight))["attempt"] == 2
            refused = await http.post("/v1/worker/submit", content=b"x", headers=bearer(second))
            assert code_of(refused) == (410, "run_finished")

    @OnlyOne
    async def test_a_signal_ends_it_cleanly_after_what_it_was_asked(self, server: Server) -> None:
        """SIGTERM and Ctrl-C end with status 0, no traceback, and every submit that was answered in the store."""
        for number in (signal.SIGTERM, signal.SIGINT):
            await self._stops(server, number)
        assert "Traceback" not in server.log

    @staticmethod
    async def _stops(server: Server, number: signal.Signals) -> None:
        async with httpx.AsyncClient(base_url=server.url) as http:
            pipeline = await Pipeline.create(http)
            dispatched = [await pipeline.dispatch(f"step {n}") for n in range(8)]

            async def submit(each: Dispatched) -> str | None:
                try:
                    answer = await http.post("/v1/worker/submit", content=b"x" * 100_000, headers=bearer(each))
                except httpx.TransportError:
                    return None
                assert answer.status_code in {204, 503}
                return each["name"] if answer.status_code == 204 else None

            pending = [asyncio.create_task(submit(each)) for each in dispatched]
            await asyncio.sleep(0.005)
            os.kill(server.pid, number)
            kept = {name for name in await asyncio.gather(*pending) if name}
            assert await asyncio.to_thread(server.stop) == 0
            server.start()
            assert kept <= set(await pipeline.names())


class TestSockets:
    """What only a real parser and a real socket show."""

    @pytest.fixture(scope="class")
    @classmethod
    def server(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
        """One server for them all, on SQLite: the database has no part in this."""
        home = tmp_path_factory.mktemp("sockets")
        running = Server(f"sqlite:///{home}/stepplane.db", home / "server.log")
        yield running
        running.stop()

    async def test_every_name_is_reached_by_the_url_that_is_handed_out(self, server: Server) -> None:
        """Each ``content_url`` is served as it stands to a client that tidies nothing up, and to httpx alike."""
        async with httpx.AsyncClient(base_url=server.url) as http:
            pipeline = await Pipeline.create(http)
            for name in NAMES:
                await pipeline.output(name, {"name": name})
            steps = await pipeline.steps()
            assert [step["name"] for step in steps] == sorted(NAMES, key=str.encode)
            for step in steps:
                status, headers, body = await asyncio.to_thread(_ask, server, step["content_url"])
                assert (status, json.loads(body)) == (200, {"name": step["name"]}), step["content_url"]
                assert headers["etag"] == f'"sha256:{hashlib.sha256(body).hexdigest()}"' == f'"sha256:{step["sha256"]}"'
                assert (await http.get(step["content_url"])).content == body
                summary = step["content_url"].removesuffix("/content")
                assert json.loads((await asyncio.to_thread(_ask, server, summary))[2]) == step
            for spelled in ("%2e%2e", "%2E.", ".%2e", "..", "%2E%2E"):
                status, _, body = await asyncio.to_thread(_ask, server, f"{pipeline.steps_url}/{spelled}/content")
                assert (status, json.loads(body)) == (200, {"name": ".."}), spelled
            for spelled in ("a%2fb", "a%2Fb", "%61%2F%62"):
                status, _, body = await asyncio.to_thread(_ask, server, f"{pipeline.steps_url}/{spelled}/content")
                assert (status, json.loads(body)) == (200, {"name": "a/b"}), spelled

    async def test_a_path_is_routed_as_it_was_sent(self, server: Server) -> None:
        """No dots are resolved and no slashes merged: what is no route is 404 in the one error shape, never a file."""
        async with httpx.AsyncClient(base_url=server.url) as http:
            pipeline = await Pipeline.create(http)
            await pipeline.output("plan", 1)
        base = pipeline.steps_url
        for path in (
            f"{base}/plan/../plan", f"{base}/./plan", f"{base}//plan", f"/{base}", f"{base}/", f"{base}/plan/",
            f"{base}/plan/content/",
            f"{base}/a/b", f"{base}/../../../../../../../../etc/passwd", "/..%2f..%2f..%2fetc/passwd",
            "/v1/./healthz", "//v1/healthz",
            "/v1/healthz/", "/v1/healthz%2F..", "/V1/healthz", "/v1%2Fhealthz", f"{base}%2Fplan",
            f"{base}/plan%2Fcontent",
        ):  # fmt: skip
            status, headers, body = await asyncio.to_thread(_ask, server, path)
            assert (status, headers["content-type"]) == (404, "application/json"), path
            assert json.loads(body)["code"] in {"route_not_found", "step_not_found"}, path
            assert b"root:" not in body
        assert (await asyncio.to_thread(_ask, server, "/v1/healthz"))[::2] == (200, b"ok")
        assert (await asyncio.to_thread(_ask, server, f"{base}/%FF"))[0] == 400

    async def test_a_body_is_refused_before_it_is_sent(self, server: Server) -> None:
        """A stranger, and a body too large by its declared length, are answered while not one byte of it was sent."""
        async with httpx.AsyncClient(base_url=server.url) as http:
            dispatched = await (await Pipeline.create(http)).dispatch("ask")
        for handle, expected in (("wh-" + "0" * 32, b"401"), (dispatched["worker_handle"], b"413")):
            head = f"POST /v1/worker/submit HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {handle}\r\n"
            head += f"Content-Length: {2**40}\r\n\r\n"
            with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
                connection.sendall(head.encode())
                assert (await asyncio.to_thread(connection.recv, 65_536)).split()[1] == expected

    async def test_a_body_that_breaks_off_is_not_kept(self, server: Server) -> None:
        """A submit whose sender goes away half-way keeps nothing, and the server goes on."""
        async with httpx.AsyncClient(base_url=server.url) as http:
            pipeline = await Pipeline.create(http)
            dispatched = await pipeline.dispatch("ask")
            head = (
                f"POST /v1/worker/submit HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {dispatched['worker_handle']}\r\n"
            )
            for framing in (b"Content-Length: 1000\r\n\r\nhalf", b"Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"):
                for _ in range(5):
                    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
                        connection.sendall(head.encode() + framing)
            await pipeline.submit(await pipeline.dispatch("other"), "x")
            assert await pipeline.names() == ["other"]
            assert (await pipeline.entries())[0]["status"] == "dispatched"
        assert "Traceback" not in server.log

    def test_curl_reaches_every_name(self, server: Server) -> None:
        """Curl --path-as-is follows a ``content_url`` as it stands, and its digest is the one told."""
        with httpx.Client(base_url=server.url) as http:
            created = http.post("/v1/tasks", content=b"{}").json()
            for name in ("..", "a/b", "../../etc/passwd"):
                ref = dumped({"ref": name, "directive": 1})
                handle = http.post(f"/v1/runs/{created['run_id']}/steps", content=ref).json()
                http.post("/v1/worker/submit", content=f"output of {name}", headers=bearer(handle))
            steps = http.get(f"/v1/tasks/{created['task_id']}/runs/latest/steps").json()["steps"]
        for step in steps:
            assert quote(step["name"], safe="").replace(".", "%2E") in step["content_url"].replace(".", "%2E")
            body = subprocess.run(
                ["curl", "--silent", "--fail", "--path-as-is", server.url + step["content_url"]],
                capture_output=True,
                check=True,
            ).stdout
            assert hashlib.sha256(body).hexdigest() == step["sha256"]
            assert json.loads(body) == f"output of {step['name']}"


class TestLogs:
    """No secret in any line that a server writes."""

    @OnlyOne
    @pytest.mark.parametrize("log_format", ["console", "json"])
    async def test_no_secret_is_written_even_by_a_crash(
        self, database_url: str, tmp_path: Path, log_format: str
    ) -> None:
        """At the least level, in both formats, a crash with its traceback included: no token and no handle."""
        token = "the-operators-own-token"
        environment = {
            "STEPPLANE_LOG_LEVEL": "debug",
            "STEPPLANE_LOG_FORMAT": log_format,
            "STEPPLANE_OPERATOR_TOKEN": token,
        }
        server = Server(database_url, tmp_path / "server.log", environment)
        try:
            headers = {"Authorization": f"Bearer {token}", "X-Request-ID": "findable-id"}
            async with httpx.AsyncClient(base_url=server.url, headers=headers) as http:
                pipeline = await Pipeline.create(http)
                dispatched = await pipeline.output("ask", 1)
                await pipeline.prompt(dispatched)
                await http.post("/v1/worker/result", content=b"{", headers=bearer(dispatched))
                await http.get("/v1/tasks", headers={"Authorization": f"Basic {token}"})
                with sqlite3.connect(parse_database_url(database_url).path) as connection:
                    connection.execute("UPDATE dispatches SET view = '[1]', policy = '[1]'")
                connection.close()
                for path in ("/v1/worker/prompt", pipeline.steps_url):
                    crashed = await http.get(path, headers=bearer(dispatched))
                    assert code_of(crashed) == (500, "internal_error")
                    assert crashed.json()["request_id"] == "findable-id"
        finally:
            server.stop()
        assert server.log.count("findable-id") > 5
        assert "Traceback" in server.log
        for secret in (token, dispatched["worker_handle"], dispatched["worker_handle"].removeprefix("wh-")):
            assert secret not in server.log
        if log_format == "json":
            lines = [line for line in server.log.splitlines() if "listens on" not in line]
            assert all(isinstance(json.loads(line), dict) for line in lines)


class TestStartup:
    """Where a server cannot start."""

    @OnlyOne
    def test_what_keeps_it_from_starting_is_one_clear_line(self, database_url: str, tmp_path: Path) -> None:
        """A taken port, an unusable or newer database, an open address: one line, a status, no traceback."""
        url = parse_database_url(database_url)
        migrate(url)
        with sqlite3.connect(url.path) as connection:
            connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.close()
        (tmp_path / "garbage").write_text("no database at all\n" * 100)
        taken = socket.create_server(("127.0.0.1", 0))
        port = str(taken.getsockname()[1])
        fresh = f"sqlite:///{tmp_path}/fresh.db"
        cases: list[tuple[list[str], dict[str, str], str]] = [
            (["--port", port], {"DATABASE_URL": fresh}, f"127.0.0.1:{port}"),
            (["--port", "0"], {"DATABASE_URL": database_url}, "newer stepplane"),
            (["--port", "0"], {"DATABASE_URL": f"sqlite:///{tmp_path}"}, "Is a directory"),
            (["--port", "0"], {"DATABASE_URL": f"sqlite:///{tmp_path}/garbage"}, "not a database"),
            (["--port", "0"], {"DATABASE_URL": "postgresql://u:secret@127.0.0.1:1/n"}, "cannot be used"),
            (["--host", "0.0.0.0", "--port", "0"], {"DATABASE_URL": fresh}, "STEPPLANE_OPERATOR_TOKEN"),
            (["--port", "0"], {"DATABASE_URL": fresh, "OPERATOR_TOKEN": "with space"}, "OPERATOR_TOKEN"),
        ]
        with taken, _Trials(tmp_path) as trials:
            for arguments, environment, reason in cases:
                status, out, err = trials.serve(arguments, environment)
                case = (arguments, environment, err)
                assert status > 0, case
                assert reason in err, case
                assert (out, len(err.splitlines())) == ("", 1), case
                assert "Traceback" not in err, case
                assert "secret" not in err, case
                assert "with space" not in err, case


_TRIALS = """
import json, os, sys
from app import cli, main
for line in sys.stdin:
    arguments, environment, out, err = json.loads(line)
    child = os.fork()
    if child == 0:
        os.environ.update(environment)
        for stream, path in ((1, out), (2, err)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
        cli.main(["serve", *arguments])
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class _Trials:
    """Runs the command in processes of their own, forked of one that has imported the program already."""

    def __init__(self, directory: Path) -> None:
        self._out, self._err = directory / "out", directory / "err"
        self._launcher = subprocess.Popen(
            [sys.executable, "-c", _TRIALS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def serve(self, arguments: list[str], environment: dict[str, str]) -> tuple[int, str, str]:
        """Run ``stepplane serve`` and return its exit status, and what it wrote to its two streams."""
        assert self._launcher.stdin is not None
        assert self._launcher.stdout is not None
        variables = {f"STEPPLANE_{name}": item for name, item in environment.items()}
        self._launcher.stdin.write(json.dumps([arguments, variables, str(self._out), str(self._err)]) + "\n")
        self._launcher.stdin.flush()
        status = int(self._launcher.stdout.readline())
        return status, self._out.read_text(), self._err.read_text()

    def __enter__(self) -> Self:
        """Nothing to do."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the launcher."""
        self._launcher.communicate()
