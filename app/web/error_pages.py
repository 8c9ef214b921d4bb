"""Error pages: what went wrong, as a page for people.

The invariant: it tells the code and the request id that the API would tell, and its sentence; where that speaks of
the API's own document, one that speaks of pages.
"""

from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import quote

from starlette.responses import Response
from starlette.types import Scope

from app.domain.errors import StepplaneError, TooManyAttempts, Unauthenticated
from app.services.sessions import LOGIN_PATH
from app.web.pages import Pages, see_other
from app.web.urls import at


class ErrorView(NamedTuple):
    """What an error page shows."""

    title: str
    sentence: str
    code: str
    request_id: str


def is_page(scope: Scope) -> bool:
    """Tell whether what is asked for is a page, so that even an error has to be one."""
    path: str = scope["path"]
    if path == "/":
        return any(key == b"accept" and b"text/html" in value for key, value in scope["headers"])
    return path == "/ui" or path.startswith("/ui/")


def error_page(pages: Pages, scope: Scope, error: StepplaneError, status: int, request_id: str) -> Response:
    """Answer an error; whoever has no session yet is sent to the login, and back from there."""
    if isinstance(error, Unauthenticated) and _may_log_in(scope):
        return see_other(f"{at(LOGIN_PATH)}?next={quote(at(_target(scope)), safe='')}")
    sentence = _NO_PAGE if error.code == "route_not_found" else error.sentence
    view = ErrorView(HTTPStatus(status).phrase, sentence, error.code, request_id)
    headers = _HEADERS.get(HTTPStatus(status))
    if isinstance(error, TooManyAttempts):
        headers = {"Retry-After": str(error.retry_after_seconds)}
    return pages.answer("error.html", view, status=status, headers=headers)


_NO_PAGE = "there is no page at this address: each is reached from the list of all runs"
_HEADERS = {
    HTTPStatus.UNAUTHORIZED: {"WWW-Authenticate": "Bearer"},
    HTTPStatus.SERVICE_UNAVAILABLE: {"Retry-After": "2"},
}


def _may_log_in(scope: Scope) -> bool:
    names = {key for key, _ in scope["headers"]}
    return scope["method"] in {"GET", "HEAD"} and b"authorization" not in names


def _target(scope: Scope) -> str:
    query = scope["query_string"].decode("ascii", "replace")
    return f"{scope['path']}?{query}" if query else str(scope["path"])
