"""What hurt the neighbours, each as a test on the real route: traversal, stored XSS, auth, bombs, Host, credentials."""

import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog
from fastapi import FastAPI
from pydantic import SecretStr

from app.api.bodies import parse_yaml
from app.config import Settings
from app.domain.errors import InvalidJson
from app.main import create_app
from tests.contract.pipeline import Pipeline, bearer, blueprint_of, code_of, dumped, parsed
from tests.contract.test_guards import raw_request, routes_of

HOSTILE = [
    "..", ".", "../escaped", "../../../../../../../../../../tmp/escaped", "/etc/passwd", "/tmp/escaped",
    "a/../../escaped",
    "..\\escaped", "C:\\escaped", "\\\\host\\share", "a\x00b", "a\x00/../escaped", "%2e%2e%2fescaped", "..%2fescaped",
    "%252e%252e%252f", "....//escaped", "..;/escaped", "~/escaped", "~root", "file:///etc/passwd", "a\nb", "x" * 1_000,
    "é" * 500, " ", "-rf", "$(id)", "`id`", "con", "\u202egpj.exe", "..\u2215escaped", "\uff0e\uff0e\uff0fescaped",
    "a:b",
    "'; DROP TABLE runs; --", "{task_id}", "%s%n", "a" * 200 + ".md", ".hidden", "content", "steps", "*", "?x", "#x",
]  # fmt: skip
"""Names that led somewhere else somewhere else."""

HTML = "<!doctype html><script>alert(document.cookie)</script><svg onload=alert(1)>"


@pytest.fixture
def dialect() -> str:
    """One database is enough: nothing here is its affair."""
    return "sqlite"


def _files(directory: Path) -> set[Path]:
    return {path for path in directory.rglob("*") if path.is_file() or path.is_symlink()}


