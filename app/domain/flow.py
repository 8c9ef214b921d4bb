"""Flows: the tree of nodes that says which steps a pipeline has.

The invariant: a flow may nest as deep as JSON may, so it is read and walked a node at a time, never
by recursion.

Source: contract §3, "Blueprint".
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictInt, StringConstraints
from pydantic_core import PydanticCustomError

from app.domain.faults import MOST_FAULTS, TOLD, UNKNOWN_WORD, Fault, Place, must_be, read, refuse, told
from app.domain.ids import CTX_NAME, MAX_NAME_BYTES
from app.domain.paths import parse_flow_path, quoted
from app.domain.values import MAX_DEPTH, JsonValue

Text = Annotated[str, StringConstraints(min_length=1)]
"""Not empty, and valid Unicode."""


def _check_length(name: str) -> str:
    if len(name.encode()) > MAX_NAME_BYTES:
        raise PydanticCustomError(TOLD, f"must have at most {MAX_NAME_BYTES} bytes of UTF-8")
    return name


def _check_unreserved(name: str) -> str:
    if name == CTX_NAME:
        raise PydanticCustomError(TOLD, f"must be another name: {CTX_NAME} stands for the whole result of a run")
    return name


# A schema counts characters and the check counts bytes: what has too many characters has too many bytes.
Name = Annotated[Text, AfterValidator(_check_length), Field(json_schema_extra={"maxLength": MAX_NAME_BYTES})]
"""What :func:`app.domain.ids.check_name` takes."""

_UNRESERVED: Any = {"maxLength": MAX_NAME_BYTES, "not": {"const": CTX_NAME}}
StepName = Annotated[Name, AfterValidator(_check_unreserved), Field(json_schema_extra=_UNRESERVED)]
"""A name that a step may bear."""


class Part(BaseModel):
    """A part of a document: frozen, and it has the fields that it has."""

    model_config = ConfigDict(frozen=True, extra="forbid")


_FLOW_PATH = r"""^\$(?:\.[^.\[\]]+|\["(?:[^"\\]|\\["\\])*"\]|\[-?[0-9]+\])*(?![\s\S])"""
"""What :func:`parse_flow_path` reads, for the JSON Schema; a test holds both to the same verdict."""


class PathExpression(Part):
    """``path``: the value at a place of the flow's context, or that place."""

    op: Literal["path"]
    at: Text = Field(
        description='From the root `$`: `.key`, `["any key"]`, `[0]`.', json_schema_extra={"pattern": _FLOW_PATH}
    )


class LiteralExpression(Part):
    """``lit``: a value as it stands."""

    op: Literal["lit"]
    value: JsonValue = Field(description="Any JSON value.")


class OtherExpression(BaseModel):
    """Any other ``op``, kept as it is: who runs the flow knows what it means."""

    model_config = ConfigDict(frozen=True, extra="allow")

    op: Text = Field(
        description="Any other operator; its further fields are kept.",
        json_schema_extra={"not": {"enum": ["path", "lit"]}},
    )


Expression: TypeAlias = PathExpression | LiteralExpression | OtherExpression


class StepNode(Part):
    """Dispatch the agent ``ref``."""

    kind: Literal["step"]
    ref: StepName = Field(description="The agent, by its name; a ref that names none is taken too.")
    in_: Expression = Field(alias="in", description="What the step is given.")
    out: Expression = Field(description="Where its OUTPUT goes; the first key of that place is a name of the step.")


class SeqNode(Part):
    """One node after the other."""

    kind: Literal["seq"]
    children: tuple["FlowNode", ...] = Field(repr=False, description="The nodes, in order.")


class BranchNode(Part):
    """One node or the other."""

    kind: Literal["branch"]
    cond: Expression = Field(description="What decides.")
    then: "FlowNode" = Field(repr=False, description="Where it holds.")
    else_: "FlowNode" = Field(alias="else", repr=False, description="Where it does not.")


