"""The composition root: it alone knows every layer, and puts them together.

The invariant: a service gets values and never the settings; nothing is read from the environment but here and in the
command line.
"""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from app import __version__
from app.api.answers import AnswerResponse
from app.api.data import data_router
from app.api.document import complete_document
from app.api.errors import MethodNotAllowed, domain_error, error_answer, status_of
from app.api.health import health_router
from app.api.methods import HeadAsGet
from app.api.middleware import REQUEST_ID_KEY, Envelope, Guard
from app.api.outlines import outlines_router
from app.api.plane_docs import debug_plane_router
from app.api.runs import runs_router
from app.api.schemas import schemas_router
from app.api.steps import DebugPlane
from app.api.tasks import tasks_router
from app.api.worker import worker_router
from app.api.worker_plane import WorkerPlane
from app.config import Settings
from app.domain.errors import StepplaneError, StorageGone
from app.domain.limits import REQUEST_PER_OUTPUT
from app.routes import body_model, take_no_parameters
from app.services.access import Access
from app.services.appender import Appender
from app.services.attempts import Attempts
from app.services.catalog import Catalog
from app.services.comparisons import Comparisons
from app.services.data import Data
from app.services.engine import Engine
from app.services.file_bodies import FileBodies
from app.services.intake import Intake
from app.services.leftovers import Leftovers
from app.services.materializer import Materializer
from app.services.outlines import Outlines
from app.services.overviews import Overviews
from app.services.prompts import Prompts
from app.services.query import McpQueryAdapter
from app.services.recent import Recent
from app.services.retention import Retention
from app.services.sessions import Sessions
from app.services.stale_runs import StaleRuns
from app.services.status import Status
from app.services.submissions import Submissions
from app.storage import migrations
from app.storage.database import Database
from app.storage.files.states import FileStates
from app.storage.opening import open_database
from app.storage.urls import UnusableDatabase, parse_database_url
from app.web.base_path import BasePath
from app.web.compare_pages import compare_router
from app.web.compare_view import CompareViews
from app.web.error_pages import error_page, is_page
from app.web.guessed_paths import guessed_router
from app.web.logins import logins_router
from app.web.pages import Pages
from app.web.run_pages import runs_router as runs_pages_router
from app.web.statics import Statics, statics_router
from app.web.step_bodies import StepBodies
from app.web.step_files import StepFiles
from app.web.step_news import StepNews
from app.web.step_pages import step_router
from app.web.step_view import StepViews

_DESCRIPTION = """
What did that step put out? Pull it, while the run still goes on.

Operators and browsers read the **debug plane**: the outputs of a run, their sizes and digests, and their exact bytes.
The **orchestrator** creates tasks, kicks runs and dispatches steps. **Workers** fetch their prompt, follow its
pointers, and submit.
""".strip()


_PRUNED_EVERY = timedelta(hours=1)
_LOOKED_EVERY_SECONDS = 1.0

log = structlog.get_logger(__name__)


class StartupError(Exception):
    """The server cannot start; the sentence says why and what to do."""


def create_app(settings: Settings | None = None) -> FastAPI:
    """Build the application.

    Args:
        settings: what is configured; None reads the environment.

    Raises:
        StartupError: the database URL is none that is understood.
    """
    settings = settings or Settings()
    try:
        url = parse_database_url(settings.database_url)
    except UnusableDatabase as error:
        raise StartupError(str(error)) from error
    database = open_database(url)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await asyncio.to_thread(migrations.migrate, url)
        database.version()  # on SQLite opens it: on a full disk there is room for that now, and may be none later
        async with _housekeeping(app, settings, database):
            yield
        await database.close()

    app = _Application(
        title="stepplane",
        version=__version__,
        description=_DESCRIPTION,
        lifespan=lifespan,
        servers=[{"url": settings.base_url.rstrip("/")}] if settings.base_url else None,
        docs_url=None,  # they load their scripts from another host; /openapi.json is served
        redoc_url=None,
        redirect_slashes=False,  # a slash at the end is another path, not another spelling of one
        generate_unique_id_function=_operation_id,
    )
    for route in app.routes:  # the document's, which the framework made
        if isinstance(route, Route):
            take_no_parameters(route)
    app.state.end = lambda _: None  # whoever runs the application as a process puts the way to end it here
    _wire(app, settings, database)
    for kind in (StepplaneError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, _answer_error)
    return app


