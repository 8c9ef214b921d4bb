"""The page of a step.

The invariant: the guard has let the operator in; the page tells what the debug plane tells, and no more.
"""

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from app.domain.errors import InvalidParameter
from app.routes import KnownRoute, taking
from app.services.query import FORMATS
from app.web.pages import Pages
from app.web.step_address import ADDRESS_QUERY, read_address
from app.web.step_files import StepFiles
from app.web.step_news import StepNews
from app.web.step_view import StepViews


def step_router(pages: Pages, views: StepViews, files: StepFiles, news: StepNews) -> APIRouter:
    """Make the routes of the step page, and of what its scripts and downloads fetch where the API's URL cannot be."""
    router = APIRouter(include_in_schema=False, route_class=KnownRoute)

    @router.api_route("/ui/tasks/{task}/runs/{run}/step", methods=_READS, openapi_extra=taking(*ADDRESS_QUERY))
    async def get_step_page(request: Request, task: str, run: str) -> Response:
        """Show what a step put out."""
        address = read_address(task, run, dict(request.query_params))
        return pages.answer("step.html", await views.make(address))

    @router.api_route("/ui/tasks/{task}/runs/{run}/step/content", methods=_READS, openapi_extra=_CONTENT_QUERY)
    async def get_step_content(request: Request, task: str, run: str) -> Response:
        """Serve what a step put out, its name in the query."""
        query = dict(request.query_params)
        form = query.get("format")
        if form not in {None, *FORMATS}:
            raise InvalidParameter(f"format is none: one is {', '.join(FORMATS)}")
        return await files.content(read_address(task, run, query), form)

    @router.api_route("/ui/tasks/{task}/runs/{run}/step/outline", methods=_READS, openapi_extra=_OUTLINE_QUERY)
    async def get_step_outline(request: Request, task: str, run: str) -> Response:
        """Serve a page of an outline, the step's name in the query."""
        return await files.outline(read_address(task, run, dict(request.query_params)))

    @router.api_route("/ui/tasks/{task}/runs/{run}/step/news", methods=_READS, openapi_extra=_NEWS_QUERY)
    async def get_step_news(request: Request, task: str, run: str) -> Response:
        """Tell what is newer than what a page shows."""
        query = dict(request.query_params)
        told = await news.tell(read_address(task, run, query), query.get("known", ""))
        return JSONResponse(told._asdict(), headers=_HEADERS)

    return router


_READS = ["GET", "HEAD"]
_CONTENT_QUERY = taking(*ADDRESS_QUERY, "format")
_OUTLINE_QUERY = taking(*ADDRESS_QUERY, "limit")
_NEWS_QUERY = taking(*ADDRESS_QUERY, "known")
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "sandbox; default-src 'none'",
}
