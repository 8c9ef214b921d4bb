"""Naming: one canonical name for each step, and no name for two."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import InvalidBlueprint, StepNamingCollision
from app.domain.flow import PathExpression, iter_steps, parse_flow
from app.domain.naming import NamingWarning, StepNaming, result_values
from app.domain.paths import parse_flow_path
from tests.unit.strategies import flows, json_values, projection_names, seq, step

VECTOR_DIR = Path(__file__).parents[1] / "vectors"
NAMINGS = json.loads((VECTOR_DIR / "step_naming.json").read_text(encoding="utf-8"))
RESULTS = json.loads((VECTOR_DIR / "result_ref.json").read_text(encoding="utf-8"))


def naming_of(flow: Any, declared: dict[str, str] | None = None) -> StepNaming:
    """The table of a flow's document."""
    return StepNaming.from_blueprint(parse_flow(flow), declared or {})


class TestVectors:
    """tests/vectors/step_naming.json and result_ref.json."""

    @pytest.mark.parametrize("case", NAMINGS["cases"], ids=lambda case: case["name"])
    def test_names_are_as_the_contract_says(self, case: dict[str, Any]) -> None:
        """A flow and its declared names make the table of the vector, or the error."""
        expect = dict(case["expect"])
        if "error" in expect:
            with pytest.raises((StepNamingCollision, InvalidBlueprint)) as caught:
                naming_of(case["flow"], case["projection_names"])
            assert {key: getattr(caught.value, key) for key in expect["error"]} == expect["error"]
            return
        naming = naming_of(case["flow"], case["projection_names"])
        entries = {entry.canonical: list(entry.aliases) for entry in naming.entries}
        seen = {
            "entries": {name: entries.get(name) for name in expect.get("entries", {})},
            "resolve": {name: naming.resolve(name) for name in expect.get("resolve", {})},
            "producer": {ref: naming.canonical_of(ref) for ref in expect.get("producer", {})},
            "warnings": [warning.name for warning in naming.warnings],
            "names": naming.names,
        }
        assert {key: seen[key] for key in expect} == expect

    @pytest.mark.parametrize("case", RESULTS["cases"], ids=range(len(RESULTS["cases"])))
    def test_values_are_as_the_contract_says(self, case: dict[str, Any]) -> None:
        """Out of a ``result_ref``, exactly the names of the vector have a value, and that one."""
        naming = naming_of(case["flow"], case.get("projection_names")) if case["flow"] else None
        values = result_values(naming, [], case["result_ref"])
        assert values == case["expect"]
        assert values.keys().isdisjoint(case.get("absent", []))

    def test_no_part_of_the_files_is_left_out(self) -> None:
        """A vector that nobody runs is a defect."""
        assert NAMINGS.keys() == RESULTS.keys() == {"about", "cases"}
        assert all(case.keys() == {"name", "flow", "projection_names", "expect"} for case in NAMINGS["cases"])
        keys = {"flow", "projection_names", "result_ref", "expect", "absent", "why"}
        assert {key for case in RESULTS["cases"] for key in case} == keys


