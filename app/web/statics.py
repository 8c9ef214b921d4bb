"""Static files: stylesheet, scripts and pictures, each under a URL that names what they hold.

The invariant: a URL with the digest of all files in it never serves other bytes, so a browser may keep them for good.
The digest stands in front of the name: modules then import each other by plain relative names.
"""

import hashlib
from pathlib import Path
from typing import NamedTuple

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from app.routes import KnownRoute
from app.services.sessions import ICON_PATH, STATIC_PREFIX
from app.web.urls import at

_FOLDER = Path(__file__).parent / "static"
_DIGEST_CHARS = 16
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
_FOR_GOOD = "public, max-age=31536000, immutable"
_ASK_AGAIN = "no-cache"


class _File(NamedTuple):
    body: bytes
    content_type: str
    etag: str


class Statics:
    """The files of the folder ``static``, read once."""

    def __init__(self, folder: Path = _FOLDER) -> None:
        self._files = {path.name: _read(path) for path in sorted(folder.iterdir()) if path.suffix in _TYPES}
        whole = "".join(f"{name} {file.etag}\n" for name, file in self._files.items())
        self.digest = hashlib.sha256(whole.encode()).hexdigest()[:_DIGEST_CHARS]

    def url(self, name: str) -> str:
        """Write where a file is.

        Raises:
            KeyError: there is no such file; a template names one that was moved.
        """
        if name not in self._files:
            raise KeyError(name)
        return at(f"{STATIC_PREFIX}{self.digest}/{name}")

    def find(self, name: str) -> _File | None:
        """Return a file."""
        return self._files.get(name)


def statics_router(statics: Statics) -> APIRouter:
    """Make the routes of static files."""
    router = APIRouter(include_in_schema=False, route_class=KnownRoute)

    @router.api_route(ICON_PATH, methods=["GET", "HEAD"])
    async def get_icon() -> Response:
        """Send to the icon: browsers ask here where a document names none, as JSON cannot."""
        return RedirectResponse(statics.url("icon.svg"), 307, {"Cache-Control": _ASK_AGAIN})

    @router.api_route(STATIC_PREFIX + "{digest}/{name}", methods=["GET", "HEAD"])
    async def get_static(request: Request, digest: str, name: str) -> Response:
        """Serve a file: for good under the digest of now, to be asked for again under that of another version."""
        file = statics.find(name)
        if file is None:
            raise HTTPException(404)
        headers = {
            "ETag": file.etag,
            "Cache-Control": _FOR_GOOD if digest == statics.digest else _ASK_AGAIN,
            "X-Content-Type-Options": "nosniff",
            "Cross-Origin-Resource-Policy": "same-origin",
        }
        if file.etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(file.body, headers=headers, media_type=file.content_type)

    return router


def _read(path: Path) -> _File:
    body = path.read_bytes()
    return _File(body, _TYPES[path.suffix], f'"{hashlib.sha256(body).hexdigest()[:32]}"')
