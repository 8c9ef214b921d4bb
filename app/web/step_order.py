"""The order of a run's names: what was dispatched first stands first.

The invariant: the table of a run, its timeline and the way from one step's page to the next go in the same order.
"""

from collections.abc import Iterable

from app.domain.records import Kind, Source, StepEntry

Place = tuple[int, int, str]
"""Where a name stands among the others; compared, it orders them."""


def newest_attempts(dispatches: Iterable[StepEntry]) -> list[StepEntry]:
    """Leave of each step its newest attempt, which tells how it stands; dispatches come in their order."""
    return list({entry.step_id: entry for entry in dispatches}.values())


class StepOrder:
    """Orders the names of a run: steps by their first dispatch, then artifacts, then the parts of the result.

    Args:
        dispatches: of the run, in their order.
    """

    def __init__(self, dispatches: Iterable[StepEntry]) -> None:
        self._first: dict[str, int] = {}
        for number, entry in enumerate(dispatches):
            self._first.setdefault(entry.name, number)

    def place(self, name: str, kind: str, source: str | None) -> Place:
        """Tell where a name stands; a step that was never dispatched counts as a part of the result."""
        if kind == Kind.ARTIFACT:
            return _ARTIFACTS, 0, name
        if source == Source.RESULT_REF or name not in self._first:
            return _RESULTS, 0, name
        return _STEPS, self._first[name], name


_STEPS, _ARTIFACTS, _RESULTS = range(3)
