"""The OpenAPI document: what the framework says of the routes, made true.

The invariant: which bearer an operation needs is asked of the guard's own rules.
"""

from typing import Any

from app.api.errors import ERROR_SCHEMA, ErrorBody, documented, status_of
from app.api.middleware import OPEN_PATH, is_for_handles, may_read_by_handle
from app.domain.errors import StorageFull

_OPERATOR, _WORKER = "operatorToken", "workerHandle"
_SCHEMES = {
    _OPERATOR: {
        "type": "http",
        "scheme": "bearer",
        "description": "The operator token; needed where the server has one.",
    },
    _WORKER: {
        "type": "http",
        "scheme": "bearer",
        "description": "A worker handle, as its dispatch told it: bound to one attempt of one step, and expiring.",
    },
}


def complete_document(document: dict[str, Any]) -> None:
    """Add the one schema of our errors and who may call what; drop the framework's error that no route answers."""
    components = document.setdefault("components", {})
    components["securitySchemes"] = _SCHEMES
    schemas = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas[ERROR_SCHEMA] = ErrorBody.model_json_schema()
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if "HTTPValidationError" in str(operation["responses"].get("422")):
                del operation["responses"]["422"]
            if method.upper() not in {"GET", "HEAD"}:
                operation["responses"][_FULL] = documented(StorageFull)[int(_FULL)]
            operation["security"] = _security(method.upper(), path)


_FULL = str(status_of(StorageFull))


def _security(method: str, path: str) -> list[dict[str, list[str]]]:
    if path == OPEN_PATH:
        return []
    if is_for_handles(method, path):
        return [{_WORKER: []}]
    operator: dict[str, list[str]] = {_OPERATOR: []}
    return [operator, {_WORKER: []}] if may_read_by_handle(method, path) else [operator]
