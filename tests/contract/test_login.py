"""The login of the web UI, contract §5: the operator token, shown once, opens pages and reads, and nothing else.

One database is enough: a session is stored nowhere.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from pydantic import SecretStr

from app.config import Settings
from app.main import create_app
from app.services.sessions import SESSION_COOKIE, SESSION_LASTS, Sessions
from app.web.logins import own_url
from tests.contract.pipeline import Pipeline, bearer, code_of, parsed, serving

TOKEN = "an-operators-token-4711"
OPERATOR = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def dialect() -> str:
    return "sqlite"


@pytest.fixture
def settings(database_url: str) -> Settings:
    return Settings(database_url=database_url, operator_token=SecretStr(TOKEN))


async def log_in(client: httpx.AsyncClient, token: str = TOKEN, **more: Any) -> httpx.Response:
    return await client.post("/ui/login", data={"token": token, "next": "/ui"}, **more)


@pytest.fixture
async def browser(client: httpx.AsyncClient) -> httpx.AsyncClient:
    """A client that has logged in, and sends the cookie along."""
    assert (await log_in(client)).status_code == 303
    assert SESSION_COOKIE in client.cookies
    return client


def pages_of(app: FastAPI) -> list[tuple[str, str]]:
    """List every method and path of the pages, ids and names filled in; the login and static files left out."""
    routes = [route for router in app.routes for route in getattr(getattr(router, "original_router", 0), "routes", ())]
    found = [
        (method, route.path.replace("{task}", "T-1").replace("{run}", "R-1"))
        for route in routes
        for method in route.methods
        if route.path.startswith("/ui")
    ]
    assert {"/ui", "/ui/tasks/T-1/runs/R-1", "/ui/logout"} <= {path for _, path in found}
    return [(method, path) for method, path in found if "/static/" not in path and path != "/ui/login"]


class TestWithoutSession:
    async def test_every_page_leads_to_the_login_and_back(self, app: FastAPI, client: httpx.AsyncClient) -> None:
        """A page asked for without a session sends to the login, which knows where to go on; a write is refused."""
        for method, path in pages_of(app):
            answer = await client.request(method, path, params={"q": "a"})
            if method in {"GET", "HEAD"}:
                assert answer.status_code == 303, path
                assert answer.headers["location"].startswith("/ui/login?next=%2Fui"), path
                assert answer.headers["location"].endswith("%3Fq%3Da"), path
            else:
                assert answer.status_code == 401, path

    async def test_unknown_pages_need_it_too(self, client: httpx.AsyncClient) -> None:
        """Whether a page exists is not told to strangers, whatever its path ends in."""
        for path in ("/ui/", "/ui/x", "/ui/x/login", "/ui/health", "/ui/static", "/ui/login/x", "/ui//login"):
            answer = await client.get(path)
            assert (answer.status_code, answer.headers["location"][:10]) == (303, "/ui/login?"), path

    async def test_the_login_and_its_files_are_open(self, client: httpx.AsyncClient) -> None:
        """The login page and what it is made of need no session, and hold nothing of what is kept."""
        page = await client.get("/ui/login?next=/ui/tasks/T-1/runs/R-1")
        assert page.status_code == 200
        assert 'value="/ui/tasks/T-1/runs/R-1"' in page.text
        stylesheet = page.text.partition('rel="stylesheet" href="')[2].partition('"')[0]
        assert (await client.get(stylesheet)).status_code == 200

    async def test_a_browser_at_the_root_is_sent_on(self, client: httpx.AsyncClient) -> None:
        """Whoever types the bare address comes to the login; a program gets the error it can read."""
        answer = await client.get("/", headers={"Accept": "text/html,*/*"})
        assert (answer.status_code, answer.headers["location"]) == (303, "/ui/login?next=%2F")
        assert code_of(await client.get("/")) == (401, "unauthenticated")

    async def test_the_api_still_wants_a_bearer(self, client: httpx.AsyncClient) -> None:
        """A program without a bearer gets the 401 of the API, no page."""
        answer = await client.get("/v1/runs")
        assert code_of(answer) == (401, "unauthenticated")


class TestLogin:
    async def test_the_token_opens_a_session(self, client: httpx.AsyncClient) -> None:
        """The right token leads on with a cookie that no script reads and no other site sends."""
        answer = await client.post("/ui/login", data={"token": f" {TOKEN}\n", "next": "/ui?q=x"})
        assert (answer.status_code, answer.headers["location"]) == (303, "/ui?q=x")
        cookie = answer.headers["set-cookie"]
        assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
        assert "Secure" not in cookie
        assert TOKEN not in cookie
        assert (await client.get("/ui")).status_code == 200
        assert (await client.get("/ui/login?next=/ui?q=x")).headers["location"] == "/ui?q=x"

    async def test_a_wrong_token_gets_the_page_again(self, client: httpx.AsyncClient) -> None:
        """A wrong or missing token is 401 with words and no cookie, and is not shown again."""
        for token in ("wrong-token-99", "", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "é\x00"):
            answer = await log_in(client, token)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
            assert "operator token" in answer.text
            assert 'role="alert"' in answer.text
            assert "set-cookie" not in answer.headers
            assert not token.strip() or token not in answer.text.replace("STEPPLANE_OPERATOR_TOKEN", "")

    async def test_over_https_the_cookie_insists_on_it(self, settings: Settings) -> None:
        """Where the public URL is HTTPS, browsers send the session by HTTPS alone."""
        secured = settings.model_copy(update={"base_url": "https://steps.example/"})
        async with serving(secured) as http:
            assert "Secure" in (await log_in(http)).headers["set-cookie"].split("; ")

    async def test_logging_out_clears_the_cookie(self, browser: httpx.AsyncClient) -> None:
        """After logging out the browser has no session, and pages lead to the login again."""
        answer = await browser.post("/ui/logout")
        assert (answer.status_code, answer.headers["location"]) == (303, "/ui/login")
        assert SESSION_COOKIE not in browser.cookies
        assert (await browser.get("/ui")).status_code == 303

    @pytest.mark.parametrize(
        "elsewhere",
        [
            "//evil.example", "https://evil.example", "/\\evil.example", "/ui\\..", "/v1/runs", "javascript:alert(1)",
            "/uiz", "ui", "", "/ui/\t/evil.example", "/ui/\r\nSet-Cookie: a=b", "/ui/é", "\\\\evil.example",
        ],
    )  # fmt: skip
    async def test_it_leads_nowhere_else(self, client: httpx.AsyncClient, elsewhere: str) -> None:
        """Where to go on is a page of ours, or the first one."""
        assert own_url(elsewhere) == "/ui"
        answer = await client.post("/ui/login", data={"token": TOKEN, "next": elsewhere})
        assert (answer.status_code, answer.headers["location"]) == (303, "/ui")
        for good in ("/ui", "/ui?q=a&status=done", "/ui/tasks/T-1/runs/R-1/step?name=%2e%2e%2f"):
            assert own_url(good) == good

    async def test_a_form_of_another_site_is_refused(self, client: httpx.AsyncClient) -> None:
        """A login or logout that a foreign page sends is 403, whichever way the browser tells."""
        for path in ("/ui/login", "/ui/logout"):
            for headers in (
                {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "https://evil.example"},
                {"Origin": "null"}, {"Origin": "http://["}, {"Origin": "http://test:81"}, {"Origin": "http://test.evil.example"},
                {"Sec-Fetch-Site": "cross-site", "Origin": "http://test"},
            ):  # fmt: skip
                answer = await client.post(path, data={"token": TOKEN}, headers=headers)
                assert answer.status_code == 403, (path, headers)
                assert "set-cookie" not in answer.headers
        for headers in ({"Sec-Fetch-Site": "same-origin"}, {"Origin": "http://test"}, {"Sec-Fetch-Site": "none"}):
            assert (await log_in(client, headers=headers)).status_code == 303

    async def test_behind_a_proxy_the_public_origin_is_ours(self, settings: Settings) -> None:
        """A proxy that names the server otherwise does not keep people out: the public URL is an origin of ours."""
        async with serving(settings.model_copy(update={"base_url": "https://steps.example/"})) as http:
            assert (await log_in(http, headers={"Origin": "https://steps.example"})).status_code == 303
            assert (await log_in(http, headers={"Origin": "https://other.example"})).status_code == 403

    async def test_a_form_has_a_limit(self, client: httpx.AsyncClient) -> None:
        """A body that no login form has is refused, and is no crash."""
        for body, status in ((b"x" * 20_000, 413), (b"\xff", 400), (b"&".join([b"a=b"] * 99), 400), (b"", 401)):
            assert (await client.post("/ui/login", content=body)).status_code == status


class TestSession:
    async def test_it_reads_and_never_writes(self, browser: httpx.AsyncClient) -> None:
        """The cookie reads the API, as scripts and downloads of the pages do; what writes wants the bearer."""
        pipeline = Pipeline(browser, parsed(await browser.post("/v1/tasks", content=b"{}", headers=OPERATOR), 201))
        for path in ("/v1/runs", "/v1/status", pipeline.steps_url, "/openapi.json", f"/v1/runs/{pipeline.run_id}"):
            assert (await browser.get(path)).status_code == 200, path
        assert (await browser.head(pipeline.steps_url)).status_code == 200
        for method, path in (
            ("POST", "/v1/tasks"), ("POST", f"/v1/runs/{pipeline.run_id}/steps"), ("POST", "/ui"),
            ("DELETE", f"/v1/runs/{pipeline.run_id}"), ("POST", f"/v1/runs/{pipeline.run_id}/finish"),
            ("POST", "/v1/data/emit"), ("POST", "/v1/worker/submit"), ("GET", "/v1/worker/prompt"), ("PUT", "/v1/runs"),
        ):  # fmt: skip
            assert (await browser.request(method, path)).status_code == 401, (method, path)

    async def test_no_other_cookie_is_one(self, client: httpx.AsyncClient) -> None:
        """A session that is forged, cut, expired or of another token opens nothing."""
        now = datetime.now(UTC)
        good = Sessions(TOKEN, clock=lambda: now).start()
        expiry, _, signature = good.partition(".")
        bad = [
            "", ".", expiry, f"{expiry}.", f".{signature}", f"{int(expiry) + 1}.{signature}", good[:-1], good + "0",
            f"{expiry}.{'0' * 64}", f" {expiry}.{signature}", f"+{good}", f"{'9' * 12}.{signature}", "1e99.x", "-1.x",
            f"{'9' * 5000}.x", "²." + signature, TOKEN, good.upper(), f'"{good}"',
            Sessions("another-token", clock=lambda: now).start(),
            Sessions(TOKEN, clock=lambda: now - SESSION_LASTS - timedelta(seconds=1)).start(),
        ]  # fmt: skip
        for session in bad:
            headers = [(b"cookie", f"{SESSION_COOKIE}={session}".encode())]
            assert (await client.get("/v1/runs", headers=headers)).status_code == 401, session
            assert (await client.get("/ui", headers=headers)).status_code == 303, session
        headers = [(b"cookie", f"a=b; {SESSION_COOKIE}=old.one; {SESSION_COOKIE}={good}".encode())]
        assert (await client.get("/v1/runs", headers=headers)).status_code == 200

    async def test_another_token_ends_every_session(self, settings: Settings) -> None:
        """Processes with one token agree on sessions; with a new token none is left."""
        async with serving(settings) as http:
            await log_in(http)
            cookie = {"Cookie": f"{SESSION_COOKIE}={http.cookies[SESSION_COOKIE]}"}
        async with serving(settings) as http:
            assert (await http.get("/ui", headers=cookie)).status_code == 200
        async with serving(settings.model_copy(update={"operator_token": SecretStr("new-token")})) as http:
            assert (await http.get("/ui", headers=cookie)).status_code == 303

    async def test_the_bearer_opens_pages_as_well(self, app: FastAPI, client: httpx.AsyncClient) -> None:
        """The operator's bearer is good for pages; a worker's is not, and a wrong one is told so."""
        created = parsed(await client.post("/v1/tasks", content=b"{}", headers=OPERATOR), 201)
        pipeline = Pipeline(httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test"), created)
        pipeline.http.headers.update(OPERATOR)
        dispatched = await pipeline.dispatch("plan")
        assert (await client.get("/ui", headers=OPERATOR)).status_code == 200
        for path in ("/ui", f"/ui/tasks/{pipeline.task_id}/runs/{pipeline.run_id}"):
            assert (await client.get(path, headers=bearer(dispatched))).status_code == 403
            assert (await client.get(path, headers={"Authorization": "Bearer nothing"})).status_code == 401
        await pipeline.http.aclose()


class TestWithoutToken:
    async def test_there_is_no_login(self, database_url: str) -> None:
        """Without an operator token pages are open, the login leads on, and no page offers to log out."""
        async with serving(create_app(Settings(database_url=database_url))) as http:
            page = await http.get("/ui")
            assert page.status_code == 200
            assert "/ui/logout" not in page.text
            assert (await http.get("/ui/login?next=/ui?q=x")).headers["location"] == "/ui?q=x"
            answer = await http.post("/ui/login", data={"token": "x"})
            assert (answer.status_code, "set-cookie" in answer.headers) == (303, False)
            assert (await http.get("/", headers={"Accept": "text/html"})).headers["location"] == "/ui"

    async def test_pages_are_closed_to_rebound_names(self, database_url: str) -> None:
        """A browser that was led here under a foreign domain name gets no page."""
        async with serving(create_app(Settings(database_url=database_url))) as http:
            headers = {"Host": "evil.example", "Accept-Language": "en"}
            for path in ("/ui", "/ui/tasks/T-1/runs/R-1"):
                assert (await http.get(path, headers=headers)).status_code == 403
