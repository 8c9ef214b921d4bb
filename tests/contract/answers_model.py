"""A run as the contract speaks of it: §2, "which value answers", word by word, over nothing but lists and dicts."""

from typing import Any, NamedTuple

from tests.contract.pipeline import Dispatched, blueprint_of

BLUEPRINT = blueprint_of(
    ("plan", "$.draft"), ("code", "$.code"), ("review", "$.report.text"), names={"plan": "the plan"}
)
TABLE = {
    "the plan": (["draft"], ["draft", "plan"]),
    "code": (["code"], []),
    "review": (["report", "text"], ["report"]),
}
"""The Blueprint's steps: where each one's ``out`` leads, and its aliases."""

CANONICAL = {"plan": "the plan", "draft": "the plan", "report": "review"}


class Final(NamedTuple):
    """A Final that was acknowledged."""

    value: Any
    ok: bool


class Step(NamedTuple):
    """One dispatched step: one occurrence of its name, with all its attempts and the Finals of each."""

    dispatched: list[Dispatched]
    finals: list[list[Final]]

    def __repr__(self) -> str:
        """Name it in a failure's report, which would be pages of handles else."""
        return f"<{len(self.dispatched)} attempts of {self.dispatched[0]['step_id']} {self.dispatched[0]['name']!r}>"

    def newest(self) -> tuple[int, Final] | None:
        """Return the last Final of the newest attempt that has one, and that attempt's number."""
        having = [(number, finals[-1]) for number, finals in enumerate(self.finals, 1) if finals]
        return having[-1] if having else None


class Answer(NamedTuple):
    """What a name answers: its value, and what its summary says of where that came from."""

    value: Any
    told: dict[str, Any]


class Model:
    """A run, as the contract speaks of it.

    Args:
        has_table: whether the run's task has the Blueprint.
    """

    def __init__(self, *, has_table: bool) -> None:
        self.table = TABLE if has_table else {}
        self.steps: dict[str, list[Step]] = {}
        self.parts: dict[str, Any] = {}
        self.result: list[Any] = []
        """The ``result_ref``, once the run has ended with one."""
        self.is_over = False

    def canonical(self, name: str) -> str:
        """Return the one name that a name leads to."""
        return CANONICAL.get(name, name) if self.table else name

    def answers(self) -> dict[str, Answer]:
        """Tell what is listed."""
        listed = {name: self._final(steps) for name, steps in self.steps.items()}
        listed = {name: answer for name, answer in listed.items() if answer is not None}
        for name, item in self._result_values().items():
            told = {"kind": "step", "source": "result_ref", "ok": None, "step_id": None, "attempt": None}
            listed.setdefault(name, Answer(item, told | dict.fromkeys(["attempts", "occurrence", "occurrences"])))
        owned = {*self.steps, *self.table, *(alias for _, aliases in self.table.values() for alias in aliases), *listed}
        for name, item in self.parts.items():
            if name not in owned:
                listed[name] = Answer(item, {"kind": "artifact", "source": "data_plane", "ok": None})
        return {name: answer for name, answer in listed.items() if answer is not None}

    def _final(self, steps: list[Step]) -> Answer | None:
        """The newest Final of the newest occurrence that has one, its newest attempt."""
        for occurrence, step in reversed(list(enumerate(steps, 1))):
            newest = step.newest()
            if newest is not None:
                attempt, final = newest
                told = {
                    "kind": "step",
                    "source": "data_plane",
                    "ok": final.ok,
                    "step_id": step.dispatched[0]["step_id"],
                    "attempt": attempt,
                    "attempts": len(step.dispatched),
                    "occurrence": occurrence,
                    "occurrences": len(steps),
                }
                return Answer(final.value, told)
        return None

    def _result_values(self) -> dict[str, Any]:
        """By each step's own ``out`` path, then its owned aliases, then its canonical name."""
        if not self.result:
            return {}
        (result,) = self.result
        keys = result if isinstance(result, dict) else {}
        if not self.table:
            return {name: item for name, item in keys.items() if name}  # an empty key can be no name
        found = {}
        for name, (path, aliases) in self.table.items():
            for way in (path, *([alias] for alias in aliases), [name]):
                leads, item = _walk(result, way)
                if leads:
                    found[name] = item
                    break
        return found | {name: keys[name] for name in self.steps if name not in self.table and name in keys}


def _walk(value: Any, path: list[str]) -> tuple[bool, Any]:
    for key in path:
        if not (isinstance(value, dict) and key in value):
            return False, None
        value = value[key]
    return True, value
