"""Middleware, pure ASGI: the envelope of every request, and the guard in front of every route.

The invariant: nothing answers before the guard has judged, but the guard itself; and nothing escapes the envelope.
"""

import asyncio
import logging
import random
import re
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.bodies import LIMIT_KEY, LOAD_KEY
from app.api.errors import InternalError, Stopping
from app.api.page_access import has_session, is_open, require_own_page
from app.api.paths import canonical_path
from app.api.repeats import Repeats
from app.api.steps import ROUTE_KEY, SCOPE_KEY
from app.api.worker_plane import GRANT_KEY, find_ticket
from app.domain.errors import Forbidden, StepplaneError, Unauthenticated
from app.domain.grants import Grant
from app.observability import HOT_METRICS
from app.services.access import Access
from app.services.attempts import Attempts, address_of
from app.services.intake import Intake, Load
from app.services.scopes import OPERATOR, scope_of
from app.services.sessions import Sessions

log = structlog.get_logger("app.access")

REQUEST_ID_KEY = "stepplane.request_id"

_logger = logging.getLogger("app.access")  # knows its level at once, where structlog would first build the line
_SANE_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")


class Envelope:
    """Gives every request an id, an access line, and an answer of the one shape whatever goes wrong.

    Args:
        app: what answers.
        write_error: makes the answer to an error, of a request with an id.
        intake: counts the long bodies that are held.
    """

    def __init__(
        self, app: ASGIApp, write_error: Callable[[Scope, StepplaneError, str], ASGIApp], intake: Intake
    ) -> None:
        self._app = app
        self._intake = intake
        self._write_error = write_error
        self._repeats = Repeats()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        scope[REQUEST_ID_KEY] = request_id
        load = scope[LOAD_KEY] = Load(self._intake)
        began, status, is_whole = time.perf_counter(), 0, False

        async def send_marked(message: Message) -> None:
            nonlocal status, is_whole
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", request_id.encode())]
            else:
                is_whole = not message.get("more_body", False)
            await send(message)

        try:
            scope["path"] = canonical_path(scope)
            await self._app(scope, receive, send_marked)
        except (StepplaneError, asyncio.CancelledError) as error:  # cancelled: the server stops, and waits no longer
            if status:
                raise
            fact = error if isinstance(error, StepplaneError) else Stopping()
            await self._write_error(scope, fact, request_id)(scope, receive, send_marked)
        except Exception:
            log.exception("crashed", request_id=request_id, method=scope["method"], path=scope["path"])
            if status and not is_whole:
                raise  # the server then breaks the connection off, so that half a body never passes for a whole one
            if not status:
                await self._write_error(scope, InternalError(), request_id)(scope, receive, send_marked)
        finally:
            load.release()
            self._note(scope, request_id, status, time.perf_counter() - began)

    def _note(self, scope: Scope, request_id: str, status: int, seconds: float) -> None:
        """Count a request, and write its line; of a good read at debug alone, as a line costs more than such a read."""
        route = str(scope.get(ROUTE_KEY) or getattr(scope.get("route"), "path", "unmatched"))
        HOT_METRICS.count_request(scope["method"], route, status, seconds)
        is_refused = status >= _FAILED
        if is_refused and not self._repeats.is_told(route, status):
            return
        is_told = is_refused or scope["method"] not in {"GET", "HEAD"}
        if is_told or _logger.isEnabledFor(logging.DEBUG):
            (log.info if is_told else log.debug)(
                "request",
                request_id=request_id,
                method=scope["method"],
                path=scope["path"],
                status=status,
                ms=round(seconds * 1000, 1),
            )


_FAILED = 400


def _request_id(scope: Scope) -> str:
    for key, value in scope["headers"]:
        if key == b"x-request-id" and _SANE_REQUEST_ID.fullmatch(value):
            return str(value.decode())
    return f"{random.getrandbits(64):016x}"


