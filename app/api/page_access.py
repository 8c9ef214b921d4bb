"""What the guard asks about browsers: whether one has logged in, and whether a form was sent from a page of ours.

The invariant: a session opens pages and reads; what writes with it is the pages' own login and logout alone.
"""

from urllib.parse import urlsplit

from starlette.types import Scope

from app.domain.errors import Forbidden
from app.services.sessions import ICON_PATH, LOGIN_PATH, LOGOUT_PATH, SESSION_COOKIE, STATIC_PREFIX, Sessions

_FORMS = frozenset({LOGIN_PATH, LOGOUT_PATH})
_READS = frozenset({"GET", "HEAD"})


def is_open(path: str) -> bool:
    """Tell whether a path of the pages needs no session: the login, what it is made of, and the icon."""
    return path in {LOGIN_PATH, ICON_PATH} or path.startswith(STATIC_PREFIX)


def has_session(scope: Scope, sessions: Sessions) -> bool:
    """Tell whether the request shows a good session, and is one that a session is good for."""
    path: str = scope["path"]
    if scope["method"] not in _READS and path not in _FORMS:
        return False
    return any(sessions.is_good(each) for each in _cookies(scope))


def require_own_page(scope: Scope, base_url: str) -> None:
    """Hold a form of the pages to pages of this origin.

    Raises:
        Forbidden: the browser says that a page of another site sent it.
    """
    if scope["path"] not in _FORMS or scope["method"] in _READS:
        return
    headers = dict(scope["headers"])
    site = headers.get(b"sec-fetch-site")
    if site is not None:
        is_own = site in {b"same-origin", b"none"}
    else:
        origin = headers.get(b"origin", b"").decode("latin-1").lower()
        hosts = {headers.get(b"host", b"").decode("latin-1").lower(), urlsplit(base_url).netloc.lower()}
        is_own = not origin or (origin.partition("://")[2] or origin) in hosts - {""}
    if not is_own:
        raise Forbidden(
            "a page of another site may not send this form: where a proxy stands in front of this server, "
            "set STEPPLANE_BASE_URL to the URL that browsers use"
        )


def _cookies(scope: Scope) -> list[str]:
    """List what the request's cookies of our name hold: a browser may send several."""
    found = []
    for key, value in scope["headers"]:
        if key == b"cookie":
            for pair in value.decode("latin-1").split(";"):
                name, _, held = pair.strip().partition("=")
                if name == SESSION_COOKIE:
                    found.append(held)
    return found
