"""The address of a step's page: which output, which part of it, and how it is shown.

The invariant: every link of the page is this address with something changed, so nothing that was chosen is lost.
"""

from typing import NamedTuple

from app.domain.errors import InvalidParameter
from app.domain.ids import LATEST, check_id
from app.domain.records import MAX_COUNT
from app.domain.rendering import Narrowing, content_path, quote_segment, steps_path
from app.web.urls import at, run_url, with_query

DOT_NAMES = frozenset({".", ".."})
"""Names that no browser can ask the API for: it takes them, however spelled, for a directory."""

VIEWS = ("tree", "rendered", "raw", "pointer")
ADDRESS_QUERY = ("name", "occurrence", "attempt", "path", "view", "cursor")
"""The parameters that :func:`read_address` reads."""

_COUNT_DIGITS = 10


class StepAddress(NamedTuple):
    """What a step's page shows; ``run_id`` None is the run created last, attempt and occurrence None the newest."""

    task_id: str
    run_id: str | None
    name: str
    occurrence: int | None = None
    attempt: int | None = None
    path: str = ""
    view: str = VIEWS[0]
    cursor: str | None = None

    @property
    def url(self) -> str:
        """Where the page is."""
        query = {
            "name": self.name,
            "occurrence": self.occurrence,
            "attempt": self.attempt,
            "path": self.path,
            "view": None if self.view == VIEWS[0] else self.view,
            "cursor": self.cursor,
        }
        return with_query(f"{self.run_url}/step", query)

    @property
    def run_url(self) -> str:
        """Where the page of its run is."""
        return run_url(self.task_id, self.run_id or LATEST)

    @property
    def narrowing(self) -> Narrowing:
        """What of the output it shows."""
        return Narrowing(self.path or None, None, self.attempt, self.occurrence)

    def content_url(self, form: str | None = None) -> str:
        """Write where a browser gets the bytes, from ``/``, in a form or as they are without one."""
        if self.name in DOT_NAMES:
            path = self.path or None
            return self._beside("content", {"path": path, "format": form})
        narrowing = self.narrowing._replace(format=form)
        return at(content_path(self.task_id, self.run_id or LATEST, self.name, narrowing))

    def outline_url(self) -> str:
        """Write where a browser gets the outline, from ``/``, without a path."""
        if self.name in DOT_NAMES:
            return self._beside("outline", {})
        path = f"{steps_path(self.task_id, self.run_id or LATEST)}/{quote_segment(self.name)}/outline"
        return with_query(at(path), {"occurrence": self.occurrence, "attempt": self.attempt})

    def _beside(self, what: str, query: dict[str, str | None]) -> str:
        of_step = {"name": self.name, "occurrence": self.occurrence, "attempt": self.attempt}
        return with_query(f"{self.run_url}/step/{what}", of_step | query)


def read_address(task: str, run: str, query: dict[str, str]) -> StepAddress:
    """Read the address of a request; an empty parameter counts as none, as forms send those.

    Raises:
        InvalidId, InvalidParameter: a part of it is none that it could have.
    """
    view = query.get("view") or VIEWS[0]
    if view not in VIEWS:
        raise InvalidParameter(f"view={view[:40]!r} is none: one is {', '.join(VIEWS)}")
    return StepAddress(
        check_id("task", task),
        None if run == LATEST else check_id("run", run),
        require_name(query),
        read_count("occurrence", query),
        read_count("attempt", query),
        query.get("path", ""),
        view,
        query.get("cursor") or None,
    )


def require_name(query: dict[str, str]) -> str:
    """Return the name of a step.

    Raises:
        InvalidParameter: there is none.
    """
    name = query.get("name")
    if not name:
        raise InvalidParameter("the query names no step: ?name=")
    return name


def read_count(parameter: str, query: dict[str, str]) -> int | None:
    """Read the number of an attempt or occurrence.

    Raises:
        InvalidParameter: it is no number from 1.
    """
    text = query.get(parameter)
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        raise InvalidParameter(f"{parameter}={text[:40]!r} is no number from 1")
    return min(int(text), MAX_COUNT) if len(text) <= _COUNT_DIGITS else MAX_COUNT
