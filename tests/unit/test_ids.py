"""Ids and names: what ours look like, and what is well-formed on input."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain import ids
from app.domain.errors import InvalidId, InvalidName
from app.domain.ids import MAX_NAME_BYTES, check_id, check_name, is_name, is_output_id
from tests.unit.strategies import any_text

KINDS = {"task": "T-", "run": "R-", "step": "ST-", "output": "out-"}
NEW = {"task": ids.new_task_id, "run": ids.new_run_id, "step": ids.new_step_id, "output": ids.new_output_id}


@pytest.mark.parametrize(("kind", "prefix"), KINDS.items())
def test_a_new_id_is_random_and_well_formed(kind: str, prefix: str) -> None:
    """An id is its prefix and 16 lowercase hex digits, and no two are the same."""
    made = {NEW[kind]() for _ in range(1000)}
    assert len(made) == 1000
    assert all(re.fullmatch(f"{prefix}[0-9a-f]{{16}}", one) and check_id(kind, one) == one for one in made)


def test_a_worker_handle_is_a_longer_secret() -> None:
    """A handle is ``wh-`` and 32 lowercase hex digits."""
    assert re.fullmatch("wh-[0-9a-f]{32}", ids.new_worker_handle())
    assert ids.new_worker_handle() != ids.new_worker_handle()


@given(st.sampled_from(sorted(KINDS)), st.from_regex(r"\A[A-Za-z0-9._-]{1,64}\Z"))
def test_any_id_of_the_right_form_is_taken(kind: str, tail: str) -> None:
    """Ids that another server made are well-formed too."""
    assert check_id(kind, KINDS[kind] + tail) == KINDS[kind] + tail


@given(st.sampled_from(sorted(KINDS)), any_text)
def test_any_other_text_is_no_id(kind: str, text: str) -> None:
    """What is not a prefix and 1 to 64 of the allowed characters is refused, in one line."""
    if re.fullmatch(re.escape(KINDS[kind]) + r"[A-Za-z0-9._-]{1,64}", text):
        return
    with pytest.raises(InvalidId) as caught:
        check_id(kind, text)
    assert caught.value.code == "invalid_id"
    assert caught.value.sentence.isprintable()


@pytest.mark.parametrize(
    "given_id",
    ["", "T-", "T", "t-1", "R-1", "T-" + "a" * 65, "T-a b", "T-é", "T-1\n", " T-1", "T-a/b", "T-\x00", "T-\u0661"],
)
def test_an_id_is_judged_whole(given_id: str) -> None:
    """A wrong prefix, an empty or too long tail, and any other character are refused."""
    with pytest.raises(InvalidId, match="no task id: one is 'T-'"):
        check_id("task", given_id)


@given(any_text)
def test_an_output_id_is_told_from_a_name(text: str) -> None:
    """A key is an output's id exactly when it is a well-formed one."""
    for key in (text, "out-" + text, "out-0a"):
        try:
            check_id("output", key)
        except InvalidId:
            assert not is_output_id(key)
        else:
            assert is_output_id(key)


@given(st.text(min_size=1, max_size=200))
def test_any_character_may_stand_in_a_name(name: str) -> None:
    """A name is any Unicode text."""
    assert check_name(name) == name
    assert is_name(name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "this one has 0"),
        ("é" * (MAX_NAME_BYTES // 2) + "x", f"this one has {MAX_NAME_BYTES + 1}"),
        ("ab\ud800", "lone surrogate at character 2"),
    ],
)
def test_what_no_url_can_carry_is_no_name(name: str, message: str) -> None:
    """An empty name, one over the limit and one with a lone surrogate are refused."""
    with pytest.raises(InvalidName, match=message):
        check_name(name)
    assert not is_name(name)


def test_the_longest_name_is_one() -> None:
    """The limit is counted in bytes of UTF-8, and is itself allowed."""
    longest = "é" * (MAX_NAME_BYTES // 2)
    assert check_name(longest) == longest
