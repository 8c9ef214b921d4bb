"""Absences: why nothing answers for a name of a run, and which names are close to it.

The invariant: what a scope hides, its absences hide as well.
"""

import asyncio
import difflib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from app.domain.errors import StepNotFound, StepNotSubmitted
from app.domain.ids import CTX_NAME
from app.services.scopes import Scope
from app.storage.database import Database

_MOST_CLOSE = 3
_CLOSE = 0.6
"""How alike two names are, from 0 to 1, before one may be a misspelling of the other."""

_COMPARED_NAMES, _COMPARED_CHARS = 500, 100
"""How many names are compared, and up to which length: comparing takes a time that grows with the square of it."""


class Absence(NamedTuple):
    """A name of a run that nothing answers for; ``canonical`` is what it leads to, which may be itself."""

    task_id: str
    run_id: str
    name: str
    canonical: str


async def explain_absence(database: Database, absence: Absence, scope: Scope) -> StepNotFound | StepNotSubmitted:
    """Tell a step that has put nothing out yet from a name that none has; the scope shows what the name leads to."""
    async with database.point() as stores:
        flight = await stores.dispatches.find_newest_of_name(absence.run_id, absence.canonical)
        if flight is not None:
            return StepNotSubmitted(absence.name, absence.run_id, flight)
        if absence.name == CTX_NAME:  # pages ask for it again and again, and nobody misspells it
            return StepNotFound(absence.name, absence.run_id)
        listed = await stores.projections.list_names(absence.run_id, _COMPARED_NAMES)
        aliases = await stores.projections.list_aliases(absence.task_id, _COMPARED_NAMES)
        dispatched = await stores.dispatches.list_names(absence.run_id, _COMPARED_NAMES)
    known = [*listed, *aliases.items(), *((name, name) for name in dispatched)]
    names = [name for name, owner in known if scope.allows(aliases.get(name, name), owner)]
    close = await asyncio.to_thread(_close_names, absence.name, names)
    return StepNotFound(absence.name, absence.run_id, close)


def _close_names(name: str, names: Iterable[str]) -> Sequence[str]:
    if len(name) > _COMPARED_CHARS:
        return []
    compared = sorted({each for each in names if len(each) <= _COMPARED_CHARS})
    return difflib.get_close_matches(name, compared, _MOST_CLOSE, _CLOSE)
