"""Auth skipped, forgotten, or asked for too late: deny by default, and before anything is read."""

from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import FastAPI
from pydantic import SecretStr

from app.config import Settings
from tests.contract.pipeline import code_of
from tests.contract.test_guards import TOKEN, raw_request, routes_of


class TestAuthentication:
    """Prefect CVE-2026-3514, -7723; MLflow CVE-2026-2652, -33866; Airflow CVE-2026-68971; CVE-2026-28229, -42294."""

    @pytest.fixture
    def settings(self, database_url: str) -> Settings:
        """Settings with a token."""
        return Settings(database_url=database_url, operator_token=SecretStr(TOKEN))

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

    async def test_no_prefix_and_no_streaming_route_is_without_auth(self, app: FastAPI) -> None:
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
        for word in (
            "nothing",
            "null",
            "undefined",
            "none",
            "true",
            "0",
            "''",
            "*",
            "admin",
            "an-operators-token-4711,",
            "an-operators-token-471",
        ):
            answer = await client.get("/v1/tasks", headers={"Authorization": f"Bearer {word}"})
            assert code_of(answer) == (401, "unauthenticated"), word
        assert (await client.get("/v1/tasks", headers={"Authorization": f"Bearer {TOKEN}"})).status_code == 200

    async def test_no_body_is_read_before_auth(self, client: httpx.AsyncClient) -> None:
        """A stranger's body is left unread, however large he says it is."""

        async def never() -> AsyncIterator[bytes]:
            for _ in range(1):
                pytest.fail("the body was read")
            yield b""

        for url in ("/v1/tasks", "/v1/worker/submit", "/v1/data/emit"):
            for headers in ({}, {"Content-Length": str(2**40)}):
                assert (await client.post(url, content=never(), headers=headers)).status_code == 401