class FanoutNode(Part):
    """The body once for each item, side by side."""

    kind: Literal["fanout"]
    items: Expression = Field(description="The items.")
    bind: Expression = Field(description="Where the body finds its item.")
    body: "FlowNode" = Field(repr=False, description="What is done for each item.")
    join: JsonValue = Field(description="How the results come together; kept as it is.")
    out: Expression = Field(description="Where they go.")


class LoopNode(Part):
    """The body again and again, ``max`` times at most."""

    kind: Literal["loop"]
    counter: Expression = Field(description="Where the number of the round is kept.")
    cond: Expression = Field(description="What is asked before each round.")
    body: "FlowNode" = Field(repr=False, description="What a round is.")
    max: StrictInt = Field(description="How many rounds at most.")


class TryNode(Part):
    """The body, and the other node where it fails."""

    kind: Literal["try"]
    body: "FlowNode" = Field(repr=False, description="What is tried.")
    catch: "FlowNode" = Field(repr=False, description="What is done where it fails.")
    err_at: Expression | None = Field(default=None, description="Where the error goes.")


class AssignNode(Part):
    """Set a place of the flow's context."""

    kind: Literal["assign"]
    at: Expression = Field(description="The place.")
    value: Expression = Field(description="What is put there.")


FlowNode: TypeAlias = Annotated[
    StepNode | SeqNode | BranchNode | FanoutNode | LoopNode | TryNode | AssignNode, Field(discriminator="kind")
]


def iter_steps(flow: FlowNode) -> Iterator[StepNode]:
    """Walk the steps of a flow, in flow order: ``then`` before ``else``, ``body`` before ``catch``."""
    waiting: list[FlowNode] = [flow]
    while waiting:
        node = waiting.pop()
        if isinstance(node, StepNode):
            yield node
        waiting.extend(reversed(_children_of(node)))


def _children_of(node: FlowNode) -> tuple[FlowNode, ...]:
    match node:
        case SeqNode():
            return node.children
        case BranchNode():
            return (node.then, node.else_)
        case TryNode():
            return (node.body, node.catch)
        case FanoutNode() | LoopNode():
            return (node.body,)
        case _:
            return ()


# --- reading -------------------------------------------------------------------------------------


def parse_flow(document: JsonValue) -> FlowNode:
    """Read a flow alone.

    Raises:
        InvalidBlueprint: with each fault that was found; paths begin at the flow.
    """
    flow, faults = read_flow(document)
    if faults:
        refuse(faults)
    return flow


def read_flow(document: JsonValue, place: Place = ()) -> tuple[FlowNode, list[Fault]]:
    """Read a flow that stands at a place of a document, and find its first hundred faults, in the document's order.

    Where there is a fault, the flow that comes with it is none to use.
    """
    root = _Visit(document)
    waiting, visits = [root], list[_Visit]()
    while waiting:
        visit = waiting.pop()
        visits.append(visit)
        waiting.extend(reversed(visit.open()))
    for visit in reversed(visits):  # a node's children before the node
        visit.close()
    return root.node, list(islice(_faults_of(visits, place), MOST_FAULTS))


_NODES: dict[str, type[BaseModel]] = {
    "step": StepNode,
    "seq": SeqNode,
    "branch": BranchNode,
    "fanout": FanoutNode,
    "loop": LoopNode,
    "try": TryNode,
    "assign": AssignNode,
}
_CHILD_FIELDS = {
    "step": (),
    "seq": (),  # its children stand in a list
    "branch": ("then", "else"),
    "fanout": ("body",),
    "loop": ("body",),
    "try": ("body", "catch"),
    "assign": (),
}
_EXPRESSION_FIELDS = {
    "step": ("in", "out"),
    "seq": (),
    "branch": ("cond",),
    "fanout": ("items", "bind", "out"),
    "loop": ("counter", "cond"),
    "try": ("err_at",),
    "assign": ("at", "value"),
}
_EXPRESSIONS: dict[str, type[BaseModel]] = {"path": PathExpression, "lit": LiteralExpression}
_NO_NODE = SeqNode(kind="seq", children=())
_NO_EXPRESSION = OtherExpression(op="none")
"""These stand in for what is at fault, so that what it stands in is judged for itself alone."""


