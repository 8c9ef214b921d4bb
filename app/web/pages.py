"""Pages: a template, a view value, and the headers that every page has.

The invariant: templates escape by default and fail on a name that their view lacks; what is hidden in a text is shown
as its escape wherever a template writes it, but where a machine reads it (``| exact``); no page runs a script or takes
a style that does not come from our own static files.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.responses import HTMLResponse, RedirectResponse, Response

from app.domain.visible import HIDDEN, visible
from app.web import formats
from app.web.statics import Statics
from app.web.urls import at

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
            finalize=_shown,
            auto_reload=False,  # a server shows what it was started with
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.globals.update(
            at=at, static=statics.url, version=version, has_login=has_login, is_full=is_full
        )
        self._environment.filters.update(
            size=formats.size,
            duration=formats.duration,
            moment=formats.moment,
            count=formats.count,
            sentence=formats.sentence,
            exact=Exact,
            marked=marked,
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


class Exact(str):
    """A text that a machine takes from the page: the value of a field, what a button copies, a key."""

    __slots__ = ()


def _shown(item: object) -> object:
    """Write what a template shows: text with its hidden characters as escapes; markup has been through here."""
    if isinstance(item, Exact):
        return item.replace("\x00", "\u2400")  # the one character that HTML cannot carry
    return visible(item) if isinstance(item, str) and not isinstance(item, Markup) else item


def marked(text: str) -> Markup:
    """Write a body as it is, so that a selection copies what is there, with a mark before each hidden character."""
    pieces, end = [], 0
    for match in HIDDEN.finditer(text):
        char = "\u2400" if match[0] == "\x00" else match[0]
        pieces += [escape(text[end : match.start()]), _MARK.format(visible(match[0]), char)]
        end = match.end()
    return Markup("").join([*pieces, escape(text[end:])])


_MARK = Markup('<span class="hidden-char" data-escape="{}">{}</span>')


def see_other(url: str) -> Response:
    """Send the browser to another page; ``url`` starts at ``/``."""
    return RedirectResponse(url, 303, {"Cache-Control": "no-store", "Referrer-Policy": "same-origin"})
