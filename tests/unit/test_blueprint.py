"""Blueprints: the document is kept, and what is wrong with it is told by its path."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.domain.blueprint import parse_blueprint
from app.domain.context import EVERYTHING, ContextPolicy
from app.domain.errors import InvalidBlueprint
from app.domain.flow import iter_steps
from app.domain.placement import ProjectionPlacement
from app.domain.values import MAX_DEPTH
from tests.unit.strategies import any_text, json_values, nested, seq, step

MINIMAL: dict[str, Any] = {"id": "bp", "flow": step("planner", "$.plan")}
KEPT_FIELDS = [
    "schema_version",
    "operators",
    "hints",
    "strategy",
    "spawner_hints",
    "default_agent_kind",
    "default_operator_kind",
    "default_init_ctx",
    "audits",
    "degradation_policy",
    "runners",
    "default_runner",
    "subprocesses",
    "check_policy",
    "blueprint_ref_includes",
]
KEPT_AGENT_FIELDS = ["kind", "spec", "profile", "runner", "runner_ref", "verdict", "lints"]
KEPT_META_FIELDS = ["description", "version", "tags"]
KEPT_METADATA_FIELDS = [
    "description",
    "origin",
    "tags",
    "version_label",
    "default_run_ttl_secs",
    "strict_verdict_handling",
    "lints",
]
FULL: dict[str, Any] = {
    **MINIMAL,
    "agents": [
        {
            "name": "planner",
            "meta": {
                "projection_name": "plan-out",
                "context_policy": {"steps": ["coder"]},
                "ctx": {"own": 1, "both": "own"},
                "meta_ref": "shared",
            },
        },
        {"name": "coder", "meta": {"meta_ref": "shared"}},
        {"name": "tester", "meta": {}},
        {"name": "plain"},
    ],
    "metas": [{"name": "shared", "ctx": {"both": "shared", "theirs": 2}}, {"name": "unused", "ctx": {}}],
    "default_agent_ctx": {"work_dir": "/w"},
    "default_context_policy": {"exclude": ["run_id"]},
    "projection_placement": {"root": "project_root", "dir_template": "x/{task_id}"},
    "metadata": {"project_name_alias": "alias-x"},
}


def faults_of(document: Any) -> list[tuple[str, str]]:
    """Each fault's path and message."""
    with pytest.raises(InvalidBlueprint) as caught:
        parse_blueprint(document)
    return [(fault["path"], fault["message"]) for fault in caught.value.details]


