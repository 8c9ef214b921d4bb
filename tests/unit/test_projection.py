"""Projections: a key addresses a slice, a locator says where it is."""

import pytest
import yaml
from pydantic import ValidationError

from app.domain.errors import InvalidKey, ProjectionNotFound
from app.domain.projection import ProjectionKey, ProjectionRef

CTX = {"planner": {"plan": None}}


def test_a_required_slice_is_there_or_an_error() -> None:
    """A found null is a value; a miss says what was asked for."""
    assert ProjectionKey(task_id="T-1", step="planner", path="$.plan").require(CTX) is None
    with pytest.raises(ProjectionNotFound, match=r"step='planner' path='\$\.x' of T-1"):
        ProjectionKey(task_id="T-1", step="planner", path="$.x").require(CTX)


def test_a_key_needs_its_task() -> None:
    """An empty task id is no address."""
    with pytest.raises(InvalidKey, match="needs a task_id"):
        ProjectionKey(task_id="").require(CTX)


def test_a_locator_has_one_form() -> None:
    """A locator is a file or a query on the wire, and never holds the value."""
    key = ProjectionKey(task_id="T-1", step="planner")
    assert ProjectionRef.to_file("/x/planner.md").model_dump() == {"File": {"path": "/x/planner.md"}}
    assert ProjectionRef.to_query("http://h/x", key).model_dump() == {
        "Query": {"endpoint": "http://h/x", "key": {"task_id": "T-1", "step": "planner"}}
    }
    with pytest.raises(ValidationError):
        ProjectionKey.model_validate({"task_id": "T-1", "value": 1})


@pytest.mark.parametrize(
    ("fields", "json_text"),
    [
        ({}, '{"task_id":"T-1"}'),
        ({"run_id": "R-1"}, '{"task_id":"T-1","run_id":"R-1"}'),
        ({"step": "a", "path": ""}, '{"task_id":"T-1","step":"a","path":""}'),
        ({"run_id": "R-1", "step": "a", "path": "$.b"}, '{"task_id":"T-1","run_id":"R-1","step":"a","path":"$.b"}'),
    ],
)
def test_what_a_key_lacks_is_left_out(fields: dict[str, str], json_text: str) -> None:
    """JSON and YAML of a key have what it names, and nothing of what is absent; either is read back as the key."""
    key = ProjectionKey(task_id="T-1", **fields)
    assert key.model_dump_json() == json_text
    assert ProjectionKey.model_validate_json(json_text) == key
    written = yaml.safe_dump(key.model_dump(), sort_keys=False)
    assert written == "".join(f"{name}: {item or repr(item)}\n" for name, item in key.model_dump().items())
    assert ProjectionKey.model_validate(yaml.safe_load(written)) == key


def test_the_run_changes_no_resolving() -> None:
    """A key resolves by its step and path alone: which run a ctx is of, whoever hands it over knows."""
    key = ProjectionKey(task_id="T-1", step="planner", path="$.plan")
    assert key.model_copy(update={"run_id": "R-none"}).resolve(CTX) == key.resolve(CTX) is not None
