"""Pages: a template, a view value, and the headers that every page has.

The invariant: templates escape by default and fail on a name that their view lacks; no page runs a script or takes a
style that does not come from our own static files.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, RedirectResponse, Response

from app.web import formats
from app.web.statics import Statics

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Pages:
    """Renders pages.

    Args:
        statics: where stylesheet and scripts are.
        version: of the program, for the foot of each page.
        has_login: whether there is a session to end.
        is_full: tells whether the disk of the database is full, which every page says.
    """

    def __init__(
        self, statics: Statics, *, version: str, has_login: bool, is_full: Callable[[], bool] = lambda: False
    ) -> None:
        self.edition = f"{version} {statics.digest}"
        self._environment = Environment(
            loader=FileSystemLoader(Path(__file__).parent / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_carried,
            auto_reload=False,  # a server shows what it was started with
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.globals.update(static=statics.url, version=version, has_login=has_login, is_full=is_full)
        self._environment.filters.update(
            size=formats.size,
            duration=formats.duration,
            moment=formats.moment,
            count=formats.count,
            sentence=formats.sentence,
        )

    def answer(
        self, template: str, view: object, *, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Render a template, which sees its view value as ``view``."""
        text = self._environment.get_template(template).render(view=view)
        return HTMLResponse(text.encode("utf-8", "replace"), status, {**_HEADERS, **(headers or {})})

    def not_modified(self, etag: str) -> Response:
        """Answer that the page that the reader has is still right."""
        return Response(status_code=304, headers={**_HEADERS, "ETag": etag})


def _carried(item: object) -> object:
    """Show U+0000 as its picture: HTML can carry every other character."""
    return item.replace("\x00", "\u2400") if isinstance(item, str) and "\x00" in item else item


def see_other(url: str) -> Response:
    """Send the browser to another page; ``url`` starts at ``/``."""
    return RedirectResponse(url, 303, {"Cache-Control": "no-store", "Referrer-Policy": "same-origin"})