class TestReading:
    """What a Blueprint may be."""

    def test_the_least_blueprint(self) -> None:
        """An id and a flow are enough; the rest has its default."""
        blueprint = parse_blueprint(MINIMAL)
        assert blueprint.id == "bp"
        assert [node.ref for node in iter_steps(blueprint.flow)] == ["planner"]
        assert (blueprint.agents, blueprint.metas, blueprint.projection_names) == ((), (), {})
        assert blueprint.projection_placement == ProjectionPlacement.DEFAULT
        assert blueprint.metadata.project_name_alias is None
        assert blueprint.policy_for("planner") == EVERYTHING
        assert blueprint.agent_ctx("planner") == {}

    def test_the_whole_blueprint(self) -> None:
        """Each part that means something to us is read."""
        blueprint = parse_blueprint(FULL)
        assert blueprint.projection_names == {"planner": "plan-out"}
        assert blueprint.projection_placement == ProjectionPlacement(
            root_preference="project_root", dir_template="x/{task_id}"
        )
        assert blueprint.metadata.project_name_alias == "alias-x"
        assert blueprint.default_agent_ctx == {"work_dir": "/w"}
        planner = blueprint.agent("planner")
        assert planner is not None
        assert planner is blueprint.agents[0]
        assert blueprint.agent("nobody") is None

    def test_an_agents_tier_is_its_own_over_the_shared(self) -> None:
        """The ctx of the meta lies under the agent's own; a ref that names no agent has none."""
        blueprint = parse_blueprint(FULL)
        assert blueprint.agent_ctx("planner") == {"own": 1, "both": "own", "theirs": 2}
        assert blueprint.agent_ctx("coder") == {"both": "shared", "theirs": 2}
        assert [blueprint.agent_ctx(ref) for ref in ("tester", "plain", "nobody")] == [{}, {}, {}]

    def test_a_policy_is_the_agents_else_the_default(self) -> None:
        """An agent's own policy replaces the default as a whole."""
        blueprint = parse_blueprint(FULL)
        assert blueprint.policy_for("planner") == ContextPolicy(steps=("coder",))
        for ref in ("coder", "plain", "nobody"):
            assert blueprint.policy_for(ref) == ContextPolicy(exclude=("run_id",))

    def test_nulls_say_nothing(self) -> None:
        """An optional field that is null is as if it were absent."""
        optional = (
            "agents",
            "metas",
            "default_agent_ctx",
            "default_context_policy",
            "projection_placement",
            "metadata",
        )
        nulls = parse_blueprint({**MINIMAL, **dict.fromkeys(optional)})
        assert nulls.model_dump() == parse_blueprint(MINIMAL).model_dump()
        meta = dict.fromkeys(("projection_name", "context_policy", "ctx", "meta_ref"))
        agents = [{"name": "a", "meta": None}, {"name": "b", "meta": meta}]
        blueprint = parse_blueprint({**MINIMAL, "agents": agents, "metadata": {"project_name_alias": None}})
        assert blueprint.projection_names == {}
        assert blueprint.agent_ctx("b") == {}

    @pytest.mark.parametrize("where", ["top", "agent", "meta", "metadata"])
    @given(value=json_values)
    def test_what_means_something_to_others_is_kept(self, where: str, value: Any) -> None:
        """The further fields of the origin may hold anything, and the document is given back as it came."""
        document = dict(MINIMAL)
        if where == "top":
            document |= dict.fromkeys(KEPT_FIELDS, value)
        elif where == "agent":
            document["agents"] = [{"name": "a", **dict.fromkeys(KEPT_AGENT_FIELDS, value)}]
        elif where == "meta":
            document["agents"] = [{"name": "a", "meta": dict.fromkeys(KEPT_META_FIELDS, value)}]
        else:
            document["metadata"] = dict.fromkeys(KEPT_METADATA_FIELDS, value)
        blueprint = parse_blueprint(document)
        assert blueprint.document is document
        assert parse_blueprint(blueprint.document) == blueprint

    def test_a_blueprint_is_frozen_and_short_to_show(self) -> None:
        """Nobody changes a Blueprint in use; a log line does not hold its flow."""
        blueprint = parse_blueprint(MINIMAL)
        with pytest.raises(ValidationError):
            blueprint.id = "other"  # type: ignore[misc]  # the point
        assert "planner" not in repr(blueprint)

    def test_a_deep_flow_is_no_matter(self) -> None:
        """The flow nests to the limit of JSON, inside the document."""
        document: Any = step("deep")
        for _ in range(MAX_DEPTH - 3):
            document = {"kind": "try", "body": document, "catch": seq()}
        blueprint = parse_blueprint({"id": "bp", "flow": document})
        assert [node.ref for node in iter_steps(blueprint.flow)] == ["deep"]
        assert repr(blueprint)