class TestTraversal:
    """MLflow CVE-2023-6909, CVE-2024-1483, CVE-2024-3848, CVE-2023-1177; Gradio CVE-2023-51449, CVE-2024-1561."""

    async def test_no_name_of_a_step_or_a_part_leads_out_of_its_directory(
        self, client: httpx.AsyncClient, work_dir: Path, tmp_path: Path
    ) -> None:
        """A hostile name is kept and served as the name it is; its file lies in the step's directory or nowhere."""
        pipeline = await Pipeline.create(client, work_dir=str(work_dir))
        before, homes = _files(tmp_path), set()
        for number, name in enumerate(HOSTILE):
            dispatched = await pipeline.dispatch(name)
            await pipeline.submit(dispatched, f"final {number}")
            part = await pipeline.dispatch(f"stager-{number}")
            await pipeline.stage(part, f"part {name}", f"part {number}")
            await pipeline.stage(part, f"{name}/part", f"inner {number}")
            assert json.loads(await pipeline.content(name, format="json")) == f"final {number}"
            assert await pipeline.content(f"part {name}") == f"part {number}".encode()
            assert await pipeline.content(f"{name}/part") == f"inner {number}".encode()
            homes |= {work_dir / f"workspace/tasks/{step['step_id']}/ctx" for step in (dispatched, part)}
        written = _files(tmp_path) - before
        assert {path.parent for path in written} == homes
        assert len(written) > 2 * len(HOSTILE)
        assert not Path("/tmp/escaped").exists()

    async def test_a_projection_name_leads_nowhere_else(
        self, client: httpx.AsyncClient, work_dir: Path, tmp_path: Path
    ) -> None:
        """A declared name with ``../`` is a name as any; no file is made of it."""
        blueprint = blueprint_of(("plan", "$.plan"), names={"plan": "../../../../escaped"})
        pipeline = await Pipeline.create(client, blueprint, work_dir=str(work_dir))
        before = _files(tmp_path)
        dispatched = await pipeline.output("plan", "x")
        assert json.loads(await pipeline.content("plan")) == "x"
        assert {path.name for path in _files(tmp_path) - before} == {"_ctx.md"}
        assert dispatched["name"] == "../../../../escaped"

    async def test_a_template_leads_nowhere_else(self, client: httpx.AsyncClient) -> None:
        """A placement that is absolute, leads upwards or holds control characters is refused with the Blueprint."""
        for template in (
            "../{task_id}", "/tmp/{task_id}", "a/../../{task_id}", "..\\{task_id}", "C:\\{task_id}", "{task_id}\x00",
        ):  # fmt: skip
            document = blueprint_of(("a", "$.a"), projection_placement={"dir_template": template})
            answer = await client.post("/v1/tasks", content=dumped({"blueprint": document}))
            assert code_of(answer) == (422, "invalid_blueprint"), template

    async def test_no_spelling_of_a_path_reads_a_file(
        self, app: FastAPI, client: httpx.AsyncClient, work_dir: Path, tmp_path: Path
    ) -> None:
        """Dots, slashes and their encodings are parts of names that nothing bears: 404, and no file's bytes."""
        secret = tmp_path / "secret.md"
        secret.write_text("the secret")
        pipeline = await Pipeline.create(client, work_dir=str(work_dir))
        await pipeline.output("plan", 1)
        up = len(work_dir.relative_to("/").parts) + 4
        spellings = [
            b"../" * up, b"..%2f" * up, b"%2e%2e/" * up, b"%2e%2e%2f" * up, b"%252e%252e%252f" * up, b"..%5c" * up,
            b"..\\" * up, b"..%c0%af" * up, b"....//" * up, b"..;/" * up, b"%00/", b"plan%00/../",
        ]  # fmt: skip
        base = pipeline.steps_url.encode()
        for spelling in spellings:
            for file in (b"secret.md", str(secret).encode(), str(secret).encode().replace(b"/", b"%2F")):
                for tail in (b"", b"/content", b"?format=file", b"/content?format=file"):
                    status, _, body = await raw_request(app, base + b"/" + spelling + file + tail)
                    assert status in {400, 404}, (spelling, body)
                    assert b"the secret" not in body
                    status, _, body = await raw_request(app, base + b"/plan/content/" + spelling + file + tail)
                    assert status == 404, (spelling, body)
        status, _, body = await raw_request(app, base + b"/../" * up + b"etc/passwd")
        assert (status, json.loads(body)["code"]) == (404, "route_not_found")

    async def test_no_id_leads_to_a_directory(self, app: FastAPI, client: httpx.AsyncClient) -> None:
        """An id with a separator, dots alone or another prefix is 400 ``invalid_id`` on every route that takes one."""
        pipeline = await Pipeline.create(client)
        for bad in (b"..", b"T-%2F..", b"T-..%2f..", b"R-%00", b"T-a b", b"t-1", b"T-", b"T-" + b"a" * 65, b"%2e%2e"):
            for target in (
                b"/v1/tasks/%s",
                b"/v1/tasks/%s/runs/latest/steps",
                b"/v1/tasks/%s/runs/latest/steps/x/content",
            ):
                status, _, body = await raw_request(app, target % bad)
                assert (status, json.loads(body)["code"]) == (400, "invalid_id"), target % bad
            for target in (b"/v1/runs/%s", b"/v1/tasks/T-1/runs/%s/steps", b"/v1/runs/%s/steps"):
                status, _, body = await raw_request(app, target % bad)
                assert (status, json.loads(body)["code"]) == (400, "invalid_id"), target % bad
        for bad_id in ("ST-../../x", "../x", "ST-\x00"):
            content = dumped({"ref": "a", "directive": "x", "retry_of": bad_id})
            answer = await client.post(f"/v1/runs/{pipeline.run_id}/steps", content=content)
            assert code_of(answer) == (400, "invalid_id")

    @pytest.mark.parametrize("component", ["workspace", "workspace/tasks"])
    async def test_a_linked_directory_inside_the_root_is_not_written_through(
        self, client: httpx.AsyncClient, work_dir: Path, tmp_path: Path, component: str
    ) -> None:
        """A link in the way of a step's directory: the submit is kept, and nothing is written where it leads."""
        outside = tmp_path / "outside"
        outside.mkdir()
        (work_dir / component).parent.mkdir(exist_ok=True)
        (work_dir / component).symlink_to(outside)
        pipeline = await Pipeline.create(client, work_dir=str(work_dir))
        dispatched = await pipeline.dispatch("plan")
        assert "ctx_projection" not in dispatched
        await pipeline.submit(dispatched, "x")
        await pipeline.stage(dispatched, "part", "x")
        assert list(outside.iterdir()) == []
        assert all("file_path" not in step for step in await pipeline.steps())
        assert json.loads(await pipeline.content("plan")) == "x"

    async def test_a_link_in_the_place_of_a_file_is_neither_read_nor_written_through(
        self, client: httpx.AsyncClient, work_dir: Path, tmp_path: Path
    ) -> None:
        """A link put where a file was: the stored OUTPUT is served, and the next submit replaces the link."""
        secret = tmp_path / "secret"
        secret.write_text("the secret")
        pipeline = await Pipeline.create(client, work_dir=str(work_dir))
        dispatched = await pipeline.output("plan", "mine")
        await pipeline.stage(dispatched, "part.md", "my part")
        final = await pipeline.content("plan")
        path, part = [Path((await pipeline.step(name))["file_path"]) for name in ("plan", "part.md")]
        for file in (path, part):
            file.unlink()
            file.symlink_to(secret)
        await self._serves_the_store(pipeline)
        ctx = path.parent
        ctx.rename(tmp_path / "moved")
        (tmp_path / "moved/plan.md").unlink()
        (tmp_path / "moved/plan.md").write_text("the secret")
        ctx.symlink_to(tmp_path / "moved")
        await self._serves_the_store(pipeline)
        ctx.unlink()
        ctx.mkdir()
        path.symlink_to(secret)
        await pipeline.result(dispatched, "mine")
        assert await pipeline.content("plan") == final
        assert not path.is_symlink()
        assert secret.read_text() == "the secret"

    @staticmethod
    async def _serves_the_store(pipeline: Pipeline) -> None:
        for name, body in (("plan", b'"mine"'), ("part.md", b"my part")):
            assert await pipeline.content(name) == body
            summary = await pipeline.step(name)
            assert summary["sha256"] == hashlib.sha256(body).hexdigest()
            assert "file_path" not in summary
            assert (await pipeline.get(name, "/content", format="file")).status_code == 404
        assert all("file_path" not in step for step in await pipeline.steps())


