"""The page of a step.

The invariant: the guard has let the operator in; the page tells what the debug plane tells, and no more.
"""

from fastapi import APIRouter, Request
from starlette.responses import Response

from app.web.pages import Pages
from app.web.step_address import read_address
from app.web.step_view import StepViews


def step_router(pages: Pages, views: StepViews) -> APIRouter:
    """Make the route of the step page."""
    router = APIRouter(include_in_schema=False)

    @router.api_route("/ui/tasks/{task}/runs/{run}/step", methods=["GET", "HEAD"])
    async def get_step_page(request: Request, task: str, run: str) -> Response:
        """Show what a step put out."""
        address = read_address(task, run, dict(request.query_params))
        return pages.answer("step.html", await views.make(address))

    return router
