"""Folding: a worker's raw body is the value it looks like, and otherwise the text that it is."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import InvalidText, NotJson, VerdictConflict
from app.domain.folding import Verdict, decode_body, fold_body, settle_verdict, trim_end
from app.domain.records import StepStatus
from tests.unit.strategies import json_values, unicode_text

WHITE_SPACE = [chr(point) for point in range(0x110000) if chr(point).isspace() and not 0x1C <= point <= 0x1F]


class TestText:
    """Bytes become text."""

    @given(unicode_text, st.text(st.sampled_from(WHITE_SPACE)))
    def test_white_space_at_the_end_is_removed(self, text: str, space: str) -> None:
        """Every character of the Unicode property White_Space goes from the end, and nothing else goes."""
        trimmed = trim_end(text + space)
        assert text.startswith(trimmed)
        assert trimmed == trim_end(trimmed + space)
        assert not trimmed or trimmed[-1] not in WHITE_SPACE
        assert set(text[len(trimmed) :]) <= set(WHITE_SPACE)

    @pytest.mark.parametrize("char", [*"\x1c\x1d\x1e\x1f", "\u200b", "\ufeff", "\u180e", "\x00"])
    def test_what_only_looks_like_white_space_stays(self, char: str) -> None:
        """Information separators and zero-width characters are text."""
        assert trim_end(f"a{char}") == f"a{char}"
        assert trim_end(f"a{char} \n") == f"a{char}"

    @given(unicode_text)
    def test_bytes_are_utf_8(self, text: str) -> None:
        """Decoding changes nothing, white space included."""
        assert decode_body(text.encode()) == text

    def test_what_is_no_utf_8_is_refused(self) -> None:
        """The refusal says where it ends to be UTF-8."""
        with pytest.raises(InvalidText, match="at byte 2"):
            decode_body(b"ab\xff")


class TestFolding:
    """Text becomes a value."""

    @pytest.mark.parametrize(
        "fence", ["{}", "```json\n{}\n```", "```\n{}\n```", "\n~~~ json\n{}\n~~~\n", "````x\n{}\n````", "  {}"]
    )
    @given(value=st.lists(json_values, max_size=3) | st.dictionaries(st.text(), json_values, max_size=3))
    def test_a_container_is_a_value(self, fence: str, value: Any) -> None:
        """A JSON object or array is that value, also inside one markdown fence."""
        assert fold_body(fence.replace("{}", json.dumps(value))) == value

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "plain",
            "1",
            "null",
            '"quoted"',
            "{not json",
            "[1,",
            "NaN",
            "```json\n1\n```",
            "```json\n{}\n```\nand more",
            "before\n```json\n{}\n```",
            "```json\n{}\n```\n```json\n{}\n```",
            "```json {} ```",
            "```\n{}\n````",
            "~~~\n{}\n```",
            "``\n{}\n``",
            "{} {}",
            "\x1c{}",
        ],
    )
    def test_anything_else_is_text(self, text: str) -> None:
        """A scalar, prose, broken JSON, and a fence with anything beside it stay as they were sent."""
        assert fold_body(text) == text
        assert fold_body(text, "unknown format") == text

    @given(json_values)
    def test_json_takes_any_value(self, value: Any) -> None:
        """With ``json`` a scalar is a value as well, in a fence or without."""
        text = json.dumps(value)
        assert fold_body(text, "json") == value
        assert fold_body(f"```json\n{text}\n```", "json") == value

    @pytest.mark.parametrize("text", ["", "plain", "[1,", "```\nx\n```"])
    def test_json_refuses_what_is_none(self, text: str) -> None:
        """With ``json`` a body that is no JSON is an error."""
        with pytest.raises(NotJson, match="submit_format: json"):
            fold_body(text, "json")

    @given(unicode_text | json_values.map(json.dumps))
    def test_text_takes_every_body_as_it_is(self, text: str) -> None:
        """With ``text`` nothing is read into a body."""
        assert fold_body(text, "text") == text

    @pytest.mark.parametrize(
        "text",
        [
            "`" * 500_000,
            "~" * 500_000 + "\n" * 500_000,
            "```" + "\n```   " * 100_000 + "x",
            " " * 500_000 + "x",
            "```\n" * 200_000,
        ],
    )
    def test_time_is_linear(self, text: str) -> None:
        """Half a megabyte of anything is judged like any other body; in quadratic time this would never end."""
        assert fold_body(text) == text


class TestVerdict:
    """What a submit says of success."""

    @pytest.mark.parametrize(
        ("ok", "verdict", "expect"),
        [
            (None, None, Verdict(ok=True, status=StepStatus.PASSED)),
            (True, None, Verdict(ok=True, status=StepStatus.PASSED)),
            (False, None, Verdict(ok=False, status=StepStatus.BLOCKED)),
            (None, "pass", Verdict(ok=True, status=StepStatus.PASSED)),
            (True, "pass", Verdict(ok=True, status=StepStatus.PASSED)),
            (None, "blocked", Verdict(ok=False, status=StepStatus.BLOCKED)),
            (False, "blocked", Verdict(ok=False, status=StepStatus.BLOCKED)),
            (None, "skip", Verdict(ok=True, status=StepStatus.SKIPPED)),
        ],
    )
    def test_ok_and_verdict_say_one_thing(self, ok: bool | None, verdict: str | None, expect: Verdict) -> None:
        """Either is enough, and saying nothing is a pass."""
        assert settle_verdict(ok=ok, verdict=verdict) == expect

    @pytest.mark.parametrize(
        ("ok", "verdict", "message"),
        [
            (False, "pass", "ok=false contradicts verdict=pass"),
            (True, "blocked", "ok=true contradicts verdict=blocked"),
            (None, "PASS", "'PASS' is no verdict"),
            (True, "", "'' is no verdict"),
        ],
    )
    def test_a_contradiction_is_refused(self, ok: bool | None, verdict: str, message: str) -> None:
        """An unknown word and two answers are errors."""
        with pytest.raises(VerdictConflict, match=message):
            settle_verdict(ok=ok, verdict=verdict)
