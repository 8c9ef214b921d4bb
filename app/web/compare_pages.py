"""The page that compares two outputs.

The invariant: the guard has let the operator in; both outputs are of one task.
"""

from fastapi import APIRouter, Request
from starlette.responses import Response

from app.routes import KnownRoute, taking
from app.web.compare_view import CompareViews, read_sides
from app.web.pages import Pages
from app.web.step_address import read_address


def compare_router(pages: Pages, views: CompareViews) -> APIRouter:
    """Make the route of comparisons."""
    router = APIRouter(include_in_schema=False, route_class=KnownRoute)

    @router.api_route(
        "/ui/tasks/{task}/runs/{run}/compare", methods=["GET", "HEAD"], openapi_extra=taking("name", "from", "to")
    )
    async def get_compare_page(request: Request, task: str, run: str) -> Response:
        """Show what differs between two outputs of a step."""
        query = dict(request.query_params)
        address = read_address(task, run, {"name": query.get("name", "")})
        return pages.answer("compare.html", await views.make(address, *read_sides(query)))

    return router
