"""Health: whether the server answers."""

from fastapi import APIRouter
from starlette.responses import PlainTextResponse


def health_router() -> APIRouter:
    """Make the routes of health."""
    router = APIRouter(tags=["health"])

    @router.api_route("/v1/healthz", methods=["GET", "HEAD"], response_class=PlainTextResponse, response_model=None)
    async def get_health() -> PlainTextResponse:
        """Tell that the server answers; needs no bearer."""
        return PlainTextResponse("ok")

    return router
