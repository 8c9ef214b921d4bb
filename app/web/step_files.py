"""Bodies and outlines for browsers, of the two names that no browser can ask the API for.

The invariant: what is served here is what the API serves for the same query; only the name travels in the query, since
browsers take ``/../`` and ``/%2E%2E/`` for the directory above.
"""

from typing import NamedTuple

from starlette.responses import Response

from app.domain.answers import Chunks
from app.domain.outline import DEFAULT_CHILDREN
from app.domain.rendering import compact_json, etag_of
from app.services.outlines import Outlines, Page
from app.services.query import McpQueryAdapter
from app.web.step_address import StepAddress

_HEADERS = {
    "Cache-Control": "private, no-cache",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "sandbox; default-src 'none'",
}


class StepFiles(NamedTuple):
    """Serves bodies and outlines."""

    query: McpQueryAdapter
    outlines: Outlines

    async def content(self, address: StepAddress, form: str | None) -> Response:
        """Serve a body, to be shown by a script or to be saved.

        Raises:
            NotFound: it is not there.
        """
        narrowing = address.narrowing._replace(format=form)
        look = await self.query.look(address.task_id, address.run_id, address.name, narrowing)
        look, body = await self.query.serve(look)
        ending = "json" if look.form.content_type == "application/json" else "txt"
        headers = {
            **_HEADERS,
            "ETag": etag_of(look.form.sha256),
            "Content-Disposition": f'attachment; filename="step.{ending}"',
        }
        return Response(await _whole(body), headers=headers, media_type=look.form.content_type)

    async def outline(self, address: StepAddress) -> Response:
        """Serve one page of an outline.

        Raises:
            NotFound: it leads nowhere.
            InvalidParameter: the cursor is none of this value.
        """
        page = Page(address.path, DEFAULT_CHILDREN, address.cursor)
        sight = await self.outlines.find(address.task_id, address.run_id, address.name, address.narrowing, page)
        body = compact_json((await self.outlines.read(sight)).model_dump())
        return Response(body, headers={**_HEADERS, "ETag": sight.etag}, media_type="application/json")


async def _whole(body: bytes | Chunks) -> bytes:
    if isinstance(body, bytes):
        return body
    try:
        return b"".join([piece async for piece in body.chunks()])
    finally:
        body.close()
