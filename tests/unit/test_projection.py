"""Projections: a key addresses a slice, a locator says where it is."""

import pytest
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
        "Query": {"endpoint": "http://h/x", "key": {"task_id": "T-1", "step": "planner", "path": None}}
    }
    with pytest.raises(ValidationError):
        ProjectionKey.model_validate({"task_id": "T-1", "value": 1})
