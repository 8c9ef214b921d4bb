"""Guessed paths: addresses that people make up out of the API's, each sent to the page that shows it.

The invariant: nothing is shown here, and an id that is none is told as anywhere.
"""

from urllib.parse import unquote

from fastapi import APIRouter
from starlette.responses import Response

from app.domain.ids import LATEST, check_id
from app.routes import KnownRoute
from app.services.overviews import Overviews
from app.web.pages import see_other
from app.web.urls import HOME, at, run_url, runs_url, step_url

_READS = ["GET", "HEAD"]


def guessed_router(overviews: Overviews) -> APIRouter:
    """Make the routes of guessed paths."""
    router = APIRouter(include_in_schema=False, route_class=KnownRoute)

    @router.api_route(HOME + "/tasks", methods=_READS)
    @router.api_route(HOME + "/runs", methods=_READS)
    async def get_lists() -> Response:
        """Send to the list of runs."""
        return see_other(at(HOME))

    @router.api_route(HOME + "/tasks/{task}/runs", methods=_READS)
    async def get_runs_of_task(task: str) -> Response:
        """Send to the runs of a task."""
        return see_other(runs_url(q=check_id("task", task)))

    @router.api_route(HOME + "/runs/{run}", methods=_READS)
    @router.api_route(HOME + "/runs/{run}/steps", methods=_READS)
    async def get_run(run: str) -> Response:
        """Send to a run."""
        run_id = check_id("run", run)
        return see_other(run_url(await overviews.find_task_id(run_id), run_id))

    @router.api_route(HOME + "/tasks/{task}/runs/{run}/steps", methods=_READS)
    async def get_steps(task: str, run: str) -> Response:
        """Send to the run whose steps are meant."""
        return see_other(run_url(check_id("task", task), _run(run)))

    @router.api_route(HOME + "/tasks/{task}/runs/{run}/steps/{name}", methods=_READS)
    async def get_step(task: str, run: str, name: str) -> Response:
        """Send to a step."""
        return see_other(step_url(check_id("task", task), _run(run), unquote(name)))

    return router


def _run(run: str) -> str:
    return run if run == LATEST else check_id("run", run)
