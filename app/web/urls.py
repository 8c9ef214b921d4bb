"""URLs of the pages, and where the server's root is among them.

The invariant: what is handed out went through :func:`at`, as a proxy may serve us below a path of its own; and a step's
name travels in the query, since browsers normalise ``..`` away in a path, however it is spelled.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from urllib.parse import quote, urlencode

HOME = "/ui"

_base: ContextVar[str] = ContextVar("base", default="")


@contextmanager
def below(base: str) -> Iterator[None]:
    """Let what is written inside the block lead below a path, as in ``/plane``."""
    token = _base.set(base)
    try:
        yield
    finally:
        _base.reset(token)


def at(path: str) -> str:
    """Write where a path of ours is for whoever asks from outside."""
    return _base.get() + path


def with_query(path: str, given: Mapping[str, str | int | None]) -> str:
    """Append a query; what is None or empty is left away, and half a character, which no URL carries, becomes ``?``."""
    pairs = [(key, str(value)) for key, value in given.items() if value is not None and value != ""]
    return f"{path}?{urlencode(pairs, quote_via=quote, safe='', errors='replace')}" if pairs else path


def runs_url(*, q: str = "", status: str = "", cursor: str | None = None) -> str:
    """Write where a list of runs is."""
    return with_query(at(HOME), {"q": q, "status": status, "cursor": cursor})


def run_url(
    task_id: str,
    run_id: str,
    *,
    q: str = "",
    sort: str = "",
    status: str = "",
    page: int = 1,
    first: int | None = None,
) -> str:
    """Write where a run is."""
    query = {"q": q, "sort": sort, "status": status, "page": page if page > 1 else None, "first": first}
    return with_query(at(f"{HOME}/tasks/{task_id}/runs/{run_id}"), query)


def step_url(task_id: str, run_id: str, name: str, *, occurrence: int | None = None, attempt: int | None = None) -> str:
    """Write where a step is, or one of its occurrences and attempts."""
    query = {"name": name, "occurrence": occurrence, "attempt": attempt}
    return with_query(at(f"{HOME}/tasks/{task_id}/runs/{run_id}/step"), query)
