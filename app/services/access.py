"""Access: which bearer is whose.

The invariant: a secret is compared by its digest or in constant time, and stands in no sentence and no log.
"""

import hashlib
import hmac
import re
from collections.abc import Callable
from datetime import datetime

from app.domain.errors import Unauthenticated
from app.domain.grants import Grant, ticket_of
from app.domain.records import wire_time
from app.storage.database import Database

_HANDLE = re.compile(r"wh-[0-9a-f]{32}")


class Access:
    """Recognises bearers.

    Args:
        database: where the digests of handles are kept.
        operator_token: the operator's bearer; None where none is needed.
        clock: tells the time, with its zone.
    """

    def __init__(self, database: Database, operator_token: str | None, *, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._operator_digest = None if operator_token is None else _digest(operator_token)
        self._clock = clock

    @property
    def needs_operator(self) -> bool:
        """Tell whether the operator has to show a bearer."""
        return self._operator_digest is not None

    def is_operator(self, bearer: str) -> bool:
        """Tell whether a bearer is the operator's. Digests are compared, so that not even a length is told."""
        return self._operator_digest is not None and hmac.compare_digest(_digest(bearer), self._operator_digest)

    async def worker(self, bearer: str) -> Grant:
        """Return what a worker handle stands for.

        Raises:
            Unauthenticated: it is no handle, of no step, or expired.
        """
        if not _HANDLE.fullmatch(bearer):
            raise Unauthenticated("this bearer is not known here")
        async with self._database.point() as stores:
            grant = await stores.dispatches.find_grant(_digest(bearer))
        if grant is None:
            raise Unauthenticated("this bearer is not known here")
        return self._unexpired(grant)

    async def ticket_holder(self, step_id: str, attempt: int, ticket: str) -> Grant:
        """Return the grant whose one system prompt a ticket opens.

        Raises:
            Unauthenticated: it is not this attempt's, there is no such attempt, or its handle has expired.
        """
        async with self._database.point() as stores:
            handle_sha256 = await stores.dispatches.find_bound_handle(step_id, attempt)
        # Compared also where there is no such attempt, so that the time does not tell.
        expected = ticket_of(handle_sha256 or "", step_id, attempt)
        if not hmac.compare_digest(expected.encode(), ticket.encode("utf-8", "replace")) or handle_sha256 is None:
            raise Unauthenticated("this ticket opens no system prompt: take the uri of the prompt as it is")
        async with self._database.point() as stores:
            grant = await stores.dispatches.find_grant(handle_sha256)
        if grant is None:
            raise Unauthenticated("this ticket opens no system prompt: its run was deleted")
        return self._unexpired(grant)

    def _unexpired(self, grant: Grant) -> Grant:
        if grant.expires_at <= wire_time(self._clock()):
            raise Unauthenticated(f"this worker handle expired at {grant.expires_at}: dispatch the step again")
        return grant


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
