"""``stepplane blueprint check``: what is wrong with a Blueprint, and where in its file."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from app.cli import main

_STEP = {"kind": "step", "ref": "plan", "in": {"op": "path", "at": "$.in"}, "out": {"op": "path", "at": "$.draft"}}
_YAML = """\
id: house
flow:
  kind: seq
  children:
    - kind: step
      ref: plan
      in: {op: path, at: $.goal}
      out: {op: path, at: $.draft}
    - kind: step
      ref: build
      in: {op: path, at: $.draft}
      out: {op: path, at: $.house}
agents:
  - name: plan
    meta: {projection_name: the plan}
"""


class Check:
    """Runs the command on a file of this content."""

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        self._folder = folder
        self._capture = capture

    def __call__(self, content: str | bytes, name: str = "bp.yaml", status: int = 0) -> list[str]:
        path = self._folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(SystemExit) as ended:
            main(["blueprint", "check", str(path)])
        told = self._capture.readouterr()
        assert (ended.value.code, told.err) == (status, "")
        return [line.removeprefix(f"{path}:") for line in told.out.splitlines()]


@pytest.fixture
def check(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Check:
    return Check(tmp_path, capfd)


def _of(flow: Any, **fields: Any) -> str:
    return json.dumps({"id": "bp", "flow": flow, **fields})


def test_a_good_one_names_its_steps(check: Check) -> None:
    """One line says that it is good, and what each step is called, aliases included."""
    assert check(_YAML) == [" OK, 2 steps: the plan (also draft, plan), build (also house)"]
    assert check(_of(_STEP), "bp.json") == [" OK, 1 step: plan (also draft)"]
    assert check('{"id": "x", "flow": {"kind": "seq", "children": []}}') == [" OK, 0 steps"]


@pytest.mark.parametrize(
    ("line", "column", "wrong", "finding"),
    [
        (4, 3, "  chidren:", "$.flow.chidren is no known field; the nearest is"),
        (6, 7, "      ref: 7", "$.flow.children[0].ref must be a string, not a number"),
        (7, 22, "      in: {op: path, at: goal}", "$.flow.children[0].in.at must be a path such as"),
        (15, 12, "    meta: {projection_nam: x}", "$.agents[0].meta.projection_nam is no known field; the nearest is"),
        (1, 1, "name: house", "$.name is no known field"),
    ],
)
def test_a_finding_of_yaml_says_where(check: Check, line: int, column: int, wrong: str, finding: str) -> None:
    """Each finding has the line and column of what it is about, and its JSON path."""
    lines = _YAML.splitlines()
    lines[line - 1] = wrong
    told = check("\n".join(lines), status=1)
    assert any(each.startswith(f"{line}:{column}: error: {finding}") for each in told), told


def test_every_finding_is_told_in_json_too(check: Check) -> None:
    """A JSON file is told by line and column as well, whatever its white space, and each fault of it at once."""
    text = (
        '{\n\t"id": "x",\r\n\t"flow" : {"kind":\n"seq", "children": [ {"kind": "stp"},\n  []\n]},\n'
        '"agents": [{"nam\\u0065": 1}]}'
    )
    told = check(text, "bp.json", status=1)
    assert told[0].startswith("4:23: error: $.flow.children[0].kind must be one of step, seq,")
    assert told[1:] == [
        "5:3: error: $.flow.children[1] must be an object, not an array",
        "7:13: error: $.agents[0].name must be a string, not a number",
    ]


def test_what_is_missing_is_told_where_it_should_be(check: Check) -> None:
    """A field that is missing is told at the object that lacks it."""
    told = check("id: x\nflow:\n  kind: seq\n  children:\n  - kind: step\n    ref: a\n", status=1)
    assert [line.partition(" error: ")[0] for line in told] == ["5:5:", "5:5:"]
    assert [line.split()[2:] for line in told] == [
        ["$.flow.children[0].in", "is", "missing"],
        ["$.flow.children[0].out", "is", "missing"],
    ]


def test_a_collision_is_an_error_at_the_second_step(check: Check) -> None:
    """Two steps that claim one name, one of which declares it, are an error where the flow has the second."""
    told = check(_YAML.replace("the plan", "house"), status=1)
    assert [line.partition(" the steps ")[0] for line in told] == ["10:7: error: $.flow.children[1].ref"]


def test_a_warning_is_shown_and_is_no_error(check: Check) -> None:
    """What is odd is shown at its place, and the exit status is that of a good one."""
    warning, ok = check(_YAML.replace("$.house", "$.draft").replace("projection_name: the plan", ""))
    assert warning.startswith('10:7: warning: $.flow.children[1].ref the steps "plan" and "build" both claim')
    assert ok == " OK, 2 steps: plan (also draft), build"


@pytest.mark.parametrize("kind", ["branch", "try", "loop", "fanout"])
def test_a_step_is_found_inside_every_node(check: Check, kind: str) -> None:
    """The place of a step is found wherever in the flow it stands."""
    place = {"op": "path", "at": "$.x"}
    other = {**_STEP, "ref": "other"}
    node, field = {
        "branch": ({"kind": "branch", "cond": place, "then": _STEP, "else": other}, "else"),
        "try": ({"kind": "try", "body": _STEP, "catch": other}, "catch"),
        "loop": ({"kind": "loop", "counter": place, "cond": place, "max": 1, "body": other}, "body"),
        "fanout": ({"kind": "fanout", "items": place, "bind": place, "join": 1, "out": place, "body": other}, "body"),
    }[kind]
    told = check(_of({"kind": "seq", "children": [_STEP, node]}))
    assert f"warning: $.flow.children[1].{field}.ref the steps" in told[0]


def test_a_task_file_is_checked_as_its_task_would_be(check: Check) -> None:
    """The file of a task, and a Blueprint that is wrapped as inline, are told by the places of the file."""
    task = {"goal": "g", "blueprint": {"kind": "inline", "value": {"id": "bp", "flow": _STEP}}}
    assert check(json.dumps(task)) == [" OK, 1 step: plan (also draft)"]
    task["blueprint"] = {"id": 7, "flow": _STEP}
    assert check(json.dumps(task), status=1) == ["1:29: error: $.blueprint.id must be a string, not a number"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ('{"id": "x",\n "flow": ', "2:10: error: $ this is not JSON:"),
        ("a: [1\nb: 2", "2:2: error: $ this is not YAML:"),
        ("a: &x [*x]", "1:1: error: $ the body nests deeper than 200 levels"),
        (f'{{"a": {"[" * 201}{"]" * 201}}}', "1:1: error: $ the body nests deeper than 200 levels"),
        ("<<: {a: 1}", "1:1: error: $ this is not YAML:"),
        (b"id: \xff", "1:1: error: $ is not UTF-8:"),
        ("[]", "1:1: error: $ must be an object, not an array"),
        ("", "1:1: error: $ must be an object, not null"),
        ("# nothing\n", "1:1: error: $ must be an object, not null"),
    ],
)
def test_what_is_no_document_says_so(check: Check, content: str | bytes, told: str) -> None:
    """What is neither JSON nor YAML, or no object, is one finding, at the place where reading it ended."""
    (line,) = check(content, status=1)
    assert line.startswith(told)


def test_standard_input_is_a_file_too(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """``-`` reads standard input, and is called so."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(_YAML.encode())))
    with pytest.raises(SystemExit) as ended:
        main(["blueprint", "check", "-"])
    assert (ended.value.code, capfd.readouterr().out.partition(":")[0]) == (0, "standard input")
