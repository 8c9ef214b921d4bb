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

OUTPUT_BYTES = Limit(
    "A body that a worker sends", 2 * MIB, "bytes", "413 `output_too_large`", "STEPPLANE_MAX_OUTPUT_BYTES"
)
REQUEST_PER_OUTPUT = Limit(
    "Any other body", 8, "times the body of a worker", "413 `output_too_large`", "STEPPLANE_MAX_OUTPUT_BYTES"
)
YAML_BYTES = Limit("A task as YAML", 512 * KIB, "bytes", "400 `invalid_json`: send JSON instead")
YAML_NODES = Limit("Values in YAML, its aliases followed", 1_000_000, "values", "400 `invalid_json`")
YAML_CHARS = Limit("Text in YAML, its aliases followed", 16 * MIB, "characters", "400 `invalid_json`")
INDENTATION_BYTES = Limit("The indentation of a value that nests deep", 32 * MIB, "bytes", "413 `nested_too_deep`")
LONG_BODY_BYTES = Limit("A body that is parsed and rendered on the event loop", 64 * KIB, "bytes", "done in a thread")
WORKERS_PER_CORE = Limit("Long bodies that are worked on at the same time", 2, "a core", "the next ones wait")
HELD_BYTES = Limit("Long bodies that are held at the same time", 256 * MIB, "bytes", "503 `busy` with `Retry-After`")
WORKED_BYTES = Limit("Of those, the ones that are worked on", 24 * MIB, "bytes", "the next ones wait")
VALUES = Limit("Values in a long JSON body", 1_000_000, "commas, arrays and objects", "422 `too_many_values`")
DEPTH = Limit("How deep arrays and objects nest", 200, "levels", "422 `nested_too_deep`")

# --- texts, lists and numbers of a request -------------------------------------------------------

LONG_TEXT_BYTES = Limit("A `goal`, and the `error` of a run", 64 * KIB, "bytes", "422 `invalid_request`")
LISTED_CHARS = Limit(
    "A `goal` or `error` in a list", 300, "characters", "cut there; `goal_truncated`, `error_truncated` say so"
)
ADAPTER_DATA_BYTES = Limit("The `adapter_data` of a worker's stats", 64 * KIB, "bytes", "422 `invalid_request`")
SYSTEM_BYTES = Limit("A system prompt", 1 * MIB, "bytes", "422 `invalid_request`")
NAME_BYTES = Limit("A name, a ref, a producer's name", 1_024, "bytes", "422 `invalid_name`")
WORD_CHARS = Limit(
    "A `worker_kind`, `model`, `tool`, `mime`; the `stage` of a progress",
    1_000,
    "characters",
    "422 `invalid_request`",
)
REPORT_BYTES = Limit("A field of a degradation, the `note` of a progress", 4 * KIB, "bytes", "422 `invalid_request`")
DEGRADATIONS = Limit("Degradations kept of one run", 1_000, "reports", "204; the further ones are counted")
SHOWN_DEGRADATIONS = Limit(
    "Degradations in the record of a run", 200, "reports", "the first and the last ones; `degradation_count` counts all"
)
KEYS = Limit("Keys of a `ctx`, keys or items of a `task_metadata`", 1_000, "keys", "422 `invalid_request`")
PARENTS = Limit("Entries of `parent_refs`", 1_000, "ids", "422 `invalid_request`")
PARTS = Limit("Parts of one step in a run", 1_000, "parts", "422 `too_many_parts`")
PATH_BYTES = Limit(
    "A path: a root, a file reference, what stands behind `@file:`",
    4_096,
    "bytes",
    "422 `invalid_request`; 400 `file_submit_refused` behind `@file:`",
)
PATH_PART_BYTES = Limit("A part of a path behind `@file:`", 255, "bytes", "400 `file_submit_refused`")
CURSOR_CHARS = Limit("A `cursor`", 1_000, "characters", "400 `invalid_parameter`")
TTL_SECONDS = Limit("How long a worker handle is good for", 365 * 86_400, "seconds", "422 `invalid_request`")
COUNT = Limit("The number of an attempt, an occurrence or of turns", 2**31 - 1, "", "400 or 422")
AMOUNT = Limit("An amount of tokens, the size of a file", 2**63 - 1, "", "422 `invalid_request`")

# --- what is given out ---------------------------------------------------------------------------

PAGE_ROWS = Limit("Tasks or runs in one page of a list", 500, "rows", "400 `invalid_parameter`")
PAGE_CHILDREN = Limit("Children in one page of an outline", 1_000, "children", "400 `invalid_parameter`")
POINTERS = Limit(
    "Pointers to earlier outputs in a prompt", 200, "pointers", "the newest are given", "STEPPLANE_MAX_POINTERS"
)


def all_limits() -> list[Limit]:
    """List every bound, in the order of this module."""
    return [item for item in globals().values() if isinstance(item, Limit)]


def limits_table() -> str:
    """Write the table of ``docs/limits.md``."""
    rows = [
        f"| {row.what} | {row.value:,}{' ' if row.unit else ''}{row.unit} | {row.beyond} | {_setting(row)} |"
        for row in all_limits()
    ]
    return "\n".join(["| what | limit | beyond it | setting |", "|---|--:|---|---|", *rows])


def _setting(row: Limit) -> str:
    return "" if row.setting is None else f"`{row.setting}`"