class _Visit:
    """A node of the document on its way to become a :data:`FlowNode`."""

    def __init__(self, raw: JsonValue, parent: "_Visit | None" = None, *slot: Any) -> None:
        self.raw = raw
        self.parent = parent
        self.slot = slot
        self.depth: int = parent.depth + len(slot) if parent is not None else 1
        self.node: Any = _NO_NODE
        self.faults: list[Fault] = []
        self.model: type[BaseModel] | None = None
        self.fields: dict[str, Any] = {}

    def open(self) -> list["_Visit"]:
        """Read the node's own expressions and name its children."""
        self.model = self._find_model()
        if self.model is None:
            return []
        kind = self.raw["kind"]
        self.fields = dict(self.raw)
        for name in _EXPRESSION_FIELDS[kind]:
            if name in self.raw and not (name == "err_at" and self.raw[name] is None):
                self.fields[name] = _read_expression(self.raw[name], (name,), self.faults)
        if kind == "seq" and isinstance(self.raw.get("children"), list):
            self.fields["children"] = [_NO_NODE] * len(self.raw["children"])
            return [_Visit(child, self, "children", index) for index, child in enumerate(self.raw["children"])]
        return [_Visit(self.raw[name], self, name) for name in _CHILD_FIELDS[kind] if name in self.raw]

    def close(self) -> None:
        """Become a node, and take the place in the parent."""
        if self.model is not None:
            self.node = read(self.model, self.fields, (), self.faults) or _NO_NODE
        if self.parent is not None:
            within: Any = self.parent.fields
            for key in self.slot[:-1]:
                within = within[key]
            within[self.slot[-1]] = self.node

    def place(self) -> Place:
        """Tell where the node stands, from the root of the flow."""
        slots: list[Place] = []
        visit: _Visit | None = self
        while visit is not None:
            slots.append(visit.slot)
            visit = visit.parent
        return tuple(key for slot in reversed(slots) for key in slot)

    def _find_model(self) -> type[BaseModel] | None:
        if not isinstance(self.raw, dict):
            self.faults.append(told((), must_be("an object", self.raw)))
            return None
        if self.depth > MAX_DEPTH:
            self.faults.append(told((), f"nests deeper than {MAX_DEPTH} levels"))
            return None
        kind = self.raw.get("kind")
        if isinstance(kind, str) and kind in _NODES:
            return _NODES[kind]
        kinds = ", ".join(_NODES)
        if isinstance(kind, str):
            self.faults.append(Fault(("kind",), UNKNOWN_WORD, kind, tuple(_NODES)))
        elif "kind" in self.raw:
            self.faults.append(told(("kind",), f"must be one of {kinds}"))
        else:
            self.faults.append(told(("kind",), f"is missing: it must be one of {kinds}"))
        return None


def _faults_of(visits: Iterable[_Visit], place: Place) -> Iterator[Fault]:
    for visit in visits:
        if visit.faults:
            start = (*place, *visit.place())
            yield from (fault._replace(place=(*start, *fault.place)) for fault in visit.faults)


def _read_expression(raw: JsonValue, place: Place, faults: list[Fault]) -> Any:
    if not isinstance(raw, dict):
        faults.append(told(place, must_be("an expression, an object with an op", raw)))
        return _NO_EXPRESSION
    op = raw.get("op")
    model = _EXPRESSIONS.get(op, OtherExpression) if isinstance(op, str) else OtherExpression
    expression = read(model, raw, place, faults)
    if isinstance(expression, PathExpression) and parse_flow_path(expression.at) is None:
        example = 'a path such as $, $.plan or $["a b"].c'
        faults.append(told((*place, "at"), f"must be {example}, not {quoted(expression.at)}"))
    return expression or _NO_EXPRESSION