class TestFaults:
    """What is wrong with a Blueprint, and where."""

    @pytest.mark.parametrize(
        ("change", "path", "message"),
        [
            ({"id": None}, "$.id", "is missing"),
            ({"id": ""}, "$.id", "must be a non-empty string"),
            ({"flow": None}, "$.flow", "is missing"),
            ({"flow": seq(seq(), step("s"), step(""))}, "$.flow.children[2].ref", "must be a non-empty string"),
            ({"agnets": []}, "$.agnets", 'is no known field; the nearest is "agents"'),
            ({"document": {}}, "$.document", None),
            ({"_document": {}}, "$._document", None),
            ({"a b": 1}, '$["a b"]', None),
            ({"agents": {}}, "$.agents", "must be an array, not an object"),
            ({"agents": ["a"]}, "$.agents[0]", "must be an object, not a string"),
            ({"agents": [{}]}, "$.agents[0].name", "is missing"),
            ({"agents": [{"name": "a", "mata": {}}]}, "$.agents[0].mata", 'is no known field; the nearest is "meta"'),
            ({"agents": [{"name": "a", "meta": []}]}, "$.agents[0].meta", "must be an object, not an array"),
            (
                {"agents": [{"name": "a", "meta": {"projection_nam": "x"}}]},
                "$.agents[0].meta.projection_nam",
                'is no known field; the nearest is "projection_name"',
            ),
            (
                {"agents": [{"name": "a", "meta": {"projection_name": ""}}]},
                "$.agents[0].meta.projection_name",
                "must be a non-empty string",
            ),
            (
                {"agents": [{"name": "a", "meta": {"projection_name": "_ctx"}}]},
                "$.agents[0].meta.projection_name",
                "must be another name: _ctx stands for the whole result of a run",
            ),
            (
                {"agents": [{"name": "a", "meta": {"context_policy": {"stpes": []}}}]},
                "$.agents[0].meta.context_policy.stpes",
                'is no known field; the nearest is "steps"',
            ),
            (
                {"default_context_policy": {"steps": "planner"}},
                "$.default_context_policy.steps",
                "must be an array, not a string",
            ),
            (
                {"default_context_policy": {"steps": [1]}},
                "$.default_context_policy.steps[0]",
                "must be a string, not a number",
            ),
            (
                {"agents": [{"name": "a", "meta": {"ctx": 1}}]},
                "$.agents[0].meta.ctx",
                "must be an object, not a number",
            ),
            (
                {"agents": [{"name": "a", "meta": {"ctx": {"work_dir": 1}}}]},
                "$.agents[0].meta.ctx.work_dir",
                "must be a string, not a number",
            ),
            (
                {"agents": [{"name": "a"}, {"name": "b"}, {"name": "a"}]},
                "$.agents[2].name",
                'must be another name: agents[0] is "a" already',
            ),
            (
                {"agents": [{"name": "a", "meta": {"meta_ref": "m"}}]},
                "$.agents[0].meta.meta_ref",
                'names no meta: "m"',
            ),
            (
                {"agents": [{"name": "a", "meta": {"meta_ref": "shard"}}], "metas": [{"name": "shared", "ctx": {}}]},
                "$.agents[0].meta.meta_ref",
                'names no meta: "shard"; there are "shared"',
            ),
            ({"metas": [{"name": "m"}]}, "$.metas[0].ctx", "is missing"),
            (
                {"metas": [{"name": "m", "ctx": {"extra": []}}]},
                "$.metas[0].ctx.extra",
                "must be an object, not an array",
            ),
            (
                {"metas": [{"name": "m", "ctx": {}}, {"name": "m", "ctx": {}}]},
                "$.metas[1].name",
                'must be another name: metas[0] is "m" already',
            ),
            ({"default_agent_ctx": "x"}, "$.default_agent_ctx", "must be an object, not a string"),
            (
                {"default_agent_ctx": {"project_root": []}},
                "$.default_agent_ctx.project_root",
                "must be a string, not an array",
            ),
            ({"projection_placement": "x"}, "$.projection_placement", "must be an object, not a string"),
            (
                {"projection_placement": {"root": "nope"}},
                "$.projection_placement.root",
                'must be one of work_dir, project_root, not "nope"',
            ),
            (
                {"projection_placement": {"dir_template": "x"}},
                "$.projection_placement.dir_template",
                "must contain {task_id}",
            ),
            (
                {"projection_placement": {"dir": "x"}},
                "$.projection_placement.dir",
                "is no field of it: the fields are root and dir_template",
            ),
            (
                {"metadata": {"project_name_alais": "x"}},
                "$.metadata.project_name_alais",
                'is no known field; the nearest is "project_name_alias"',
            ),
        ],
    )
    def test_a_fault_says_where_and_what(self, change: dict[str, Any], path: str, message: str | None) -> None:
        """One thing is wrong, so one fault is told, in the words of JSON."""
        (fault,) = faults_of({**MINIMAL, **change})
        assert fault[0] == path
        assert message is None or fault[1] == message

    @pytest.mark.parametrize(
        ("document", "given_kind"), [(None, "null"), ([], "an array"), ("x", "a string"), (1, "a number")]
    )
    def test_a_blueprint_is_an_object(self, document: Any, given_kind: str) -> None:
        """Anything else is refused at the root."""
        assert faults_of(document) == [("$", f"must be an object, not {given_kind}")]

    def test_all_faults_are_told_at_once(self) -> None:
        """Whoever writes a Blueprint mends it in one go."""
        faults = faults_of({"flow": seq(1), "projection_placement": [], "agents": [{}], "x": 1})
        assert [path for path, _ in faults] == [
            "$.flow.children[0]",
            "$.projection_placement",
            "$.id",
            "$.agents[0].name",
            "$.x",
        ]

    def test_a_hundred_faults_are_enough(self) -> None:
        """However many unknown fields there are, a hundred are told, soon."""
        assert len(faults_of({**MINIMAL, **{f"agent{at}": 1 for at in range(50_000)}})) == 100
        agents = [{"name": f"a{at}", "meta": {"meta_ref": f"n{at}"}} for at in range(5_000)]
        metas = [{"name": f"m{at}", "ctx": {}} for at in range(5_000)]
        assert len(faults_of({**MINIMAL, "agents": agents, "metas": metas})) == 100

    @given(
        st.dictionaries(
            st.sampled_from(["agents", "metas", "projection_placement", "metadata", "default_agent_ctx", "id", "flow"]),
            json_values | json_values.map(lambda value: nested(value, ["meta", None])),
        ),
        any_text,
    )
    def test_no_document_makes_it_fail(self, change: dict[str, Any], key: str) -> None:
        """Any JSON value is a Blueprint or has faults, told on one line each."""
        document = {**MINIMAL, **change, key: 1}
        try:
            parse_blueprint(document)
        except InvalidBlueprint:
            assert all(message.isprintable() for _, message in faults_of(document))
