"""Placement: where files go, and that no name leads elsewhere."""

import json
import posixpath
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.domain.errors import InvalidKey, InvalidPlacement
from app.domain.placement import (
    MAX_NAME_BYTES,
    ProjectionPlacement,
    check_file_name,
    disk_name,
    find_fault,
    is_device,
)
from tests.unit.strategies import any_text, json_values

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "placement.json").read_text(encoding="utf-8"))

pieces = st.sampled_from(["{task_id}", "..", ".", "/", "\\", "a", "C:", "-", "\x00", "\n", "\ud800", "{x}"])
templates = st.lists(pieces, max_size=8).map("".join) | any_text
file_names = (
    st.lists(st.sampled_from(["..", ".", "/", "\\", "a", "\x00", "~", "C:"]), max_size=6).map("".join) | any_text
)


class TestVectors:
    """tests/vectors/placement.json."""

    @pytest.mark.parametrize("case", VECTORS["from_spec"], ids=range(len(VECTORS["from_spec"])))
    def test_a_spec_is_read_as_the_contract_says(self, case: dict[str, Any]) -> None:
        """A spec is a placement, or breaks the rule that its vector names."""
        if "error" in case:
            with pytest.raises(InvalidPlacement) as caught:
                ProjectionPlacement.from_spec(case["spec"])
            assert caught.value.reason == case["error"]
            assert case.get("names", "") in caught.value.sentence
            assert caught.value.details == {"reason": case["error"]}
        else:
            assert ProjectionPlacement.from_spec(case["spec"]).model_dump() == case["expect"]

    @pytest.mark.parametrize("case", VECTORS["resolve_root"], ids=range(len(VECTORS["resolve_root"])))
    def test_a_root_is_chosen_as_the_contract_says(self, case: dict[str, Any]) -> None:
        """The preferred root answers, else the other, else none."""
        placement = ProjectionPlacement(root_preference=case["preference"])
        assert placement.resolve_root(case["work_dir"], case["project_root"]) == case["expect"]

    @pytest.mark.parametrize("case", VECTORS["target_path"], ids=range(len(VECTORS["target_path"])))
    def test_a_target_is_where_the_contract_says(self, case: dict[str, Any]) -> None:
        """A template, a root, an id and a stem make the path of the vector."""
        placement = ProjectionPlacement.from_spec({"dir_template": case["dir_template"]})
        assert placement.target_path(case["root"], case["task_id"], case["stem"]) == case["expect"]
        assert placement.target_dir(case["root"], case["task_id"]) == posixpath.dirname(case["expect"])

    @pytest.mark.parametrize("stem", VECTORS["unsafe_stems"])
    def test_an_unsafe_stem_is_refused(self, stem: str) -> None:
        """A name that is no plain file name is no stem, no part name and no id."""
        with pytest.raises(InvalidKey):
            check_file_name(stem)
        with pytest.raises(InvalidKey):
            ProjectionPlacement.DEFAULT.target_path("/base", "ST-1", stem)
        with pytest.raises(InvalidKey):
            ProjectionPlacement.DEFAULT.target_dir("/base", stem)

    def test_no_part_of_the_file_is_left_out(self) -> None:
        """A vector that nobody runs is a defect."""
        sections = {"about", "from_spec", "resolve_root", "target_path", "unsafe_stems", "unsafe_stems_about"}
        assert VECTORS.keys() == sections
        assert {key for case in VECTORS["from_spec"] for key in case} == {"spec", "expect", "error", "names", "why"}
        keys = {"preference", "work_dir", "project_root", "expect", "why"}
        assert {key for case in VECTORS["resolve_root"] for key in case} == keys
        keys = {"dir_template", "root", "task_id", "stem", "expect"}
        assert {key for case in VECTORS["target_path"] for key in case} == keys