class TestStoredXss:
    """Argo CVE-2022-29164, GHSA-cv78-6m8q-ph82."""

    async def test_no_body_can_run_in_a_browser(self, client: httpx.AsyncClient, work_dir: Path) -> None:
        """Whatever a step put out: never a type that a browser runs, nosniff, and a sandbox without same origin."""
        pipeline = await Pipeline.create(client)
        filed = await pipeline.dispatch("filed.html", ctx={"work_dir": str(work_dir)})
        stored = await pipeline.dispatch("stored.html")
        for dispatched in (filed, stored):
            await pipeline.submit(dispatched, HTML)
            for ending in (
                "html",
                "htm",
                "xhtml",
                "svg",
                "xml",
                "js",
                "mjs",
                "css",
                "pdf",
                "swf",
                "md",
                "json",
                "txt",
                "HTML",
            ):
                await pipeline.stage(dispatched, f"{dispatched['name']}.{ending}", HTML)
        await pipeline.stage(stored, '"><img src=x onerror=alert(1)>\r\nX-Evil: 1.html', HTML)
        bodies = 0
        for name in await pipeline.names():
            queries: list[dict[str, str]] = [{}, *({"format": each} for each in ("raw", "json", "file"))]
            for query in [*queries, {"path": "", "format": "raw"}]:
                answer = await pipeline.get(name, "/content", **query)
                if answer.status_code == 404:
                    assert query == {"format": "file"}
                    continue
                told = answer.headers
                again = await client.get(answer.request.url, headers={"If-None-Match": told["etag"]})
                head = await client.head(answer.request.url)
                assert (again.status_code, head.status_code) == (304, 200)
                for headers in (told, again.headers, head.headers):
                    assert headers["content-type"] in {
                        "text/plain; charset=utf-8", "text/markdown; charset=utf-8", "application/json",
                    }  # fmt: skip
                    assert headers["x-content-type-options"] == "nosniff"
                    assert headers["content-security-policy"] == "sandbox; default-src 'none'"
                    assert headers["content-disposition"].startswith("inline; filename*=UTF-8''")
                    assert not set(headers["content-disposition"]) & set('<>"\r\n')
                    assert "x-evil" not in headers
                bodies += 1
        assert bodies > 100

    async def test_no_other_answer_can_run_in_a_browser_either(self, client: httpx.AsyncClient) -> None:
        """Lists, summaries, prompts, records and errors that repeat a hostile text are typed, and nosniff."""
        pipeline = await Pipeline.create(client, goal=HTML, task_metadata=HTML)
        dispatched = await pipeline.dispatch(HTML, HTML, system=HTML * 500)
        out_id = await pipeline.emit(dispatched, {"type": "partial", "chunk": HTML})
        await pipeline.submit(dispatched, HTML)
        urls = [
            pipeline.steps_url, pipeline.url(HTML), pipeline.url(f"{HTML}none"), "/v1/tasks",
            f"/v1/tasks/{pipeline.task_id}",
            "/v1/runs", f"/v1/runs/{pipeline.run_id}", f"/v1/runs/{pipeline.run_id}/steps", f"/v1/runs/{HTML[1:]}",
            "/v1/worker/prompt", "/v1/worker/prompt/system", f"/v1/data/{out_id}", f"/v1/data/{out_id}/content",
            pipeline.url(HTML) + "?format=%3Cscript%3E", "/v1/tasks?limit=%3Cscript%3E", f"/{HTML}",
        ]  # fmt: skip
        for url in urls:
            headers = bearer(dispatched) if url.startswith("/v1/worker") else {}
            answer = await client.get(url, headers=headers)
            assert answer.headers["content-type"].partition(";")[0] in {"application/json", "text/plain"}, url
            assert answer.headers["x-content-type-options"] == "nosniff", url