class _Application(FastAPI):
    """The framework with our own stack in front of it: a read of the debug plane never pays for the framework's."""

    outer: ASGIApp
    pages: Pages

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.outer = super().__call__

    def openapi(self) -> dict[str, Any]:
        """Describe the API."""
        if self.openapi_schema is None:
            complete_document(super().openapi())
        return super().openapi()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request by what stands outermost."""
        await self.outer(scope, receive, send)


def _wire(app: _Application, settings: Settings, database: Database) -> None:
    """Make the services, and put the routes and the middleware over them."""
    base_url = (settings.base_url or "").rstrip("/")
    token = settings.operator_token.get_secret_value() if settings.operator_token else None
    roots = settings.allowed_roots
    files = FileStates(roots)
    materializer = Materializer(database, roots, settings.file_mode_bits)
    query = McpQueryAdapter(database, files, base_url)
    outlines = Outlines(query)
    catalog = Catalog(database)
    engine = Engine(
        database, materializer, clock=now, handle_ttl_seconds=settings.worker_token_ttl_seconds, base_url=base_url
    )
    appender = Appender(database, materializer, clock=now)
    submissions = Submissions(appender, FileBodies(settings.max_output_bytes, roots))
    data = Data(database, appender, clock=now)
    app.include_router(debug_plane_router(query))
    app.include_router(outlines_router(outlines))
    app.include_router(tasks_router(engine, catalog, urlsplit(base_url).path))
    app.include_router(runs_router(engine, catalog))
    prompts = Prompts(database, query, Recent(database.version), max_pointers=settings.max_pointers, base_url=base_url)
    app.include_router(worker_router(prompts, submissions, data))
    app.include_router(data_router(data))
    app.include_router(schemas_router())
    app.include_router(health_router(Status(database, clock=now), __version__))
    access, sessions = Access(database, token, clock=now), Sessions(token, clock=now)
    attempts = Attempts(max_delay_seconds=settings.login_delay_seconds)
    statics = Statics()
    app.pages = Pages(statics, version=__version__, has_login=sessions.are_needed, is_full=database.is_full)
    app.include_router(statics_router(statics))
    app.include_router(logins_router(app.pages, access, attempts, sessions, is_https=base_url.startswith("https://")))
    overviews = Overviews(database)
    app.include_router(runs_pages_router(app.pages, overviews, query, clock=now))
    app.include_router(guessed_router(overviews))
    views = StepViews(query, catalog, StepBodies(query, outlines), needs_token=access.needs_operator)
    app.include_router(step_router(app.pages, views, StepFiles(query, outlines), StepNews(query, catalog)))
    app.include_router(compare_router(app.pages, CompareViews(query, catalog, Comparisons(query))))
    # The envelope holds the guard, and the guard all that answers: what is asked most before the framework.
    hot = WorkerPlane(HeadAsGet(app.outer), prompts, submissions)
    app.outer = Envelope(
        Guard(
            DebugPlane(hot, query, Recent(database.version)),
            access,
            attempts,
            sessions,
            base_url=base_url,
            max_output_bytes=settings.max_output_bytes,
            max_request_bytes=settings.max_output_bytes * REQUEST_PER_OUTPUT.value,
            own_hosts=frozenset({urlsplit(base_url).hostname or ""}) if settings.listens_on_loopback else None,
        ),
        functools.partial(_write_error, app.pages),
        Intake(),
    )
    if urlsplit(base_url).path:
        app.outer = BasePath(app.outer, urlsplit(base_url).path)


@contextlib.asynccontextmanager
async def _housekeeping(app: FastAPI, settings: Settings, database: Database) -> AsyncIterator[None]:
    """Work in the background: remove what killed processes left and old runs, and end runs that nobody writes to."""
    retention = Retention(database, clock=now)
    leftovers = Leftovers(database, settings.allowed_roots)
    jobs = [
        asyncio.create_task(leftovers.keep_sweeping(_PRUNED_EVERY)),
        asyncio.create_task(_removing(settings, retention)),
        asyncio.create_task(_watch(app, database)),
    ]
    if settings.stale_run_after_seconds:
        after = timedelta(seconds=settings.stale_run_after_seconds)
        jobs.append(asyncio.create_task(StaleRuns(database, clock=now).keep_ending(after)))
    yield
    for job in jobs:
        job.cancel()
    await asyncio.gather(*jobs, return_exceptions=True)


async def _removing(settings: Settings, retention: Retention) -> None:
    """Go on with removals that were cut off, and keep removing old runs where the settings say how old."""
    if settings.retention_days is None:
        await retention.resume()
        return
    older_than = timedelta(days=settings.retention_days)
    await retention.keep_pruning(older_than, keep_last=settings.retention_keep_last, every=_PRUNED_EVERY)


async def _watch(app: FastAPI, database: Database) -> None:
    """Ask for the end of the server once its database is gone: what it has open is what nobody else can open."""
    while True:
        try:
            database.require_there()
        except StorageGone as error:
            log.critical("storage_gone", error=error.sentence)
            app.state.end(error.sentence)
            return
        await asyncio.sleep(_LOOKED_EVERY_SECONDS)


async def _answer_error(request: Request, error: Exception) -> Response:
    fact = domain_error(error, body_model(request.scope.get("route")))
    if isinstance(fact, MethodNotAllowed):  # the framework names the methods of one of the path's routes only
        fact = MethodNotAllowed(", ".join(filter(lambda method: _takes(request, method), _METHODS)))
    return _write_error(request.app.pages, request.scope, fact, request.scope[REQUEST_ID_KEY])


def _write_error(pages: Pages, scope: Scope, error: StepplaneError, request_id: str) -> Response:
    """Answer an error as the asker reads: people get a page, programs the one JSON shape."""
    if is_page(scope):
        return error_page(pages, scope, error, status_of(type(error)), request_id)
    return AnswerResponse(error_answer(error, request_id))


def _takes(request: Request, method: str) -> bool:
    scope = {**request.scope, "method": "GET" if method == "HEAD" else method}
    return any(route.matches(scope)[0] is Match.FULL for route in request.app.router.routes)


_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")


def _operation_id(route: APIRoute) -> str:
    return route.name


def now() -> datetime:
    """Tell the time, as every service is told it."""
    return datetime.now(UTC)