class TestSpec:
    """What a Blueprint may say about placement."""

    @pytest.mark.parametrize(
        ("spec", "reason", "sentence"),
        [
            (
                {"dir": "x"},
                "unknown_field",
                "projection_placement.dir is no field of it: the fields are root and dir_template",
            ),
            ({"root": 5}, "invalid_root", 'projection_placement.root must be one of work_dir, project_root, not "5"'),
            ({"root": ["work_dir"]}, "invalid_root", None),
            ({"dir_template": 5}, "invalid_dir_template", "projection_placement.dir_template must be a string"),
            ({"dir_template": "{task_id}\ud800"}, "invalid_dir_template", None),
            ({"dir_template": "{task_id}\n"}, "invalid_dir_template", None),
            ({"dir_template": "C:/{task_id}"}, "absolute_path", None),
            ({"dir_template": "c:{task_id}"}, "absolute_path", None),
            ({"dir_template": "\\\\host\\{task_id}"}, "absolute_path", None),
            ({"dir_template": "{task_id}/.."}, "parent_dir_component", None),
        ],
    )
    def test_what_could_not_be_followed_safely_is_refused(self, spec: Any, reason: str, sentence: str | None) -> None:
        """Beyond the vectors: unknown fields, wrong types, drives and network roots."""
        with pytest.raises(InvalidPlacement) as caught:
            ProjectionPlacement.from_spec(spec)
        assert caught.value.reason == reason
        assert sentence is None or caught.value.sentence == sentence

    def test_a_null_says_nothing(self) -> None:
        """A field that is null is as in the default."""
        assert ProjectionPlacement.from_spec({"root": None, "dir_template": None}) == ProjectionPlacement.DEFAULT
        assert ProjectionPlacement() == ProjectionPlacement.DEFAULT

    @given(st.dictionaries(st.sampled_from(["root", "dir_template", "x"]), json_values | templates))
    def test_any_spec_is_a_placement_or_a_fault(self, spec: dict[str, Any]) -> None:
        """No spec makes reading it fail in another way, and a fault is told on one line."""
        fault = find_fault(spec)
        if fault is None:
            ProjectionPlacement.from_spec(spec)
        else:
            with pytest.raises(InvalidPlacement) as caught:
                ProjectionPlacement.from_spec(spec)
            assert caught.value.sentence.isprintable()

    def test_a_placement_is_frozen(self) -> None:
        """Nobody changes where the files of a running step go."""
        with pytest.raises(ValidationError):
            ProjectionPlacement.DEFAULT.dir_template = "{task_id}"  # type: ignore[misc]  # the point


class TestNames:
    """Which names may be files."""

    @pytest.mark.parametrize(
        ("name", "reason"),
        [
            ("", "it is empty"),
            ("..", "it names a directory"),
            ("a/b", "it holds a path separator"),
            ("a\\b", "it holds a path separator"),
            ("a\x7fb", "it holds a control character"),
            ("a\x85b", "it holds a control character"),
            ("a\ud800", "it is no valid Unicode"),
            ("é" * 101, f"over {MAX_NAME_BYTES} bytes"),
        ],
    )
    def test_a_refusal_says_why(self, name: str, reason: str) -> None:
        """The sentence shows the name on one line and what is wrong with it."""
        with pytest.raises(InvalidKey, match=reason) as caught:
            check_file_name(name)
        assert caught.value.sentence.isprintable()

    @pytest.mark.parametrize(
        "name", ["a", "...", "..a", "a.", " ", "-", "audit:planner", "計画", "é" * 100, "a%2Fb", "CON"]
    )
    def test_any_other_name_is_a_file_name(self, name: str) -> None:
        """What a file system takes as one plain name is let through, unchanged."""
        assert check_file_name(name) == name

    @given(templates, file_names, file_names)
    def test_a_target_never_leaves_its_directory(self, template: str, task_id: str, stem: str) -> None:
        """Whatever the template, the id and the name: refused, or a file directly in the directory below the root."""
        try:
            placement = ProjectionPlacement.from_spec({"dir_template": template})
            directory = placement.target_dir("/base/", task_id)
            target = placement.target_path("/base/", task_id, stem)
        except (InvalidPlacement, InvalidKey):
            return
        assert posixpath.normpath(target) == target
        assert posixpath.dirname(target) == directory
        assert directory.startswith("/base/")
        assert directory == "/base/" + "/".join(placement.relative_dir(task_id))
        assert len(posixpath.basename(target).encode()) <= MAX_NAME_BYTES + len(".md")

    def test_a_root_may_be_the_root(self) -> None:
        """A slash at the end of the root is no component."""
        assert ProjectionPlacement.DEFAULT.target_dir("/", "ST-1") == "/workspace/tasks/ST-1/ctx"


class TestDiskNames:
    """Names as the least telling disk compares them."""

    @given(name=st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
    def test_whatever_is_one_file_somewhere_compares_as_one(self, name: str) -> None:
        """Case, composition, and dots and spaces at the end change nothing, in whatever order they are changed."""
        for other in (normalize("NFD", name).casefold(), normalize("NFC", name), normalize("NFD", name), f"{name}. "):
            assert disk_name(other) == disk_name(name)

    @pytest.mark.parametrize("name", ["NUL", "con.md", "Com1", "lpt\u00b9.x", "aux .x", "conin$", "PRN. "])
    def test_a_device_is_one_with_whatever_ending(self, name: str) -> None:
        """Windows opens the device whatever stands behind a dot, and whatever the case."""
        assert is_device(name)

    @pytest.mark.parametrize("name", ["console", "com10", "com", "null", "x.con", "...", ""])
    def test_a_name_that_begins_like_a_device_is_none(self, name: str) -> None:
        """Only the whole of what stands before the first dot counts."""
        assert not is_device(name)
