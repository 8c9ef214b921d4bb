"""Login and logout: the operator token, shown once, becomes a cookie that no script can read.

The invariant: who may come in is the guard's to judge; here a token is compared and a session handed out. The token
itself is in no URL, no cookie and no page.
"""

from typing import NamedTuple
from urllib.parse import parse_qs

from fastapi import APIRouter
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from app.domain.errors import Malformed, TooLarge
from app.routes import KnownRoute, taking
from app.services.access import Access
from app.services.attempts import Attempts, address_of
from app.services.sessions import LOGIN_PATH, LOGOUT_PATH, SESSION_COOKIE, SESSION_LASTS, Sessions
from app.web.pages import Pages, see_other
from app.web.urls import HOME, at

_FORM_BYTES = 16 * 1024
_FORM_FIELDS = 8
_WRONG = "This is not the operator token of this server."
_MISSING = "Enter the operator token."


class LoginView(NamedTuple):
    """What the login page shows."""

    next_url: str
    fault: str | None = None


def logins_router(pages: Pages, access: Access, attempts: Attempts, sessions: Sessions, *, is_https: bool) -> APIRouter:
    """Make the routes of login and logout.

    Args:
        pages: render the login page.
        access: knows the operator token.
        attempts: delays the answers to wrong ones.
        sessions: makes the cookie's value.
        is_https: whether browsers reach the server by HTTPS alone, so that the cookie may insist on it.
    """
    router = APIRouter(include_in_schema=False, route_class=KnownRoute)

    @router.api_route(LOGIN_PATH, methods=["GET", "HEAD"], openapi_extra=taking("next"))
    async def get_login(request: Request) -> Response:
        """Show the login page; where no login is needed, or it is done, go on."""
        next_url = own_url(request.query_params.get("next"))
        if not sessions.are_needed or sessions.is_good(request.cookies.get(SESSION_COOKIE, "")):
            return see_other(next_url)
        return pages.answer("login.html", LoginView(next_url))

    @router.post(LOGIN_PATH)
    async def post_login(request: Request) -> Response:
        """Compare the token; the right one opens a session, a wrong one gets the page again."""
        form = await _read_form(request)
        token, next_url = form.get("token", "").strip(), own_url(form.get("next"))
        if not sessions.are_needed:
            return see_other(next_url)
        if not access.is_operator(token):
            if token:
                await attempts.fail(address_of(request.scope))
            view = LoginView(next_url, _WRONG if token else _MISSING)
            return pages.answer("login.html", view, status=401, headers={"WWW-Authenticate": "Bearer"})
        answer = see_other(next_url)
        lasts = int(SESSION_LASTS.total_seconds())
        answer.set_cookie(
            SESSION_COOKIE,
            sessions.start(),
            max_age=lasts,
            path=at("/"),
            httponly=True,
            samesite="strict",
            secure=is_https,
        )
        return answer

    @router.post(LOGOUT_PATH)
    async def post_logout() -> Response:
        """End the session in this browser."""
        answer = see_other(at(LOGIN_PATH))
        answer.delete_cookie(SESSION_COOKIE, at("/"), httponly=True, samesite="strict", secure=is_https)
        return answer

    return router


def own_url(given: str | None) -> str:
    r"""Return where to go on: a page of ours, whatever was asked for.

    A browser takes ``//host`` and ``/\host`` for other hosts, and drops tabs and newlines before it looks.
    """
    home = at(HOME)
    is_own = given is not None and (given == home or given.startswith((f"{home}/", f"{home}?")))
    if given is None or not is_own or not given.isascii() or not given.isprintable() or "\\" in given:
        return home
    return given


async def _read_form(request: Request) -> dict[str, str]:
    """Read a form within its limit; a field given twice counts as given last.

    Raises:
        TooLarge: no token is that long.
        Malformed: it is no form.
    """
    body = b""
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > _FORM_BYTES:
                raise TooLarge(_FORM_BYTES, None)
        fields = parse_qs(body.decode("ascii"), keep_blank_values=True, max_num_fields=_FORM_FIELDS)
    except (ClientDisconnect, ValueError) as error:
        raise Malformed("the form cannot be read: send it as application/x-www-form-urlencoded") from error
    return {name: values[-1] for name, values in fields.items()}
