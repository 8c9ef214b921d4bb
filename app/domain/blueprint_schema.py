"""The JSON Schema of a Blueprint, for editors and for programs that write one.

The invariant: it is made from the models that the parser reads with, and refuses nothing that the parser takes.
What no schema can say, the parser judges alone: a name that two agents bear, a ``meta_ref`` that leads nowhere, the
bytes of a name, how deep a document nests.

Source: JSON Schema, draft 2020-12.
"""

from functools import cache
from typing import Any

from app.domain.blueprint import Blueprint
from app.domain.placement import ProjectionPlacement

SCHEMA_TYPE = "application/schema+json"

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_KEPT = "Means something to others: kept as it is."
_NODES = ("StepNode", "SeqNode", "BranchNode", "FanoutNode", "LoopNode", "TryNode", "AssignNode")
_EXPRESSIONS = ("PathExpression", "LiteralExpression", "OtherExpression")


@cache
def blueprint_schema() -> dict[str, Any]:
    """Make the schema."""
    made = Blueprint.model_json_schema()
    parts: dict[str, Any] = made["$defs"] | {
        "Expression": {"description": "What a node reads or writes.", "anyOf": list(map(_ref, _EXPRESSIONS))},
        "FlowNode": {"description": "A node of the flow.", "oneOf": list(map(_ref, _NODES))},
        "ProjectionPlacement": _placement_schema(),
        "Ctx": _ctx_schema(),
    }
    fields = {name: _nullable(field) if name not in made["required"] else field for name, field in _fields_of(made)}
    schema = {
        "$schema": _DIALECT,
        "title": "Blueprint",
        "description": "A pipeline's description, as `POST /v1/tasks` takes it.",
        "type": "object",
        "properties": fields,
        "required": made["required"],
        "additionalProperties": False,
        "$defs": dict(sorted(parts.items())),
    }
    told: dict[str, Any] = _told(schema)
    return told


def _fields_of(schema: dict[str, Any]) -> list[tuple[str, Any]]:
    return list(schema["properties"].items())


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/$defs/{name}"}


def _nullable(field: dict[str, Any]) -> dict[str, Any]:
    """Let a field be null: the parser reads that as absent."""
    inner = {key: item for key, item in field.items() if key not in {"default", "title", "description"}}
    if not inner or _NULL in inner.get("anyOf", ()):
        return field
    return {"description": field["description"], "anyOf": [inner, _NULL]}


def _told(node: Any, key: str = "") -> Any:
    """Rewrite what pydantic made: nodes and expressions by name, a ctx as such, no titles and no defaults of null."""
    if isinstance(node, list):
        return [_told(item) for item in node]
    if not isinstance(node, dict):
        return node
    if key == "properties":
        return {name: _described(_told(field, name)) for name, field in node.items()}
    by_name = _named_part(node, key)
    if by_name is not None:
        plain = {"anyOf": [_ref(by_name), _NULL]} if _NULL in node.get("anyOf", ()) else _ref(by_name)
        return plain | ({"description": node["description"]} if "description" in node else {})
    return {name: _told(item, name) for name, item in node.items() if name not in {"title", "default"}}


_NULL = {"type": "null"}


def _named_part(node: dict[str, Any], key: str) -> str | None:
    """Name the part that stands in a place where pydantic wrote it out."""
    if "discriminator" in node:
        return "FlowNode"
    if key in {"ctx", "default_agent_ctx"}:
        return "Ctx"
    is_expression = "title" in node and node.get("anyOf", [])[: len(_EXPRESSIONS)] == list(map(_ref, _EXPRESSIONS))
    return "Expression" if is_expression else None


def _described(field: Any) -> Any:
    return field or {"description": _KEPT}


def _placement_schema() -> dict[str, Any]:
    default = ProjectionPlacement.DEFAULT
    return {
        "description": "Which root is preferred, and the directory of a step's files below it.",
        "type": "object",
        "properties": {
            "root": {
                "description": f"The root that is preferred where there are both; absent: `{default.root_preference}`.",
                "enum": ["work_dir", "project_root", None],
            },
            "dir_template": {
                "description": f"`{{task_id}}` stands for the step's id; absent: `{default.dir_template}`.",
                "type": ["string", "null"],
                "minLength": 1,
                "pattern": _DIR_TEMPLATE,
            },
        },
        "additionalProperties": False,
    }


# Not absolute, nowhere upwards, with the placeholder, and without control characters.
_DIR_TEMPLATE = (
    r"^(?![/\\]|[A-Za-z]:)(?!(?:[\s\S]*[/\\])?\.\.(?:[/\\]|(?![\s\S])))(?=[\s\S]*\{task_id\})"
    r"[^\u0000-\u001f\u007f-\u009f]*(?![\s\S])"
)


def _ctx_schema() -> dict[str, Any]:
    text = {"type": ["string", "null"]}
    return {
        "description": "Context for workers: fields of the view, and any other key, which goes to its `extra`.",
        "type": "object",
        "properties": {
            "project_root": text | {"description": "The project that is worked on."},
            "work_dir": text | {"description": "The directory that is worked in."},
            "project_name_alias": text | {"description": "What the project is called."},
            "extra": {"description": "More keys for `extra`.", "type": ["object", "null"]},
        },
        "additionalProperties": True,
    }
