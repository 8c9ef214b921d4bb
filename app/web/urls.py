"""URLs of the pages.

The invariant: a step's name travels in the query, since browsers normalise ``..`` away in a path, however it is
spelled.
"""

from collections.abc import Mapping
from urllib.parse import quote, urlencode

HOME = "/ui"


def with_query(path: str, given: Mapping[str, str | int | None]) -> str:
    """Append a query; what is None or empty is left away, and half a character, which no URL carries, becomes ``?``."""
    pairs = [(key, str(value)) for key, value in given.items() if value is not None and value != ""]
    return f"{path}?{urlencode(pairs, quote_via=quote, safe='', errors='replace')}" if pairs else path


def runs_url(*, q: str = "", status: str = "", cursor: str | None = None) -> str:
    """Write where a list of runs is."""
    return with_query(HOME, {"q": q, "status": status, "cursor": cursor})


def run_url(task_id: str, run_id: str, *, q: str = "", sort: str = "", page: int = 1) -> str:
    """Write where a run is."""
    return with_query(
        f"{HOME}/tasks/{task_id}/runs/{run_id}", {"q": q, "sort": sort, "page": page if page > 1 else None}
    )


def step_url(task_id: str, run_id: str, name: str, *, occurrence: int | None = None, attempt: int | None = None) -> str:
    """Write where a step is, or one of its occurrences and attempts."""
    query = {"name": name, "occurrence": occurrence, "attempt": attempt}
    return with_query(f"{HOME}/tasks/{task_id}/runs/{run_id}/step", query)
