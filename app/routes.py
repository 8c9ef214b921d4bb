"""Routes of the API and of the pages alike: a query parameter is known by name, or refused.

The invariant: what a route knows is what it declares, so that the OpenAPI document and the judgement cannot differ.
"""

from collections.abc import Callable, Collection, Coroutine
from typing import Any
from urllib.parse import parse_qsl

from fastapi import Request, Response
from fastapi.dependencies.utils import get_flat_params
from fastapi.params import ParamTypes
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from app.domain.errors import InvalidParameter, UnknownParameter


def require_known(query_string: bytes, known: Collection[str]) -> None:
    """Hold a query to the names that a route knows, each given once; names that begin with ``_`` are let through.

    Browsers and proxies are kept from their caches by such names; a misspelt one would ask for something else.

    Raises:
        UnknownParameter: the route has no such parameter.
        InvalidParameter: one is given twice, and each reader would take another of the two.
    """
    given: set[str] = set()
    for name, _ in parse_qsl(query_string.decode("latin-1"), keep_blank_values=True):
        if name not in known:
            if name.startswith("_"):
                continue
            raise UnknownParameter(name, known)
        if name in given:
            raise InvalidParameter(f"{name} is given twice: give it once")
        given.add(name)


class KnownRoute(APIRoute):
    """A route that refuses parameters which it does not declare, before it reads a body."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Judge the query ahead of the framework."""
        handler, known = super().get_route_handler(), self.known_parameters()

        async def handle(request: Request) -> Response:
            if request.scope["query_string"]:
                require_known(request.scope["query_string"], known)
            return await handler(request)

        return handle

    def known_parameters(self) -> frozenset[str]:
        """Name the parameters that are declared: by the signature, or in the route's part of the OpenAPI document."""
        signed = {
            field.alias
            for field in get_flat_params(self.dependant)
            if getattr(field.field_info, "in_", None) is ParamTypes.query
        }
        told = (self.openapi_extra or {}).get("parameters", ())
        return frozenset(signed | {parameter["name"] for parameter in told if parameter["in"] == "query"})


def body_model(route: object) -> type[BaseModel] | None:
    """Return what a route takes for its body; None where it takes none, or reads it itself."""
    field = getattr(route, "body_field", None)
    annotation = None if field is None else field.field_info.annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def taking(*names: str) -> dict[str, Any]:
    """Declare the query parameters of a route that reads them itself and is in no document."""
    return {"parameters": [{"name": name, "in": "query"} for name in names]}


def take_no_parameters(route: Route) -> None:
    """Hold a route of the framework's own to a bare query."""
    inner = route.app

    async def judged(scope: Scope, receive: Receive, send: Send) -> None:
        require_known(scope["query_string"], ())
        await inner(scope, receive, send)

    route.app = judged
