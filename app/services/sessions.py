"""Sessions: that a browser has shown the operator token, kept in the browser alone.

The invariant: a session is an expiry and a signature under a key made from the operator token. Nothing is stored, so
every process agrees and a restart ends none; another token ends them all.
"""

import hashlib
import hmac
from collections.abc import Callable
from datetime import datetime, timedelta

# What the guard and the pages, which do not know each other, both have to call the same.
SESSION_COOKIE = "stepplane_session"
LOGIN_PATH = "/ui/login"
LOGOUT_PATH = "/ui/logout"
STATIC_PREFIX = "/ui/static/"
ICON_PATH = "/favicon.ico"

SESSION_LASTS = timedelta(hours=24)

_PURPOSE = b"stepplane web session, version 1"
_EXPIRY_DIGITS = 12


class Sessions:
    """Makes sessions, and recognises them.

    Args:
        operator_token: what the key is made from; None where no login is needed, and no session is good.
        clock: tells the time, with its zone.
    """

    def __init__(self, operator_token: str | None, *, clock: Callable[[], datetime]) -> None:
        self._key = None if operator_token is None else _sign(operator_token.encode(), _PURPOSE).encode()
        self._clock = clock

    @property
    def are_needed(self) -> bool:
        """Tell whether a browser has to log in."""
        return self._key is not None

    def start(self) -> str:
        """Make a session that lasts from now on for :data:`SESSION_LASTS`.

        Raises:
            ValueError: there is no operator token, so there is nothing to sign with.
        """
        if self._key is None:
            raise ValueError("without an operator token there are no sessions")
        expiry = str(int((self._clock() + SESSION_LASTS).timestamp()))
        return f"{expiry}.{_sign(self._key, expiry.encode())}"

    def is_good(self, session: str) -> bool:
        """Tell whether a session was made here, under today's token, and has not expired."""
        expiry, _, signature = session.partition(".")
        if self._key is None or not (expiry.isascii() and expiry.isdigit() and len(expiry) <= _EXPIRY_DIGITS):
            return False
        if not hmac.compare_digest(_sign(self._key, expiry.encode()).encode(), signature.encode()):
            return False
        return int(expiry) > self._clock().timestamp()


def _sign(key: bytes, text: bytes) -> str:
    return hmac.new(key, text, hashlib.sha256).hexdigest()
