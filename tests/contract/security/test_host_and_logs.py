"""Absolute URLs from the Host header, credentials in logs, and ranges: nothing of either, and none."""

import json
from urllib.parse import urlsplit

import httpx
import pytest
import structlog
from pydantic import SecretStr

from app.config import Settings
from app.main import create_app
from tests.contract.pipeline import Pipeline, bearer


class TestHostHeader:
    """CVE-2026-48710: absolute URLs come from the configured base URL alone."""

    @pytest.mark.parametrize("base_url", [None, "https://plane.example/base"])
    async def test_no_absolute_url_comes_from_the_host_header(self, database_url: str, base_url: str | None) -> None:
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
        assert created.headers["location"].startswith(f"{urlsplit(base_url or '').path}/v1/tasks/")


class TestCredentials:
    """Argo CVE-2025-62157."""

    async def test_no_credential_is_in_a_log_event_or_in_the_settings_own_text(self, database_url: str) -> None:
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

    async def test_no_range_is_costly(self, client: httpx.AsyncClient) -> None:
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