class Guard:
    """Lets in whom it knows. Every route needs the operator, but for those named here.

    Args:
        app: what it guards.
        access: recognises bearers.
        attempts: delays the answers to wrong ones.
        sessions: recognises browsers that have logged in.
        base_url: the public URL of the server; empty for none.
        max_output_bytes: how large a worker's body may be.
        max_request_bytes: how large any other body may be.
        own_hosts: the domain names under which requests without a bearer are answered, beside those that no stranger
            can own; None for any.
    """

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        attempts: Attempts,
        sessions: Sessions,
        *,
        base_url: str,
        max_output_bytes: int,
        max_request_bytes: int,
        own_hosts: frozenset[str] | None,
    ) -> None:
        self._app = app
        self._access = access
        self._attempts = attempts
        self._sessions = sessions
        self._base_url = base_url
        self._own_hosts = own_hosts
        self._max_output_bytes = max_output_bytes
        self._max_request_bytes = max_request_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Judge one request, then pass it on."""
        if scope["type"] == "http":
            await self._judge(scope)
        await self._app(scope, receive, send)

    async def _judge(self, scope: Scope) -> None:
        path: str = scope["path"]
        scope[LIMIT_KEY] = self._max_request_bytes
        if path == OPEN_PATH:
            return
        require_own_page(scope, self._base_url)
        if is_open(path):
            return
        bearer = _bearer(scope)
        if is_for_handles(scope["method"], path):
            scope[LIMIT_KEY] = self._max_output_bytes
            scope[GRANT_KEY] = await self._worker(scope, bearer)
            return
        if bearer is None:
            if not self._access.needs_operator:
                _refuse_foreign_pages(scope, self._own_hosts)
            elif not has_session(scope, self._sessions):
                raise Unauthenticated("this route needs the operator token as a bearer: Authorization: Bearer …")
            scope[SCOPE_KEY] = OPERATOR
        elif self._access.is_operator(bearer):
            scope[SCOPE_KEY] = OPERATOR
        else:
            scope[SCOPE_KEY] = scope_of(await self._worker(scope, bearer))
            if not may_read_by_handle(scope["method"], path):
                raise Forbidden("a worker handle reads the outputs of its own run, and nothing else")

    async def _worker(self, scope: Scope, bearer: str | None) -> Grant:
        """Return what the bearer of a request stands for, or the ticket that it shows in a bearer's place."""
        try:
            if bearer is not None:
                return await self._access.worker(bearer)
            ticket = find_ticket(scope)
            if ticket is not None:
                return await self._access.ticket_holder(*ticket)
        except Unauthenticated:
            await self._attempts.fail(address_of(scope))
            raise
        raise Unauthenticated("this route needs the worker handle as a bearer: Authorization: Bearer wh-…")


OPEN_PATH = "/v1/healthz"
"""The one path of the API that asks nobody who they are."""


def is_for_handles(method: str, path: str) -> bool:
    """Tell whether a route is the workers' own: it needs a handle, and no other bearer will do."""
    return path.startswith("/v1/worker/") or (path.startswith("/v1/data/") and method == "POST")


def may_read_by_handle(method: str, path: str) -> bool:
    """Tell whether a worker handle may ask there, beside the operator; what it is shown is judged later."""
    return method in {"GET", "HEAD"} and _OUTPUTS.fullmatch(path) is not None


_OUTPUTS = re.compile(r"/v1/tasks/[^/]+/runs/[^/]+/steps(?:/[^/]+(?:/content|/outline)?)?|/v1/data/[^/]+(?:/content)?")


def _bearer(scope: Scope) -> str | None:
    """Return the bearer of a request, if it shows one.

    Raises:
        Unauthenticated: it shows something else, or more than one.
    """
    given = [value for key, value in scope["headers"] if key == b"authorization"]
    if not given:
        return None
    kind, _, bearer = str(given[0].decode("latin-1")).partition(" ")
    if len(given) > 1 or kind.lower() != "bearer" or not bearer.strip():
        raise Unauthenticated("the Authorization header must be one bearer: Authorization: Bearer …")
    return bearer.strip()


def _refuse_foreign_pages(scope: Scope, own_hosts: frozenset[str] | None) -> None:
    """Refuse what a page of another origin makes a browser send: without a token nothing else would.

    A page can write here directly (its Origin tells), or have its own domain name lead to this machine (DNS
    rebinding; the Host tells, and a header that a page cannot keep its browser from sending). A Host without a dot,
    or that is an address, is nobody's domain name.

    Raises:
        Forbidden: the request says that it comes from such a page.
    """
    headers = dict(scope["headers"])
    host = headers.get(b"host", b"").decode("latin-1").lower()
    is_foreign = own_hosts is not None and _is_domain_name(host) and urlsplit(f"//{host}").hostname not in own_hosts
    if is_foreign and not _BROWSERS.isdisjoint(headers):
        raise Forbidden("this server is not called so: set STEPPLANE_BASE_URL to the URL that it is reached under")
    if scope["method"] in {"GET", "HEAD", "OPTIONS"}:
        return
    origin = headers.get(b"origin")
    if origin is not None and origin.decode("latin-1").lower().partition("://")[1:] != ("://", host):
        raise Forbidden("a page of another origin may not write here")


_BROWSERS = frozenset({b"accept-language", b"sec-fetch-site", b"origin"})
_DOMAIN = re.compile(r"[^\[\]:]*\.[^\[\]:]*[^\[\]:0-9.][^\[\]:]*\.?(?::[0-9]+)?")


def _is_domain_name(host: str) -> bool:
    """Tell a name with a dot in it from an address, and from a name of this network alone."""
    return _DOMAIN.fullmatch(host) is not None and not host.partition(":")[0].endswith(".localhost")