class TestTable:
    """Who owns which name."""

    @given(flows, projection_names)
    def test_every_name_leads_to_one_step(self, flow: Any, declared: dict[str, str]) -> None:
        """Canonical names are unique and lead to themselves, no alias belongs to two, each ref has its one name."""
        try:
            naming = naming_of(flow, declared)
        except StepNamingCollision:
            return
        canonical = [entry.canonical for entry in naming.entries]
        assert len(set(canonical)) == len(canonical)
        assert naming.names == sorted(canonical)
        assert all(naming.resolve(name) == name for name in canonical)
        aliases = [name for entry in naming.entries for name in entry.aliases]
        assert len(set(aliases)) == len(aliases)
        for entry in naming.entries:
            assert list(entry.aliases) == sorted(entry.aliases, key=lambda name: name.encode())
            assert all(naming.resolve(name) == entry.canonical for name in entry.aliases)
            assert (
                naming.canonical_of(entry.step_ref) == entry.canonical == declared.get(entry.step_ref, entry.step_ref)
            )
        assert [entry.step_ref for entry in naming.entries] == list(
            dict.fromkeys(node.ref for node in iter_steps(parse_flow(flow)))
        )
        assert StepNaming.model_validate_json(naming.model_dump_json()) == naming

    @given(flows, projection_names)
    def test_the_table_follows_the_rule_word_by_word(self, flow: Any, declared: dict[str, str]) -> None:
        """The rule of the contract, written down plainly and slowly, gives the same owners, warnings and errors."""
        nodes = list(iter_steps(parse_flow(flow)))
        refs = list(dict.fromkeys(node.ref for node in nodes))
        strong: dict[str, set[str]] = {ref: {ref, declared.get(ref, ref)} for ref in refs}
        weak: dict[str, set[str]] = {ref: set() for ref in refs}
        for node in nodes:
            path = parse_flow_path(node.out.at) if isinstance(node.out, PathExpression) else None
            if path and isinstance(path[0], str):
                (strong if len(path) == 1 else weak)[node.ref].add(path[0])
        clashes = [
            (name, first, second)
            for at, first in enumerate(refs)
            for second in refs[at + 1 :]
            for name in strong[first] & strong[second]
        ]
        errors = {clash for clash in clashes if declared.keys() & set(clash[1:])}
        if errors:
            with pytest.raises(StepNamingCollision) as caught:
                naming_of(flow, declared)
            assert (caught.value.name, caught.value.first_step_ref, caught.value.second_step_ref) in errors
            return
        naming = naming_of(flow, declared)
        for name in {name for names in (*strong.values(), *weak.values()) for name in names}:
            claimants = [ref for ref in refs if name in strong[ref]]
            if not claimants:
                claimants = [ref for ref in refs if name in weak[ref]]
                owner = claimants[0] if len(claimants) == 1 else None
            else:
                owner = name if name in claimants else claimants[0]
            assert naming.resolve(name) == (naming.canonical_of(owner) if owner is not None else None)
        warned = {(warning.name, warning.first_step_ref, warning.second_step_ref) for warning in naming.warnings}
        assert warned <= set(clashes)
        assert {name for name, _, _ in warned} == {name for name, _, _ in clashes}
        assert all(naming.canonical_of(each.owner) == naming.resolve(each.name) for each in naming.warnings)

    def test_a_clash_is_an_error_where_either_step_declares_any_name(self) -> None:
        """A step that declares a projection_name shares no strong name, not even an undeclared one."""
        flow = seq(step("a", "$.r"), step("c", "$.q"), step("b", "$.r"))
        with pytest.raises(StepNamingCollision) as caught:
            naming_of(flow, {"b": "b-out"})
        assert (caught.value.name, caught.value.first_step_ref, caught.value.second_step_ref) == ("r", "a", "b")

    def test_each_later_claim_is_warned_of(self) -> None:
        """Of many undeclared claims of one name, each but the first is told, with the owner."""
        naming = naming_of(seq(step("a", "$.c"), step("b", "$.c"), step("c", "$.x")))
        told = [(each.first_step_ref, each.second_step_ref, each.owner) for each in naming.warnings]
        assert told == [("a", "b", "c"), ("a", "c", "c")]

    def test_a_warning_reads_well(self) -> None:
        """The sentence names the name, both steps, who has it, and what to do."""
        warning = NamingWarning(name="r", first_step_ref="a", second_step_ref="b", owner="a")
        assert warning.sentence == (
            'the steps "a" and "b" both claim the name "r": it leads to "a"; '
            "declare a projection_name to tell them apart"
        )

    @pytest.mark.parametrize("out", ["$", "$[0]", "$[0].a", '$[""]', "$._ctx", "$." + "a" * 1025])
    def test_some_out_paths_claim_no_name(self, out: str) -> None:
        """The root, an index, and a key that no step may bear, give no alias; the path is kept."""
        naming = naming_of(step("s", out))
        assert naming.entries[0].aliases == ("s",)
        assert naming.entries[0].out_paths == (out,)

    def test_an_empty_declared_name_says_where(self) -> None:
        """The error has the path of the agent's name."""
        with pytest.raises(InvalidBlueprint) as caught:
            naming_of(step("a"), {"a": ""})
        assert caught.value.details == [
            {"path": "$.agents.a.meta.projection_name", "message": "must be a non-empty string"}
        ]

    def test_a_flow_without_steps_has_no_names(self) -> None:
        """An empty table is a table."""
        naming = naming_of(seq())
        assert (naming.names, naming.resolve("a"), naming.canonical_of("a")) == ([], None, None)
        assert naming == StepNaming()

    def test_thousands_of_steps_take_no_time(self) -> None:
        """The table, its look-ups and its values are near linear in the number of steps."""
        count = 5_000
        flow = parse_flow(seq(*(step(f"s{at}", "$.same" if at % 2 else f"$.r{at}.x") for at in range(count))))
        naming = StepNaming.from_blueprint(flow, {})
        values = result_values(naming, [f"s{at}" for at in range(count)], {f"s{at}": at for at in range(count)})
        assert [naming.resolve(f"s{at}") for at in range(count)] == [f"s{at}" for at in range(count)]
        assert len(values) == count


