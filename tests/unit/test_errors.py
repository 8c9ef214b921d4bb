"""Errors: each kind is documented, has its code, and writes a sentence that is fit to be shown."""

import inspect
import json
import re
from collections import defaultdict

import pytest

from app.domain import errors
from app.domain.errors import StepplaneError

KINDS = sorted(
    (kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, StepplaneError)),
    key=lambda kind: kind.__name__,
)
SHARED = {
    "run_finished": {"RunAlreadyFinished", "RunFinished"},  # the same fact, met by a finish and by a worker
    "name_taken": {"NameTaken", "PartNameTaken"},  # met by a dispatch, and by a part
    "nested_too_deep": {"IndentedTooLarge", "NestedTooDeep"},  # what is sent, and what its rendering would take
    "invalid_blueprint": {"InvalidBlueprint", "InvalidPlacement"},  # a placement is a part of the document
}
LONG = "x\n\x1b" * 1000
EXAMPLES: list[StepplaneError] = [
    errors.InvalidId("task", "T-", LONG),
    errors.TaskNotFound("T-1"),
    errors.RunNotFound("R-1"),
    errors.RunNotFound("latest", "T-1"),
    errors.RunNotFound(LONG, "T-1"),
    errors.StepNotFound(LONG, "R-1"),
    errors.StepNotFound("plam", "R-1", ["plan", LONG]),
    errors.StepNotSubmitted(LONG, "R-1", errors.InFlight("ST-1", 2, 1, "2026-01-01T00:00:00.000Z", None)),
    errors.StepNotSubmitted("plan", "R-1", errors.InFlight("ST-1", 2, 1, "2026-01-01T00:00:00.000Z", "done")),
    errors.DispatchNotFound("ST-1"),
    errors.PathNotFound(LONG, "$.a", "$ is null"),
    errors.AttemptNotFound("planner", 3, 2),
    errors.OccurrenceNotFound("planner", 3, 2),
    errors.FileNotMaterialized("planner"),
    errors.OutputNotFound(LONG),
    errors.RunAlreadyFinished("R-1", "done"),
    errors.RunStillRunning("R-1"),
    errors.RunFinished("R-1", "done"),
    errors.TooLarge(10, 12),
    errors.TooLarge(10, None),
    errors.IndentedTooLarge(10, 12),
    errors.InvalidBlueprint([("$.id", "is missing")]),
    errors.InvalidBlueprint([("$.id", "is missing"), ("$.flow", "is missing")], reason="empty"),
    errors.StepNamingCollision("plan", "a", LONG),
    errors.InvalidPlacement("invalid_root", "the root is wrong"),
    errors.NameTaken(LONG, "planner"),
    errors.UnknownParameter(LONG, ["path", "format"]),
    errors.UnknownParameter("x", []),
    errors.PartNameTaken(LONG, "plan.md"),
    errors.PartNameTaken("plan.md", "plan.md"),
    errors.PartNameTaken("NUL", None),
    errors.NestedTooDeep(200),
    errors.TooManyValues(10),
    errors.TooManyParts(LONG, 10),
    errors.Busy(),
    errors.Unavailable(),
    errors.TooManyAttempts(10),
    errors.StorageFull("/var/lib/stepplane"),
    errors.StorageGone("/var/lib/stepplane/stepplane.db"),
]


def own_constructor(kind: type[StepplaneError]) -> bool:
    """Whether a kind builds its sentence itself."""
    return kind is not StepplaneError and "__init__" in vars(kind)


def drawn_tree() -> dict[str, str]:
    """Each kind of the tree in the module's docstring, with the kind that it hangs from."""
    doc = errors.__doc__ or ""
    places: dict[str, str] = {}
    heading = "StepplaneError"
    for line in doc[doc.index("StepplaneError\n") :].splitlines()[1:]:
        match = re.match(r"    [├└]── (\w+)", line)
        if match:
            heading = match[1]
            places[heading] = "StepplaneError"
        else:
            places |= dict.fromkeys(re.findall(r"\w+", line), heading)
    return places


def test_the_tree_shows_every_kind() -> None:
    """The module's docstring draws each kind under the ancestor that the edge maps to a status, and no other."""
    assert drawn_tree() == {kind.__name__: kind.__mro__[1].__name__ for kind in KINDS if kind is not StepplaneError}


def test_codes_are_unique() -> None:
    """A code stands for one kind of fact; the exceptions are deliberate."""
    by_code = defaultdict(set)
    for kind in KINDS:
        by_code[kind.code].add(kind.__name__)
    assert {code: kinds for code, kinds in by_code.items() if len(kinds) > 1} == SHARED
    assert all(re.fullmatch(r"[a-z]+[0-9]*(_[a-z]+[0-9]*)*", code) for code in by_code)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_states_its_code_and_meaning(kind: type[StepplaneError]) -> None:
    """No kind inherits its ancestor's code by accident, and each has a docstring."""
    assert "code" in vars(kind)
    assert (kind.__doc__ or "").strip()


def test_every_kind_that_writes_its_sentence_has_an_example() -> None:
    """The examples of this file leave no such kind out."""
    assert {type(error) for error in EXAMPLES} == {kind for kind in KINDS if own_constructor(kind)}


@pytest.mark.parametrize("error", EXAMPLES, ids=range(len(EXAMPLES)))
def test_a_sentence_is_fit_to_be_shown(error: StepplaneError) -> None:
    """It is one bounded line, whatever a client sent; the details are JSON."""
    assert str(error) == error.sentence
    assert error.sentence.isprintable()
    assert 0 < len(error.sentence) < 1200
    json.dumps(error.details)


def test_an_error_of_a_plain_kind_takes_its_sentence() -> None:
    """A kind without ids of its own says what it is told."""
    error = errors.InvalidRequest("the body is no object", [{"path": "$", "message": "must be an object"}])
    assert (str(error), error.details[0]["path"]) == ("the body is no object", "$")


def test_a_sentence_counts_the_faults_it_does_not_tell() -> None:
    """The first fault is in the sentence, all are in the details."""
    error = errors.InvalidBlueprint([("$.id", "is missing"), ("$.flow", "is missing")])
    assert error.sentence == "the blueprint is not valid at $.id: is missing (and 1 more)"
    assert error.details == [{"path": "$.id", "message": "is missing"}, {"path": "$.flow", "message": "is missing"}]
