"""Visible text: what is hidden shows as its escape, and what people write stays as it is."""

import unicodedata

import pytest

from app.domain.visible import visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("report\u202efdp.exe", "report\\u202efdp.exe"),
        ("\u2066a\u2069", "\\u2066a\\u2069"),
        ("build\u200b", "build\\u200b"),
        ("bu\u200dild", "bu\\u200dild"),
        ("\ufeffbuild", "\\ufeffbuild"),
        ("bu\xadild", "bu\\xadild"),
        ("build\u3164", "build\\u3164"),
        ("build\ufe0f", "build\\ufe0f"),
        ("build\U000e0062", "build\\U000e0062"),
        ("a\x00\x1b\x85", "a\\x00\\x1b\\x85"),
        ("\U0001f469\u200d", "\U0001f469\\u200d"),
    ],
)
def test_what_is_hidden_is_escaped(text: str, shown: str) -> None:
    """A character that has no shape, or turns its neighbours, stands there as its escape."""
    assert visible(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "plain\ttext\r\n",
        "計画 é שלום",
        "\u2764\ufe0f",
        "\U0001f469\U0001f3fd\u200d\U0001f4bb",
        "\U0001f3f3\ufe0f\u200d\U0001f308",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        "\u0915\u094d\u200d\u0937",
        "\\u202e",
    ],
)
def test_what_is_seen_stays(text: str) -> None:
    """Letters of all scripts stay, and so do the joiners that make an emoji or the shape of a letter."""
    assert visible(text) == text


def test_no_format_or_control_character_is_left() -> None:
    """Of the categories Cc and Cf only the end of a line and the tab stay, and the signs that go around a number."""
    left = {
        code
        for code in range(0x110000)
        if unicodedata.category(chr(code)) in {"Cc", "Cf"} and visible(f"a{chr(code)}b") == f"a{chr(code)}b"
    }
    around_numbers = {0x600, 0x601, 0x602, 0x603, 0x604, 0x605, 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
    notation = set(range(0x13430, 0x13440))  # of Egyptian hieroglyphs, which stand under and beside each other by them
    assert left <= {9, 10, 13} | around_numbers | notation
