"""Context: what one worker sees, and that nobody forges it."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.domain.context import (
    EVERYTHING,
    AgentContextView,
    ContextPolicy,
    Identity,
    build_view,
    directive_header,
    find_ctx_faults,
    resolve_steps,
)
from app.domain.naming import StepName, StepNaming
from tests.unit.strategies import any_text, json_values

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "context.json").read_text(encoding="utf-8"))
STEPS = ("planner", "coder")
ME = Identity("ST-1", "planner", 3, "R-abc")

FIELDS = ("project_root", "work_dir", "task_metadata", "project_name_alias")
IDENTITY = ("task_id", "agent", "attempt", "run_id")
ctxs = st.none() | st.dictionaries(
    st.sampled_from([*FIELDS, *IDENTITY, "steps", "extra", "a", "b"]) | any_text,
    json_values | st.dictionaries(st.sampled_from(["a", "work_dir", "run_id"]), json_values),
    max_size=5,
)


def visible(view: AgentContextView) -> set[str]:
    """The names of everything that a view shows, as the vectors write them."""
    shown = view.shown()
    extra = shown.pop("extra", {})
    return shown.keys() | {f"extra.{name}" for name in extra}


class TestVectors:
    """tests/vectors/context.json."""

    @pytest.mark.parametrize("case", VECTORS["fields"], ids=range(len(VECTORS["fields"])))
    def test_a_policy_filters_as_the_contract_says(self, case: dict[str, Any]) -> None:
        """What its vector names is gone, or kept."""
        names = visible(ContextPolicy(**case["policy"]).filter(AgentContextView(**VECTORS["view"])))
        assert set(case["kept"]) <= names
        assert names.isdisjoint(case["gone"])
        assert set(IDENTITY[:3]) <= names

    @pytest.mark.parametrize("case", VECTORS["steps"], ids=range(len(VECTORS["steps"])))
    def test_a_policy_allows_steps_as_the_contract_says(self, case: dict[str, Any]) -> None:
        """Exactly the steps of its vector may be seen, asked either way."""
        policy = ContextPolicy(**case["policy"])
        steps = resolve_steps(policy, None)
        assert [name for name in STEPS if policy.allows(name)] == [name for name in STEPS if name in case["allowed"]]
        assert [name for name in STEPS if steps.allows(name)] == [name for name in STEPS if name in case["allowed"]]

    @pytest.mark.parametrize("case", VECTORS["header"], ids=range(len(VECTORS["header"])))
    def test_a_header_is_this_very_text(self, case: dict[str, Any]) -> None:
        """A view makes the lines of its vector."""
        assert directive_header(AgentContextView(**case["view"])) == case["expect"]

    def test_no_part_of_the_file_is_left_out(self) -> None:
        """A vector that nobody runs is a defect."""
        assert VECTORS.keys() == {"about", "view", "fields", "steps", "header"}
        assert {key for case in VECTORS["fields"] for key in case} == {"policy", "gone", "kept"}
        assert {key for case in VECTORS["steps"] for key in case} == {"policy", "allowed"}
        assert {key for case in VECTORS["header"] for key in case} == {"view", "expect", "why"}


class TestView:
    """Which tier a field comes from."""

    def test_an_upper_tier_wins(self) -> None:
        """The launch input is over the dispatch's ctx, over the agent's, over the Blueprint's; key by key."""
        view = build_view(
            ME,
            {"project_root": "/launch", "work_dir": None, "task_metadata": None},
            {"project_root": "/dispatch", "work_dir": "/dispatch", "k": "dispatch"},
            {"work_dir": "/agent", "task_metadata": {"from": "agent"}, "k": "agent", "deep": {"a": 1}},
            {"task_metadata": {"from": "blueprint", "more": 1}, "k": "blueprint", "deep": {"b": 2}, "low": None},
            "alias",
        )
        assert view.shown() == {
            "task_id": "ST-1",
            "agent": "planner",
            "attempt": 3,
            "project_root": "/launch",
            "work_dir": "/dispatch",
            "task_metadata": {"from": "agent"},
            "run_id": "R-abc",
            "project_name_alias": "alias",
            "extra": {"k": "dispatch", "deep": {"a": 1}, "low": None},
        }

    def test_an_alias_of_a_tier_beats_the_metadata(self) -> None:
        """The Blueprint's metadata is the lowest word on the project's alias."""
        assert build_view(ME, {}, None, {"project_name_alias": "mine"}, None, "meta").project_name_alias == "mine"

    def test_an_extra_object_brings_its_keys(self) -> None:
        """``extra`` in a ctx is the view's ``extra``: its keys join the loose ones, which win in the same tier."""
        view = build_view(
            ME,
            {},
            {"extra": {"a": 1, "b": 1, "work_dir": "/x", "run_id": "R-x"}, "b": 2},
            {"extra": {"c": 3}},
            {"a": 0, "extra": 7},
        )
        assert view.extra == {"a": 1, "b": 2, "c": 3}
        assert view.work_dir is None

    def test_absent_is_absent(self) -> None:
        """A view of nothing but identity shows nothing else."""
        assert build_view(Identity("ST-1", "a", 1), {}).shown() == {"task_id": "ST-1", "agent": "a", "attempt": 1}

    @given(ctxs, ctxs, ctxs, ctxs)
    def test_no_ctx_forges_identity(self, launch: Any, dispatch: Any, agent: Any, blueprint: Any) -> None:
        """Whatever the tiers hold, the view is of this step, and no name of the view hides in ``extra``."""
        view = build_view(ME, launch or {}, dispatch, agent, blueprint)
        assert (view.task_id, view.agent, view.attempt, view.run_id) == ME
        assert (view.extra or {}).keys().isdisjoint({*IDENTITY, *FIELDS, "steps", "extra"})
        assert AgentContextView.model_validate(view.shown()) == view

    @given(ctxs)
    def test_a_field_of_the_wrong_type_is_a_fault(self, ctx: Any) -> None:
        """What a view would have to ignore is told beforehand."""
        faults = dict(find_ctx_faults(ctx or {}))
        for name, item in (ctx or {}).items():
            wrong = item is not None and (
                (name in {"project_root", "work_dir", "project_name_alias"} and not isinstance(item, str))
                or (name == "extra" and not isinstance(item, dict))
            )
            assert (name in faults) == wrong

    def test_a_fault_says_what_is_there(self) -> None:
        """The message names both types."""
        ctx = {"project_root": {}, "work_dir": [], "project_name_alias": 1, "extra": "x"}
        assert dict(find_ctx_faults(ctx)) == {
            "project_root": "must be a string, not an object",
            "work_dir": "must be a string, not an array",
            "project_name_alias": "must be a string, not a number",
            "extra": "must be an object, not a string",
        }


