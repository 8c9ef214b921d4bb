"""Health: whether the server answers, how it is, and its metrics."""

from typing import Any

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import PlainTextResponse, Response

from app.api.errors import documented
from app.api.json_answers import json_response
from app.api.tasks import ACCESS_ERRORS
from app.domain.records import wire_time
from app.observability import metrics_text
from app.routes import KnownRoute
from app.services.status import ServerStatus, Status

_METRICS: dict[int | str, dict[str, Any]] = {
    200: {"description": "The metrics.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}


def health_router(status: Status, version: str) -> APIRouter:
    """Make the routes of health."""
    router = APIRouter(tags=["health"], route_class=KnownRoute)

    @router.head("/v1/healthz", include_in_schema=False)
    @router.get("/v1/healthz", response_class=PlainTextResponse, response_model=None)
    async def get_health() -> PlainTextResponse:
        """Tell that the server answers; needs no bearer."""
        return PlainTextResponse("ok")

    @router.get("/v1/status", response_model=ServerStatus, responses=documented(*ACCESS_ERRORS))
    async def get_status() -> Any:
        """Tell the version, the uptime, the kind of database, and how much is kept."""
        return json_response(
            ServerStatus(
                version=version,
                started_at=wire_time(status.started_at),
                uptime_seconds=status.uptime_seconds,
                database=status.database_kind,
                pooler=status.has_pooler,
                storage=status.storage,
                counts=await status.count(),
            )
        )

    @router.get("/metrics", response_class=Response, responses=_METRICS | documented(*ACCESS_ERRORS))
    async def get_metrics() -> Response:
        """Tell what Prometheus scrapes."""
        return Response(metrics_text(), media_type=CONTENT_TYPE_LATEST)

    return router
