"""The JSON Schema of a Blueprint: schema and parser come to the same verdict, but for what no schema can say."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator, meta

from app.domain.blueprint import Blueprint, parse_blueprint
from app.domain.blueprint_schema import blueprint_schema
from app.domain.errors import InvalidBlueprint
from tests.unit.strategies import step
from tests.unit.test_blueprint import FULL, MINIMAL

SCHEMA = blueprint_schema()
VALIDATOR = Draft202012Validator(SCHEMA)
VECTORS = Path(__file__).parents[1] / "vectors"

PLACE = {"op": "path", "at": "$.place"}
EVERY_NODE: dict[str, Any] = {
    "kind": "seq",
    "children": [
        step("planner", "$.plan"),
        {"kind": "branch", "cond": {"op": "eq", "a": 1}, "then": step("a", "$.a"), "else": step("b", '$["b c"][0].d')},
        {
            "kind": "fanout",
            "items": PLACE,
            "bind": PLACE,
            "body": step("each", "$.each"),
            "join": "all",
            "out": PLACE,
        },
        {"kind": "loop", "counter": PLACE, "cond": PLACE, "body": step("again", "$.again"), "max": 3},
        {"kind": "try", "body": step("t", "$.t"), "catch": {"kind": "seq", "children": []}, "err_at": PLACE},
        {"kind": "assign", "at": PLACE, "value": {"op": "lit", "value": None}},
    ],
}
WHOLE = {**FULL, "flow": EVERY_NODE}

WRONG: list[Any] = [None, True, 1, 1.5, -1, "", "text", "$.a", "_ctx", [], {}, {"op": "lit", "value": 1}, [1], ["a"]]


def _parser_takes(document: Any) -> bool:
    try:
        parse_blueprint(document)
    except InvalidBlueprint as error:
        faults = [fault["message"] for fault in error.details]
        return all("names no meta" in fault or fault.endswith(" already") for fault in faults)
    return True


def _places(node: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    for key, item in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield from _places(item, (*place, key))


def _changed(place: tuple[Any, ...]) -> Iterator[Any]:
    """Change a document at one place in every way: another value, none at all, and a field more."""
    for wrong in [*WRONG, ...]:
        document = copy.deepcopy(WHOLE)
        within: Any = document
        for key in place[:-1]:
            within = within[key]
        if wrong is ...:
            del within[place[-1]]
        else:
            within[place[-1]] = copy.deepcopy(wrong)
        yield document
        if isinstance(within, dict):
            within["unknown"] = 1
            yield document


def test_the_schema_is_one() -> None:
    """It is a schema of draft 2020-12, and each of its fields has a description."""
    assert meta.is_valid(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    for part in [SCHEMA, *SCHEMA["$defs"].values()]:
        assert part["description"]
        undescribed = [name for name, field in part.get("properties", {}).items() if "description" not in field]
        assert [name for name in undescribed if name not in {"kind", "op"}] == []
    assert set(SCHEMA["properties"]) == set(Blueprint.model_fields)


@pytest.mark.parametrize("place", list(_places(WHOLE))[1:], ids=str)
def test_schema_and_parser_agree_on_every_change(place: tuple[Any, ...]) -> None:
    """Whatever is changed at one place of a Blueprint, the schema takes what the parser takes, and nothing else."""
    for document in _changed(place):
        assert VALIDATOR.is_valid(document) == _parser_takes(document), json.dumps(document)


@pytest.mark.parametrize("document", [MINIMAL, FULL, WHOLE, None, [], "x", {}, {"id": "x"}])
def test_schema_and_parser_agree_on_documents(document: Any) -> None:
    """A document of any kind has one verdict."""
    assert VALIDATOR.is_valid(document) == _parser_takes(document)


def _vector_documents() -> Iterator[tuple[str, dict[str, Any]]]:
    """Make a Blueprint of every flow, placement and policy of the vectors."""
    naming = json.loads((VECTORS / "step_naming.json").read_text(encoding="utf-8"))
    for case in naming["cases"]:
        agents = [{"name": ref, "meta": {"projection_name": name}} for ref, name in case["projection_names"].items()]
        yield case["name"], {"id": "bp", "flow": case["flow"], "agents": agents}
    placement = json.loads((VECTORS / "placement.json").read_text(encoding="utf-8"))
    for case in placement["from_spec"]:
        yield f"placement {case['spec']}", {**MINIMAL, "projection_placement": case["spec"]}
    context = json.loads((VECTORS / "context.json").read_text(encoding="utf-8"))
    for number, case in enumerate([*context["fields"], *context["steps"]]):
        yield f"policy {number}", {**MINIMAL, "default_context_policy": case["policy"]}


@pytest.mark.parametrize("document", [pytest.param(document, id=name) for name, document in _vector_documents()])
def test_schema_and_parser_agree_on_the_vectors(document: dict[str, Any]) -> None:
    """What the contract's vectors take or refuse, the schema does."""
    assert VALIDATOR.is_valid(document) == _parser_takes(document)


_PATHS = (
    *("$", "$.a", '$["ab"].c[0]', "$[-1]", "a", "$a", "$.", "$..a", "$.a.", '$.["a"]', '$["a"', '$["a\\"b"]'),
    *('$["a\\x"]', "$.é.計", "$.a[x]", "$.a]", "$defs.a", '$["a"]["b"]', "", "$.a\n", "$\n", "$[0]\n", '$["a b"]'),
)


@pytest.mark.parametrize("at", _PATHS)
def test_schema_and_parser_agree_on_paths(at: str) -> None:
    """A path of a flow is one to both or to neither."""
    document = {"id": "bp", "flow": {**step("a", "$.a"), "in": {"op": "path", "at": at}}}
    assert VALIDATOR.is_valid(document) == _parser_takes(document)


_TEMPLATES = (
    *(
        "{task_id}",
        "a/{task_id}/b",
        "..{task_id}",
        "a/..",
        "../{task_id}",
        "{task_id}/..",
        "{task_id}\\..",
        "/{task_id}",
    ),
    *("\\{task_id}", "C:{task_id}", "c/{task_id}", "{task-id}", "é/{task_id}", "a/../{task_id}/b", "", "a{task_id}\n"),
    *("{task_id}\x7f", "{task_id}\x9f", " {task_id}"),
)


@pytest.mark.parametrize("template", _TEMPLATES)
def test_schema_and_parser_agree_on_templates(template: str) -> None:
    """A directory of a placement is one to both or to neither."""
    document = {**MINIMAL, "projection_placement": {"dir_template": template}}
    assert VALIDATOR.is_valid(document) == _parser_takes(document)