class TestPolicy:
    """What may be seen."""

    @pytest.mark.parametrize(
        ("policy", "extra"),
        [
            (ContextPolicy(include=("extra",)), {"secret": 1, "kept": 2}),
            (ContextPolicy(include=("kept",)), {"kept": 2}),
            (ContextPolicy(include=("extra",), exclude=("secret",)), {"kept": 2}),
            (ContextPolicy(exclude=("extra",)), None),
            (ContextPolicy(include=("kept",), exclude=("extra",)), None),
            (ContextPolicy(include=()), None),
        ],
    )
    def test_extra_stands_for_all_its_keys(self, policy: ContextPolicy, extra: dict[str, int] | None) -> None:
        """A list may name ``extra`` as a whole, or one key of it; an empty one is absent."""
        assert policy.filter(AgentContextView(**VECTORS["view"])).extra == extra

    def test_a_view_is_not_changed(self) -> None:
        """Filtering makes another view: the server's own guards keep the whole one."""
        view = AgentContextView(**VECTORS["view"])
        ContextPolicy(include=()).filter(view)
        assert view == AgentContextView(**VECTORS["view"])
        assert EVERYTHING.filter(view) == view

    def test_an_entry_may_be_any_name_of_a_step(self) -> None:
        """A policy that names an alias means its step, asked either way."""
        naming = StepNaming(
            entries=(
                StepName(canonical="plan-out", step_ref="planner", aliases=("plan", "planner"), out_paths=("$.plan",)),
                StepName(canonical="coder", step_ref="coder", aliases=("coder",), out_paths=()),
            )
        )
        for policy in (ContextPolicy(steps=("plan", "other")), ContextPolicy(steps_exclude=("coder",))):
            steps = resolve_steps(policy, naming)
            assert steps.allows("plan-out")
            assert not steps.allows("coder")
            assert policy.allows("plan-out", ("plan", "planner"))
            assert not policy.allows("coder", ("coder",))
        assert resolve_steps(ContextPolicy(steps=("other",)), naming).allows("other")
        assert not resolve_steps(ContextPolicy(steps=("plan",), steps_exclude=("planner",)), naming).allows("plan-out")

    def test_an_unknown_field_is_refused(self) -> None:
        """A policy with a mistyped field would show what it should hide."""
        with pytest.raises(ValidationError):
            ContextPolicy.model_validate({"excludes": ["secret"]})

    @given(st.lists(any_text), st.lists(any_text), any_text)
    def test_exclusion_wins(self, steps: list[str], excluded: list[str], name: str) -> None:
        """An excluded step is never seen, whatever includes it."""
        policy = ContextPolicy(steps=tuple({*steps, name}), steps_exclude=tuple(excluded))
        assert policy.allows(name) == (name not in excluded) == resolve_steps(policy, None).allows(name)


