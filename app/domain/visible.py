r"""Visible text: what has no shape of its own, or turns its neighbours around, written as its escape.

The invariant: two texts that differ look different, and no character of a text changes how the text beside it reads.
``build`` with a zero-width space shows as ``build\u200b``, and an override as ``report\u202efdp.exe``.
"""

import re
from re import Match


def visible(text: str) -> str:
    r"""Write each hidden character as its escape; tabs and line ends stay.

    Hidden are the control characters, and what Unicode calls Default_Ignorable: overrides and isolates of direction,
    zero-width characters, fillers, tags, variation selectors. The joiners and selectors inside an emoji stay, and so do
    joiners between letters of scripts that are written with them: those change what is seen.

    Source: Unicode, DerivedCoreProperties (Default_Ignorable_Code_Point); ``static/visible.js`` has the same.
    """
    return HIDDEN.sub(_escaped, text)


def _escaped(match: Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()


_PICTURE = "\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
_JOINED = "\u0600-\u0dff"
"""Scripts of the Middle East and of India, in which a joiner between two letters changes their shapes."""

HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
    f"|(?<![{_PICTURE}])[\ufe0e\ufe0f]"
    f"|(?!(?<=[{_PICTURE}\ufe0f])\u200d[{_PICTURE}])(?!(?<=[{_JOINED}])[\u200c\u200d][{_JOINED}])[\u200c\u200d]"
)
