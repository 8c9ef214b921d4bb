"""Flows: every node is read, however deep it stands, and every fault has its place."""

from typing import Any

import pytest
from hypothesis import given

from app.domain.errors import InvalidBlueprint
from app.domain.flow import (
    AssignNode,
    BranchNode,
    FanoutNode,
    LiteralExpression,
    LoopNode,
    OtherExpression,
    PathExpression,
    SeqNode,
    StepNode,
    TryNode,
    iter_steps,
    parse_flow,
    read_flow,
)
from app.domain.values import MAX_DEPTH
from tests.unit.strategies import LIT, flows, json_values, nested, seq, step

PATH = {"op": "path", "at": "$.x"}
FANOUT = {"kind": "fanout", "items": PATH, "bind": PATH, "body": step("f"), "join": "all", "out": PATH}
LOOP = {"kind": "loop", "counter": PATH, "cond": LIT, "body": step("l"), "max": 3}
TRY = {"kind": "try", "body": step("t"), "catch": step("c"), "err_at": PATH}
BRANCH = {"kind": "branch", "cond": LIT, "then": step("then"), "else": step("else")}
ASSIGN = {"kind": "assign", "at": PATH, "value": LIT}


def faults_of(document: Any) -> list[tuple[str, str]]:
    """Each fault's path and message."""
    with pytest.raises(InvalidBlueprint) as caught:
        parse_flow(document)
    return [(fault["path"], fault["message"]) for fault in caught.value.details]


def without(node: dict[str, Any], field: str) -> dict[str, Any]:
    """A node that lacks a field."""
    return {name: item for name, item in node.items() if name != field}


class TestReading:
    """What a flow may be."""

    @pytest.mark.parametrize(
        ("document", "kind"),
        [
            (step("s"), StepNode),
            (seq(), SeqNode),
            (BRANCH, BranchNode),
            (FANOUT, FanoutNode),
            (LOOP, LoopNode),
            (TRY, TryNode),
            (without(TRY, "err_at"), TryNode),
            ({**TRY, "err_at": None}, TryNode),
            (ASSIGN, AssignNode),
        ],
    )
    def test_every_kind_of_node_is_read(self, document: dict[str, Any], kind: type) -> None:
        """A node becomes the value of its kind, and keeps what it came with."""
        assert type(parse_flow(document)) is kind
        assert parse_flow(document).kind == document["kind"]

    def test_steps_come_in_flow_order(self) -> None:
        """``then`` is before ``else``, ``body`` before ``catch``, children as they stand; every kind is walked."""
        flow = parse_flow(seq(step("a"), BRANCH, seq(FANOUT, seq(), LOOP), TRY, ASSIGN, step("a")))
        assert [node.ref for node in iter_steps(flow)] == ["a", "then", "else", "f", "l", "t", "c", "a"]

    def test_expressions_are_read_by_their_op(self) -> None:
        """A path and a literal are known, any other op is kept as it is."""
        other = {"op": "eq", "lhs": PATH, "rhs": {"op": "lit", "value": 1}}
        node = next(iter_steps(parse_flow({**step("s", "$.a"), "in": other})))
        assert node.out == PathExpression(op="path", at="$.a")
        assert isinstance(node.in_, OtherExpression)
        assert node.in_.model_dump() == other
        assert next(iter_steps(parse_flow(step("s", {"op": "lit", "value": [1]})))).out == LiteralExpression(
            op="lit", value=[1]
        )

    @given(flows)
    def test_any_flow_is_read(self, document: Any) -> None:
        """The steps of a document are those of its flow."""
        flow, faults = read_flow(document)
        assert faults == []
        assert [node.ref for node in iter_steps(flow)] == list(refs_of(document))

    @pytest.mark.parametrize("levels", [300, MAX_DEPTH - 2])
    def test_a_deep_flow_is_read(self, levels: int) -> None:
        """A flow nests as deep as JSON may; reading, walking and showing it spends no stack."""
        document = step("deep")
        for _ in range(levels):
            document = {"kind": "try", "body": document, "catch": seq()}
        flow = parse_flow(document)
        assert [node.ref for node in iter_steps(flow)] == ["deep"]
        assert "TryNode" in repr(flow)

    def test_a_wide_and_deep_flow_takes_no_time(self) -> None:
        """Reading is linear in the number of nodes, wherever they stand."""
        document = seq(*(step(f"s{at}") for at in range(5_000)))
        for _ in range(400):
            document = {"kind": "try", "body": document, "catch": seq()}
        assert sum(1 for _ in iter_steps(parse_flow(document))) == 5_000


def refs_of(document: Any) -> Any:
    """The refs of a document in its order, by plain recursion."""
    if document["kind"] == "step":
        yield document["ref"]
    fields = ("children", "then", "else", "body", "catch")
    for child in [item for name in fields for item in as_list(document.get(name, []))]:
        yield from refs_of(child)


def as_list(item: Any) -> list[Any]:
    """A list as it is, a node as the only one."""
    return item if isinstance(item, list) else [item]