class TestHeader:
    """The lines before a directive."""

    def test_lines_come_in_one_order(self) -> None:
        """Alias, roots, metadata, then the extra keys sorted; identity and run are not in it."""
        view = AgentContextView(**{**VECTORS["view"], "extra": {"b": [1, "é"], "a": None}})
        assert directive_header(view).splitlines() == [
            "project_name_alias: alias-x",
            "project_root: /repo",
            "work_dir: /repo/work",
            'task_metadata: {"issue":20}',
            "a: null",
            'b: [1,"é"]',
        ]

    @given(any_text, json_values, st.dictionaries(any_text, json_values, max_size=4))
    def test_no_value_and_no_key_forges_a_line(self, root: str, metadata: Any, extra: dict[str, Any]) -> None:
        """There are as many lines as there are things shown, by anybody's idea of a line end."""
        view = AgentContextView(
            task_id="ST-1", agent="a", attempt=1, work_dir=root, task_metadata=metadata, extra=extra
        )
        header = directive_header(view)
        lines = header.splitlines()
        assert len(lines) == header.count("\n") == 1 + (metadata is not None) + len(extra)
        assert [line for line in lines if line.startswith("work_dir: ")] == lines[:1]

    @pytest.mark.parametrize(
        ("name", "key"),
        [("a-b.c/d", "a-b.c/d"), ("計画", "計画"), ("work_dir: /x", '"work_dir: /x"'), ("a\nb", '"a\\nb"'), ("", '""')],
    )
    def test_a_key_that_looks_like_a_line_is_quoted(self, name: str, key: str) -> None:
        """A key with anything but letters, digits and a few signs stands in quotes."""
        assert directive_header(AgentContextView(task_id="S", agent="a", attempt=1, extra={name: 1})) == f"{key}: 1\n"

    def test_other_line_ends_are_escaped(self) -> None:
        """Every character that some reader takes for the end of a line is written as its escape."""
        view = AgentContextView(
            task_id="S", agent="a", attempt=1, project_root="a\r\t\x0b\x85\u2028\x1b", extra={"k": "\u2029"}
        )
        assert directive_header(view) == 'project_root: a\\r\\t\\u000b\\u0085\\u2028\\u001b\nk: "\\u2029"\n'
