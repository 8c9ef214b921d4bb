"""The base path: where the server's own root is, for browsers and clients, when it is not the root of their host.

The invariant: within, every path begins as it does on a server of its own. What comes in loses the base path where it
still has it, since some proxies strip it and some do not; what goes out gets it by :func:`app.web.urls.at`.
"""

from urllib.parse import quote, unquote_to_bytes

from starlette.types import ASGIApp, Receive, Scope, Send

from app.web.urls import below


class BasePath:
    """Takes the base path off requests.

    Args:
        app: what answers.
        base: the path of the server's public URL, as in ``/plane``; not empty, without a slash at its end.
    """

    def __init__(self, app: ASGIApp, base: str) -> None:
        self._app = app
        self._base = base
        self._segments = _segments(base.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "http":
            raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
            scope = {**scope, "raw_path": self._within(raw.partition(b"?")[0])}
        with below(self._base):
            await self._app(scope, receive, send)

    def _within(self, raw: bytes) -> bytes:
        # As it was sent, so that %2F stays a part of a name; the base path itself may be spelled in any way.
        parts = raw.split(b"/")
        depth = len(self._segments)
        if [unquote_to_bytes(part) for part in parts[:depth]] != self._segments:
            return raw
        return b"/".join([b"", *parts[depth:]]) if parts[depth:] else b"/"


def _segments(path: bytes) -> list[bytes]:
    return [unquote_to_bytes(segment) for segment in path.split(b"/")]
