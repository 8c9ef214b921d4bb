"""Formats: sizes, times and counts as a person reads them.

The invariant: nothing is told more exactly than it is, and the exact value stands beside it for whoever asks.
"""

_SECOND_MS = 1000
_MINUTE_MS = 60 * _SECOND_MS
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS
_KIB = 1024


def size(size_bytes: int) -> str:
    """Write a number of bytes: ``812 B``, ``9.5 KiB``, ``2.0 MiB``."""
    if size_bytes < _KIB:
        return f"{size_bytes} B"
    amount, unit = float(size_bytes), "B"
    for unit in ("KiB", "MiB", "GiB", "TiB"):  # noqa: B007 - the loop ends on the unit that fits
        amount /= _KIB
        if amount < _KIB:
            break
    return f"{amount:.1f} {unit}" if amount < 100 else f"{amount:.0f} {unit}"  # noqa: PLR2004 - three digits are enough


def duration(elapsed_ms: int) -> str:
    """Write a number of milliseconds: ``640 ms``, ``1.4 s``, ``3 m 05 s``, ``2 h 10 m``, ``3 d 4 h``."""
    if elapsed_ms < _SECOND_MS:
        return f"{elapsed_ms} ms"
    if elapsed_ms < _MINUTE_MS:
        return f"{elapsed_ms // 100 / 10:.1f} s"
    if elapsed_ms < _HOUR_MS:
        return f"{elapsed_ms // _MINUTE_MS} m {elapsed_ms % _MINUTE_MS // _SECOND_MS:02} s"
    if elapsed_ms < _DAY_MS:
        return f"{elapsed_ms // _HOUR_MS} h {elapsed_ms % _HOUR_MS // _MINUTE_MS:02} m"
    return f"{elapsed_ms // _DAY_MS} d {elapsed_ms % _DAY_MS // _HOUR_MS} h"


def moment(at: str) -> str:
    """Write a wire time (RFC 3339, UTC) for people, with its zone; scripts turn it into local time."""
    return f"{at[:10]} {at[11:19]} UTC"


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Write a number with its noun: ``1 step``, ``2,000 steps``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def shortened(text: str, most_chars: int) -> str:
    """Cut a text that would make a page of its own; an ellipsis marks the cut."""
    return text if len(text) <= most_chars else f"{text[:most_chars]}…"


def sentence(text: str) -> str:
    """Write an error's sentence as one that stands alone: a capital first, a full stop last."""
    whole = text[:1].upper() + text[1:]
    return whole if whole.endswith((".", "!", "?")) else f"{whole}."
