"""Limits: every bound on what comes in, in one place.

The invariant: whatever a client can make larger has a row here, and the code takes the number from the row.
``docs/limits.md`` shows the same table; a test holds the two together.
"""

from typing import NamedTuple

KIB = 1024
MIB = 1024 * KIB


class Limit(NamedTuple):
    """One bound.

    Attributes:
        what: what is bounded, in words.
        value: the bound, or its default where a setting can move it.
        unit: of the value: ``bytes``, ``characters``, ``seconds``, ``levels``, or what is counted.
        beyond: what happens beyond it: the status and code of the error, or what is done instead.
        setting: the setting that moves it; None for a fixed bound.
    """

    what: str
    value: int
    unit: str
    beyond: str
    setting: str | None = None


# --- a connection and the head of a request ------------------------------------------------------

HEAD_BYTES = Limit("The head of a request", 64 * KIB, "bytes", "431 `head_too_large`, and the connection is closed")
URL_BYTES = Limit("The URL of a request", 64 * KIB, "bytes", "414 `url_too_long`, and the connection is closed")
HEAD_SECONDS = Limit(
    "The time from the first byte of a head to its last", 10, "seconds", "408 `request_timeout`, and closed"
)
BODY_SILENCE_SECONDS = Limit(
    "The silence of a client in the middle of a body", 30, "seconds", "408 `request_timeout`, and closed"
)
FRAMING_BYTES = Limit(
    "Chunk sizes, extensions and trailers beyond 15 times their body",
    128 * KIB,
    "bytes",
    "400 `malformed_request`, and closed",
)
SPARE_DESCRIPTORS = Limit(
    "Descriptors that connections leave to files and the database",
    128,
    "descriptors",
    "the oldest idle connection is closed; where none is idle, 503 `too_many_connections`",
)
KEEP_ALIVE_SECONDS = Limit(
    "The silence of a connection between two requests", 75, "seconds", "closed", "STEPPLANE_KEEP_ALIVE_SECONDS"
)

# --- wrong bearers -------------------------------------------------------------------------------

TOKEN_CHARS = Limit("An operator token, at least", 16, "characters", "the server does not start")
LOGIN_FAILURES = Limit("Wrong bearers of an address that are answered at once", 5, "bearers", "their answers wait")
LOGIN_DELAY_SECONDS = Limit(
    "The waiting of the answer to a wrong bearer", 10, "seconds", "it waits no longer", "STEPPLANE_LOGIN_DELAY_SECONDS"
)
LOGINS_WAITING = Limit(
    "Answers to wrong bearers that wait at the same time", 100, "answers", "429 `too_many_attempts` with `Retry-After`"
)
LOGIN_ADDRESSES = Limit("Addresses whose wrong bearers are counted", 10_000, "addresses", "the oldest is forgotten")
LOGIN_MEMORY_SECONDS = Limit("The memory of an address's wrong bearers", 600, "seconds", "forgotten")

REPEATED_LINES = Limit(
    "Log lines of refusals of one route with one status, a second", 10, "lines", "counted in one line, `repeated`"
)

# --- bodies and values ---------------------------------------------------------------------------

LONG_BODY_BYTES = Limit("A body that is parsed and rendered on the event loop", 64 * KIB, "bytes", "done in a thread")
WORKERS_PER_CORE = Limit("Long bodies that are worked on at the same time", 2, "a core", "the next ones wait")
HELD_BYTES = Limit("Long bodies that are held at the same time", 256 * MIB, "bytes", "503 `busy` with `Retry-After`")
DEPTH = Limit("How deep arrays and objects nest", 200, "levels", "422 `nested_too_deep`")

# --- texts of a request --------------------------------------------------------------------------

LONG_TEXT_BYTES = Limit("A `goal`, and the `error` of a run", 64 * KIB, "bytes", "422 `invalid_request`")
LISTED_CHARS = Limit(
    "A `goal` or `error` in a list", 300, "characters", "cut there; `goal_truncated`, `error_truncated` say so"
)
REPORT_BYTES = Limit("A field of a degradation", 4 * KIB, "bytes", "422 `invalid_request`")
DEGRADATIONS = Limit("Degradations kept of one run", 1_000, "reports", "204; the further ones are counted")
PATH_BYTES = Limit("A path behind `@file:`", 4_096, "bytes", "400 `file_submit_refused`")
PATH_PART_BYTES = Limit("A part of a path behind `@file:`", 255, "bytes", "400 `file_submit_refused`")
POINTERS = Limit(
    "Pointers to earlier outputs in a prompt", 200, "pointers", "the newest are given", "STEPPLANE_MAX_POINTERS"
)


def all_limits() -> list[Limit]:
    """List every bound, in the order of this module."""
    return [item for item in globals().values() if isinstance(item, Limit)]
