"""Schemas: what a document must look like, for the editors and programs that write it."""

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from app.api.answers import Answer, AnswerResponse
from app.api.errors import documented
from app.api.tasks import ACCESS_ERRORS
from app.domain.blueprint_schema import SCHEMA_TYPE, blueprint_schema
from app.domain.rendering import compact_json
from app.routes import KnownRoute

_SCHEMA: dict[int | str, dict[str, Any]] = {
    200: {"description": "A JSON Schema, draft 2020-12.", "content": {SCHEMA_TYPE: {"schema": {"type": "object"}}}}
}


def schemas_router() -> APIRouter:
    """Make the routes of schemas."""
    router = APIRouter(tags=["schemas"], prefix="/v1/schemas", route_class=KnownRoute)

    @router.get("/blueprint", response_class=Response, responses=_SCHEMA | documented(*ACCESS_ERRORS))
    async def get_blueprint_schema() -> Response:
        """Tell what a Blueprint must look like."""
        headers = [(b"content-type", SCHEMA_TYPE.encode()), (b"cache-control", b"private, no-cache")]
        return AnswerResponse(Answer(200, headers, compact_json(blueprint_schema())))

    return router