class TestResultValues:
    """Which value answers out of ``result_ref``."""

    def test_the_last_out_path_that_leads_somewhere_answers(self) -> None:
        """A step of several nodes has the value of the last one that wrote, a null included."""
        naming = naming_of(seq(step("w", "$.first"), step("w", "$.second"), step("w", "$.third")))
        assert result_values(naming, [], {"first": 1, "second": None}) == {"w": None}

    def test_names_answer_where_no_path_does(self) -> None:
        """After the out path its aliases answer, then the canonical name."""
        naming = naming_of(step("planner", "$.plan.text"), {"planner": "plan-out"})
        assert result_values(naming, [], {"planner": 1, "plan-out": 2}) == {"plan-out": 1}
        assert result_values(naming, [], {"plan-out": 2}) == {"plan-out": 2}
        assert result_values(naming, [], {"plan": {"other": 3}}) == {"plan-out": {"other": 3}}

    def test_a_key_that_another_step_writes_is_not_shared(self) -> None:
        """What stands where another step writes is that step's value, not the namesake's."""
        naming = naming_of(
            seq(step("foo", "$.bar"), step("bar", "$.baz"), step("lane", "$.baz2.x"), step("baz2", "$.z"))
        )
        assert result_values(naming, ["bar"], {"bar": "FOO"}) == {"foo": "FOO"}
        assert result_values(naming, [], {"baz2": {"x": 1}}) == {"lane": 1}

    def test_a_root_out_path_is_the_whole(self) -> None:
        """A step that writes the root has the whole value, whatever it is."""
        assert result_values(naming_of(step("s", "$")), [], [1, 2]) == {"s": [1, 2]}

    def test_a_dispatched_name_has_its_own_key(self) -> None:
        """Beside the table, a dispatched name answers by its key alone, unless a step of the table wrote it."""
        naming = naming_of(seq(step("a", "$.r.a"), step("b", "$.r.b")))
        result = {"r": {"a": 1}, "extra": 2, "seed": 3}
        assert result_values(naming, ["extra", "r", "absent", "a"], result) == {"a": 1, "extra": 2}

    def test_without_a_table_only_keys_that_can_be_asked_for_are_steps(self) -> None:
        """A key that no URL can carry, and ``_ctx``, are reached through the whole."""
        result = {"a": 1, "": 2, "_ctx": 3, "\ud800": 4, "x" * 1025: 5, "b/c": None}
        assert result_values(None, ["q"], result) == {"a": 1, "b/c": None}
        assert result_values(None, ["q"], "text") == {}

    @given(st.none() | st.tuples(flows, projection_names), st.lists(st.sampled_from("abcde")), json_values)
    def test_no_result_makes_it_fail(self, blueprint: Any, dispatched: list[str], result: Any) -> None:
        """Any JSON value may be a result, and only names of the run have values."""
        try:
            naming = naming_of(*blueprint) if blueprint else None
        except StepNamingCollision:
            return
        values = result_values(naming, dispatched, result)
        if naming is not None:
            assert values.keys() <= {*naming.names, *dispatched}
