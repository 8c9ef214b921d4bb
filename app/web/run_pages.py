"""The pages of runs: the list of all, and one with its timeline and its steps.

Both are asked for again and again while somebody looks at them.

The invariant: a page that has not changed is answered 304 before it is rendered.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import NamedTuple

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.domain.errors import InvalidParameter, StepNotFound, StepNotSubmitted
from app.domain.ids import CTX_NAME, LATEST, check_id
from app.domain.records import RunStatus, Source, StepList, StepStatus, StepSummary, wire_time
from app.domain.rendering import WHOLE, sha256_hex
from app.routes import KnownRoute, taking
from app.services.overviews import Overviews
from app.services.query import McpQueryAdapter
from app.services.threads import run_beside
from app.web.pages import Pages, see_other
from app.web.run_list import RunListView, run_list_view
from app.web.run_steps import Asked
from app.web.run_view import RunView, run_view
from app.web.shown_rows import SHOWN_HEADER, ShownRows
from app.web.timeline import Scale, scale_of
from app.web.urls import HOME, at, run_url, runs_url

_READS = ["GET", "HEAD"]
_MAX_PAGE_DIGITS = 6


class Moment(NamedTuple):
    """A view at a moment: what the template sees. Only the view decides whether the page has changed."""

    it: RunListView | RunView
    etag: str
    now: str
    scale: Scale | None
    shown: ShownRows


def runs_router(
    pages: Pages, overviews: Overviews, query: McpQueryAdapter, *, clock: Callable[[], datetime]
) -> APIRouter:
    """Make the routes of runs."""
    router = APIRouter(include_in_schema=False, route_class=KnownRoute)

    def answer(request: Request, template: str, view: RunListView | RunView, etag: str) -> Response:
        now = clock()
        shown = ShownRows(request.headers.get(SHOWN_HEADER, ""), pages.edition)
        timeline = view.timeline if isinstance(view, RunView) else None
        scale = None if timeline is None else scale_of(timeline, now)
        return pages.answer(template, Moment(view, etag, wire_time(now), scale, shown), headers={"ETag": etag})

    def etag_of(*parts: object) -> str:
        return f'"{sha256_hex(repr((pages.edition, *parts)).encode())[:32]}"'

    @router.api_route("/", methods=_READS)
    @router.api_route(HOME + "/", methods=_READS)
    async def get_home() -> Response:
        """Send to the list of runs."""
        return see_other(at(HOME))

    @router.api_route(HOME, methods=_READS, openapi_extra=taking("status", "q", "cursor"))
    async def get_runs(request: Request) -> Response:
        """Show runs, newest first."""
        given = request.query_params
        status, search, cursor = _status(given.get("status", "")), given.get("q", "").strip(), given.get("cursor")
        page = await overviews.list_runs(cursor, status=status, search=search)
        view = run_list_view(page, status=status, search=search, cursor=cursor)
        etag = etag_of(view)
        return pages.not_modified(etag) if is_known(request, etag) else answer(request, "runs.html", view, etag)

    @router.api_route(HOME + "/tasks/{task}", methods=_READS)
    async def get_task(task: str) -> Response:
        """Send to the runs of a task."""
        return see_other(runs_url(q=check_id("task", task)))

    @router.api_route(HOME + "/tasks/{task}/runs/{run}", methods=_READS, openapi_extra=_RUN_QUERY)
    async def get_run(request: Request, task: str, run: str) -> Response:
        """Show a run; ``latest`` leads to the one that it is now."""
        task_id = check_id("task", task)
        if run == LATEST:
            return see_other(run_url(task_id, await overviews.find_run_id(task_id, None)))
        reading = await overviews.read_run(task_id, check_id("run", run))
        listed = (await query.list_json(task_id, reading.run.id)).body()
        given = request.query_params
        asked = _asked(given)
        etag = etag_of(asked, reading.digest, sha256_hex(listed))
        if is_known(request, etag):
            return pages.not_modified(etag)
        result = await _result(query, task_id, reading.run.id) if reading.run.status.is_terminal else None

        def made() -> Response:
            outputs = StepList.model_validate_json(listed).steps
            return answer(request, "run.html", run_view(reading.story(), outputs, result, asked), etag)

        return await run_beside(len(listed), made)

    return router


_RUN_QUERY = taking("q", "sort", "status", "page", "first")


def is_known(request: Request, etag: str) -> bool:
    """Tell whether the asker shows what there is already: our own scripts send one tag, as it was given."""
    return request.headers.get("if-none-match") == etag


async def _result(query: McpQueryAdapter, task_id: str, run_id: str) -> StepSummary | None:
    """Summarize what a run was finished with; a step that bears its name stands before it."""
    try:
        found = await query.summary(task_id, run_id, CTX_NAME, WHOLE)
    except (StepNotFound, StepNotSubmitted):
        return None
    return found if found.source is Source.RESULT_REF else None


def _status(text: str) -> RunStatus | None:
    if not text:
        return None
    try:
        return RunStatus(text)
    except ValueError as error:
        raise InvalidParameter(f"status={text[:40]!r} is none: one is {', '.join(RunStatus)}") from error


def _asked(given: Mapping[str, str]) -> Asked:
    """Read how a run shall be shown; what is none of the values that there are counts as not given."""
    status = given.get("status", "")
    return Asked(
        search=given.get("q", "").strip(),
        sort=given.get("sort", ""),
        page=_number(given.get("page", "")) or 1,
        status=StepStatus(status) if status in set(StepStatus) else None,
        first=_number(given.get("first", "")),
    )


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_PAGE_DIGITS else None