class TestFaults:
    """What is wrong with a flow, and where."""

    @pytest.mark.parametrize(
        ("document", "path", "message"),
        [
            (7, "$", "must be an object, not a number"),
            (None, "$", "must be an object, not null"),
            ({}, "$.kind", "is missing: it must be one of step, seq, branch, fanout, loop, try, assign"),
            ({"kind": 1}, "$.kind", "must be one of step, seq, branch, fanout, loop, try, assign"),
            (
                {"kind": "stpe"},
                "$.kind",
                'must be one of step, seq, branch, fanout, loop, try, assign; the nearest to "stpe" is step',
            ),
            ({"kind": "seq"}, "$.children", "is missing"),
            ({"kind": "seq", "children": {}}, "$.children", "must be an array, not an object"),
            (seq(seq(), seq([])), "$.children[1].children[0]", "must be an object, not an array"),
            (without(step("s"), "ref"), "$.ref", "is missing"),
            (without(step("s"), "in"), "$.in", "is missing"),
            ({**step("s"), "in_": 1}, "$.in_", 'is no known field; the nearest is "in"'),
            ({**step("s"), "rfe": 1}, "$.rfe", 'is no known field; the nearest is "ref"'),
            (step(""), "$.ref", "must be a non-empty string"),
            ({**step("s"), "ref": 5}, "$.ref", "must be a string, not a number"),
            ({**step("s"), "ref": "\ud800"}, "$.ref", "must be valid Unicode, without lone surrogates"),
            (step("x" * 1025), "$.ref", "must have at most 1024 bytes of UTF-8"),
            (step("_ctx"), "$.ref", "must be another name: _ctx stands for the whole result of a run"),
            ({**step("s"), "in": "$.a"}, "$.in", "must be an expression, an object with an op, not a string"),
            ({**step("s"), "in": {}}, "$.in.op", "is missing"),
            ({**step("s"), "in": {"op": ["lit"]}}, "$.in.op", "must be a string, not an array"),
            ({**step("s"), "in": {"op": ""}}, "$.in.op", "must be a non-empty string"),
            ({**step("s"), "in": {"op": "lit"}}, "$.in.value", "is missing"),
            ({**step("s"), "in": {"op": "path"}}, "$.in.at", "is missing"),
            ({**step("s"), "in": {**PATH, "al": 1}}, "$.in.al", 'is no known field; the nearest is "at"'),
            (step("s", "plan"), "$.out.at", 'must be a path such as $, $.plan or $["a b"].c, not "plan"'),
            (without(BRANCH, "else"), "$.else", "is missing"),
            ({**BRANCH, "else": None}, "$.else", "must be an object, not null"),
            ({**BRANCH, "then": {"kind": "seq"}}, "$.then.children", "is missing"),
            ({**LOOP, "max": True}, "$.max", "must be an integer, not a boolean"),
            ({**LOOP, "max": "3"}, "$.max", "must be an integer, not a string"),
            (without(FANOUT, "join"), "$.join", "is missing"),
            ({**TRY, "err_at": "$.e"}, "$.err_at", "must be an expression, an object with an op, not a string"),
            ({**seq(), "x" * 200: 1}, f"$.{'x' * 80}…", None),
        ],
    )
    def test_a_fault_says_where_and_what(self, document: Any, path: str, message: str | None) -> None:
        """One thing is wrong, so one fault is told, in the words of JSON."""
        (fault,) = faults_of(document)
        assert fault[0].replace('["', ".").replace('"]', "") == path
        assert message is None or fault[1] == message

    def test_faults_come_in_the_order_of_the_document(self) -> None:
        """All faults are told at once; a faulty child is no fault of its parent."""
        document = seq({**step("a", "x"), "y": 1}, {"kind": "loop", "body": {"kind": "brunch"}}, 1)
        assert [path for path, _ in faults_of(document)] == [
            "$.children[0].out.at",
            "$.children[0].y",
            "$.children[1].counter",
            "$.children[1].cond",
            "$.children[1].max",
            "$.children[1].body.kind",
            "$.children[2]",
        ]

    def test_a_hundred_faults_are_enough(self) -> None:
        """The first hundred are told, in no more time than it takes to read the flow."""
        unknown = [{"kind": f"stpe{at}"} for at in range(20_000)]
        document = seq(*({**step(f"s{at}"), f"rfe{at}": 1} for at in range(20_000)), *unknown)
        faults = faults_of(document)
        assert len(faults) == 100
        assert faults[99] == ("$.children[99].rfe99", 'is no known field; the nearest is "ref"')

    @pytest.mark.parametrize("keys", [["body"], [None, "children"]])
    def test_a_flow_that_nests_too_deep_is_refused(self, keys: list[str | None]) -> None:
        """Also a flow that no JSON text could hold is a fault, and no crash."""
        document: Any = seq()
        for _ in range(MAX_DEPTH):
            document = {"kind": "seq", "children": [document]} if None in keys else {**LOOP, "body": document}
        path, message = faults_of(document)[0]
        assert message == f"nests deeper than {MAX_DEPTH} levels"
        assert path.startswith("$.body.body" if None not in keys else "$.children[0].children[0]")

    @given(json_values)
    def test_no_document_makes_it_fail(self, document: Any) -> None:
        """Any JSON value is a flow or has faults, in any field of any node."""
        for within in (
            document,
            nested(document, [None, "children"]),
            {**BRANCH, "then": document},
            step("s", document),
        ):
            try:
                parse_flow(within)
            except InvalidBlueprint:
                assert all(message.isprintable() for _, message in faults_of(within))