class TestAuthentication:
    """Prefect CVE-2026-3514, -7723; MLflow CVE-2026-2652, -33866; Airflow CVE-2026-68971; CVE-2026-28229, -42294."""

    @pytest.fixture
    def settings(self, database_url: str) -> Settings:
        """Settings with a token."""
        return Settings(database_url=database_url, operator_token=SecretStr("the-token"))

    async def test_auth_is_not_skipped_for_a_path_that_ends_in_health_or_ready(self, app: FastAPI) -> None:
        """What ends like a public route is none."""
        for end in (
            b"health",
            b"healthz",
            b"ready",
            b"readyz",
            b"v1/healthz",
            b"%2Fv1%2Fhealthz",
            b"openapi.json",
            b"login",
        ):
            for base in (
                b"/v1/tasks/",
                b"/v1/runs/",
                b"/v1/tasks/T-1/runs/latest/steps/",
                b"/v1/data/",
                b"/x/",
                b"/v2/",
            ):
                status, _, _ = await raw_request(app, base + end)
                assert status == 401, base + end

    async def test_no_prefix_and_no_streaming_route_is_forgotten(self, app: FastAPI) -> None:
        """Every route needs a bearer, the streaming ones, HEAD and a path below another prefix too."""
        for method, path in routes_of(app):
            if path == "/v1/healthz":
                continue
            target = path.replace("{", "").replace("}", "").encode()
            for spelled in (target, b"/" + target, b"/v1/.." + target, b"/%2e" + target, target + b"/", target.upper()):
                for verb in {method.upper(), "HEAD", "OPTIONS"}:
                    status, _, _ = await raw_request(app, spelled, method=verb)
                    assert status == 401, (verb, spelled)

    async def test_bearer_nothing_is_nobody(self, client: httpx.AsyncClient) -> None:
        """Words that stand for nothing elsewhere are no bearer here."""
        for word in ("nothing", "null", "undefined", "none", "true", "0", "''", "*", "admin", "the-token,", "the-toke"):
            answer = await client.get("/v1/tasks", headers={"Authorization": f"Bearer {word}"})
            assert code_of(answer) == (401, "unauthenticated"), word
        assert (await client.get("/v1/tasks", headers={"Authorization": "Bearer the-token"})).status_code == 200

    async def test_no_body_is_read_before_the_bearer(self, client: httpx.AsyncClient) -> None:
        """A stranger's body is left unread, however large he says it is."""

        async def never() -> AsyncIterator[bytes]:
            for _ in range(1):
                pytest.fail("the body was read")
            yield b""

        for url in ("/v1/tasks", "/v1/worker/submit", "/v1/data/emit"):
            for headers in ({}, {"Content-Length": str(2**40)}):
                assert (await client.post(url, content=never(), headers=headers)).status_code == 401


