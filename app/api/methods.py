"""Methods: HEAD is answered wherever GET is.

The invariant: an answer to HEAD has the status and the headers of the one to GET, and no body.
"""

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HeadAsGet:
    """Asks the framework, whose routes declare GET alone, for what HEAD wants to know of."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer HEAD as GET, without the body; pass all else on."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def send_head(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        asked = {**scope, "method": "GET"}
        try:
            await self._app(asked, receive, send_head)
        finally:
            if "route" in asked:  # the envelope counts requests by it
                scope["route"] = asked["route"]
