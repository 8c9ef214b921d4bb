"""Grants: what a worker handle stands for.

The invariant: a grant is exactly one attempt of one step; everything that a worker may do follows from it.
"""

import hashlib
import hmac
from typing import NamedTuple

from app.domain.records import RunStatus


class Grant(NamedTuple):
    """What a worker handle stands for.

    ``view`` and ``policy`` are the JSON that was snapshotted; ``projection_root`` and ``dir_template`` are where
    the step's files go, None where no root resolved.
    """

    task_id: str
    run_id: str
    run_status: RunStatus
    step_id: str
    attempt: int
    step_ref: str
    name: str
    occurrence: int
    expires_at: str
    projection_root: str | None
    dir_template: str | None
    policy: str
    view: str


def ticket_of(handle_sha256: str, step_id: str, attempt: int) -> str:
    """Make the ticket that opens the system prompt of one attempt, and nothing else, to who has no bearer to show.

    It follows from the digest of the attempt's handle, so nothing is kept of it, and the handle cannot be told from it.
    """
    purpose = f"system prompt of {step_id}, attempt {attempt}"
    return hmac.new(handle_sha256.encode(), purpose.encode(), hashlib.sha256).hexdigest()[:_TICKET_CHARS]


_TICKET_CHARS = 32