class TestDeserialising:
    """Airflow CVE-2026-25917, -33858, -42359: JSON and safe YAML only."""

    @staticmethod
    async def _post(client: httpx.AsyncClient, body: bytes, kind: str = "application/yaml") -> httpx.Response:
        return await client.post("/v1/tasks", content=body, headers={"Content-Type": kind})

    async def test_no_tag_makes_an_object(self, client: httpx.AsyncClient, tmp_path: Path) -> None:
        """A tag of Python's, or one whose value does not fit it, is 400 ``invalid_json``; nothing is called."""
        target = tmp_path / "called"
        for value in (
            f"!!python/object/apply:os.system ['touch {target}']", "!!python/object:os.system x",
            "!!python/name:os.system",
            f"!!python/object/new:os.system ['touch {target}']", "!!python/module:os", "!!python/tuple [1]",
            "!custom x",
            "!!binary aGk=", "!!set {a}", "!!timestamp 2026-01-01", "!!omap [a: 1]", "!!pairs [a: 1]",
            "!!timestamp nonsense",
            "!!int nonsense", '!!int ""', "!!float nonsense", "!!bool maybe", "!!int 0x", "!!str [a]",
            "!!map [a]", "!!seq {a: 1}",
            ".nan", ".inf", "-.inf", "1" * 5_000, "@x", "`x`", "*unknown", "%x",
        ):  # fmt: skip
            answer = await self._post(client, f"task_metadata: {value}".encode())
            assert code_of(answer) == (400, "invalid_json"), value
        for body in (b"? [a, b]\n: c", b"1: x", b"null: x", b"\xff\xff", b"a: \x00", b"{", b"a: b: c", b"--- a\n--- b"):
            assert code_of(await self._post(client, body)) == (400, "invalid_json"), body
        assert not target.exists()
        assert parsed(await client.get("/v1/tasks"))["tasks"] == []

    async def test_yaml_says_what_json_says(self, client: httpx.AsyncClient) -> None:
        """Words and dates that other YAML readers make values of stay text, so that nobody is told something else."""
        body = (
            b"task_metadata: {a: yes, b: 2026-01-01, c: null, d: 1.5, e: [1, true], f: ~, g: '1', h: NO, i: =, j: 1e3}"
        )
        created = parsed(await self._post(client, body), 201)
        metadata = parsed(await client.get(f"/v1/tasks/{created['task_id']}"))["task"]["task_metadata"]
        expected = {"a": "yes", "b": "2026-01-01", "c": None, "d": 1.5, "e": [1, True], "f": None, "g": "1", "h": "NO"}
        assert {key: metadata[key] for key in expected} == expected
        assert metadata["i"] == "="

    @pytest.mark.parametrize(
        "bomb",
        [
            b"a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
            + b"".join(b"a%d: &a%d [%s]\n" % (i, i, b",".join([b"*a%d" % (i - 1)] * 10)) for i in range(1, 15)),
            b"a0: &a0 {k: v}\n"
            + b"".join(b"a%d: &a%d {<<: [%s]}\n" % (i, i, b",".join([b"*a%d" % (i - 1)] * 10)) for i in range(1, 15)),
            b"a: &a {"
            + b",".join(b"k%d: 1" % i for i in range(3_000))
            + b"}\nb: {<<: ["
            + b",".join([b"*a"] * 3_000)
            + b"]}",
            b"a: {!!merge x: {y: 1}}",
            b"a: &a '" + b"x" * 200_000 + b"'\nb: [" + b",".join([b"*a"] * 100) + b"]",
            b"a: &a {? " + b"k" * 1_000 + b" : 1}\nb: [" + b",".join([b"*a"] * 20_000) + b"]",
            b"a: &a [*a]",
            b"a: " + b"[" * 2_000,
            b"a: " + b"{a: " * 1_000 + b"1" + b"}" * 1_000,
            b"a: " + b"[" * 501 + b"1" + b"]" * 501,
        ],
        ids=[
            "laughs",
            "merges",
            "many-merges",
            "merge-tag",
            "long-text",
            "long-keys",
            "endless",
            "open",
            "deep",
            "deeper",
        ],
    )
    def test_a_bomb_does_not_go_off(self, bomb: bytes) -> None:
        """A small document that would be huge, endless or endlessly deep is refused before it is."""
        with pytest.raises(InvalidJson):
            parse_yaml(bomb)

    async def test_a_bomb_is_the_clients_fault(self, client: httpx.AsyncClient) -> None:
        """On the route a bomb, of YAML or of JSON, is 400 with the one error shape, and the next request is served."""
        for body, kind in (
            (b"a: &a [*a]", "application/yaml"), (b"a: {<<: {b: 1}}", "text/yaml; charset=utf-8"),
            (b'{"task_metadata": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "application/json"),
            (b'{"task_metadata": 1e999}', "application/json"), (b'{"task_metadata": NaN}', "application/json"),
            (b'{"a": 1}\x00', "application/json"), (b"\x80\x04\x95cposix\nsystem\n.", "application/octet-stream"),
        ):  # fmt: skip
            assert code_of(await self._post(client, body, kind)) == (400, "invalid_json"), body[:40]
        assert (await self._post(client, b"{}")).status_code == 201

    async def test_a_body_made_to_be_slow_is_answered(self, client: httpx.AsyncClient) -> None:
        """No submitted text makes the search for its fence take more than linear time (it would not end else)."""
        pipeline = await Pipeline.create(client)
        dispatched = await pipeline.dispatch("ask")
        half = 1024 * 1024 - 16
        bodies = [
            "~" * half + "\n" * half,
            "`" * half + "\n" * half,
            "~~~\n" + "\n~~~x" * (half // 3),
            "```json\n" + "`" * half + "\n",
            "\n" * half + "~~~" + "\n" * (half - 99) + "~~x",
            " " * half + "{" * half,
        ]
        for body in bodies:
            await pipeline.submit(dispatched, body + ".")
            summary = await pipeline.step("ask")
            assert summary["size_bytes"] > len(body)


class TestHostHeader:
    """CVE-2026-48710: absolute URLs come from the configured base URL alone."""

    @pytest.mark.parametrize("base_url", [None, "https://plane.example/base"])
    async def test_no_url_is_made_of_what_a_client_says(self, database_url: str, base_url: str | None) -> None:
        """Host and the headers of proxies change no URL and no byte of any answer."""
        application = create_app(Settings(database_url=database_url, base_url=base_url))
        evil = dict.fromkeys(["Host", "X-Host", "X-Forwarded-Host", "X-Forwarded-Server"], "evil.example")
        evil |= {
            "Forwarded": "host=evil.example;proto=evil",
            "X-Forwarded-Proto": "evil",
            "X-Forwarded-Prefix": "/evil",
        }
        evil |= {"X-Original-URL": "/evil", "X-Rewrite-URL": "/evil"}
        transport = httpx.ASGITransport(application)
        async with (
            application.router.lifespan_context(application),
            httpx.AsyncClient(transport=transport, base_url="http://test", headers=evil) as http,
            httpx.AsyncClient(transport=transport, base_url="http://test") as honest,
        ):
            pipeline = await Pipeline.create(http)
            dispatched = await pipeline.dispatch("ask", system="x" * 30_000)
            await pipeline.submit(dispatched, "x")
            told = [json.dumps(dispatched), json.dumps(await pipeline.prompt(dispatched))]
            for url in (
                pipeline.steps_url,
                pipeline.url("ask"),
                pipeline.url("ask", "/content"),
                "/openapi.json",
                "/v1/tasks",
            ):
                answer = await http.get(url)
                assert answer.content == (await honest.get(url)).content
                told.append(answer.text)
            created = await http.post("/v1/tasks", content=b"{}")
            told.append(created.headers["location"])
            step = await pipeline.step("ask")
        assert "evil" not in "".join(told)
        assert step["content_url"].startswith(f"{base_url or ''}/v1/tasks/")
        assert created.headers["location"].startswith("/v1/tasks/")


class TestCredentials:
    """Argo CVE-2025-62157."""

    async def test_no_credential_is_logged(self, database_url: str) -> None:
        """Neither token nor handle stands in a log event, nor the token in the settings' own text."""
        settings = Settings(database_url=database_url, operator_token=SecretStr("the-secret-token"))
        assert "the-secret-token" not in f"{settings!r} {settings} {settings.model_dump()}"
        application = create_app(settings)
        headers = {"Authorization": "Bearer the-secret-token"}
        async with (
            application.router.lifespan_context(application),
            httpx.AsyncClient(
                transport=httpx.ASGITransport(application), base_url="http://test", headers=headers
            ) as http,
        ):
            with structlog.testing.capture_logs() as events:
                pipeline = await Pipeline.create(http)
                dispatched = await pipeline.dispatch("ask")
                handle = dispatched["worker_handle"]
                await pipeline.submit(dispatched, "x")
                await http.get("/v1/worker/prompt?task_id=ST-x", headers=bearer(dispatched))
                await http.post("/v1/worker/result", content=b"{", headers=bearer(dispatched))
                await http.get("/nowhere")
        assert len(events) >= 6
        assert "the-secret-token" not in repr(events)
        assert handle not in repr(events)


class TestRanges:
    """CVE-2025-62727."""

    async def test_many_ranges_are_no_ranges(self, client: httpx.AsyncClient) -> None:
        """A ``Range``, of whatever length, is ignored: 200, the whole body, and no range is offered."""
        pipeline = await Pipeline.create(client)
        await pipeline.output("ask", "x" * 1_000)
        whole = await pipeline.content("ask")
        for given in (
            "bytes=0-0",
            "bytes=5-",
            "bytes=-5",
            "bytes=" + ",".join(f"{i}-" for i in range(20_000)),
            "bytes=9-1",
        ):
            answer = await client.get(pipeline.url("ask", "/content"), headers={"Range": given})
            assert (answer.status_code, answer.content) == (200, whole)
            assert answer.headers["accept-ranges"] == "none"
            assert "content-range" not in answer.headers


async def test_a_hostile_value_is_only_a_value(client: httpx.AsyncClient) -> None:
    """Values that are commands, queries or templates elsewhere come back as the bytes they were."""
    pipeline = await Pipeline.create(client)
    values: list[Any] = [
        "{{7*7}}",
        "${jndi:ldap://x}",
        "'; DROP TABLE tasks; --",
        "{% raw %}",
        "%00",
        "\x00",
        "\x1b[2J",
        "__proto__",
    ]
    for value in values:
        name = f"name {value}"
        await pipeline.output(name, {value: value})
        assert json.loads(await pipeline.content(name)) == {value: value}
        assert json.loads(await pipeline.content(name, path=f'["{value}"]')) == value
    assert sorted(await pipeline.names()) == sorted(f"name {value}" for value in values)
