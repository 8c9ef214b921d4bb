"""Ids: how ours are made and which are well-formed on input.

A new id is a prefix and lowercase hex from the operating system's random source: one id tells nothing of another.
"""

import re
import secrets

from app.domain.errors import InvalidId, InvalidName
from app.domain.limits import NAME_BYTES

_RANDOM_BYTES = 8
_HANDLE_BYTES = 16
_TAIL = re.compile(r"[A-Za-z0-9._-]{1,64}")
_PREFIXES = {"task": "T-", "run": "R-", "step": "ST-", "output": "out-"}

MAX_NAME_BYTES = NAME_BYTES.value
"""The longest name. Names are keys, and a PostgreSQL index entry holds 2,700 bytes."""

CTX_NAME = "_ctx"
"""The name under which a run's whole ``result_ref`` can be read; a step or artifact of that name beats it."""

LATEST = "latest"
"""The word that stands for the run of a task that was created last."""


def new_task_id() -> str:
    """Make a task id."""
    return _new("task")


def new_run_id() -> str:
    """Make a run id."""
    return _new("run")


def new_step_id() -> str:
    """Make a step id."""
    return _new("step")


def new_output_id() -> str:
    """Make an output id."""
    return _new("output")


def new_worker_handle() -> str:
    """Make a worker handle: a secret, given once to whoever dispatched the step."""
    return "wh-" + secrets.token_hex(_HANDLE_BYTES)


def check_id(kind: str, given: str) -> str:
    """Return the id as it came, when it is well-formed.

    Args:
        kind: ``task``, ``run``, ``step`` or ``output``.
        given: what the client sent.

    Raises:
        InvalidId: it lacks the prefix of its kind, or has a character that no id has.
    """
    prefix = _PREFIXES[kind]
    if not given.startswith(prefix) or not _TAIL.fullmatch(given, len(prefix)):
        raise InvalidId(kind, prefix, given)
    return given


def check_name(name: str) -> str:
    """Return a name of a step or a part as it came; any character may stand in it.

    Raises:
        InvalidName: it is empty, over 1,024 bytes of UTF-8, or holds a lone surrogate, which no URL can carry.
    """
    try:
        size_bytes = len(name.encode())
    except UnicodeEncodeError as error:
        raise InvalidName(
            f"a name must be valid Unicode; there is a lone surrogate at character {error.start}"
        ) from error
    if not 1 <= size_bytes <= MAX_NAME_BYTES:
        raise InvalidName(f"a name must have 1 to {MAX_NAME_BYTES} bytes of UTF-8, this one has {size_bytes}")
    return name


def is_output_id(given: str) -> bool:
    """Tell whether this may be an output's id rather than a producer's name."""
    prefix = _PREFIXES["output"]
    return given.startswith(prefix) and _TAIL.fullmatch(given, len(prefix)) is not None


def is_name(name: str) -> bool:
    """Tell whether a step or a part can bear this name."""
    try:
        check_name(name)
    except InvalidName:
        return False
    return True


def _new(kind: str) -> str:
    return _PREFIXES[kind] + secrets.token_hex(_RANDOM_BYTES)
