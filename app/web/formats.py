"""Formats: sizes, times and counts as a person reads them.

The invariant: nothing is told more exactly than it is, and the exact value stands beside it for whoever asks.
"""

_SECOND_MS = 1000
_MINUTE_MS = 60 * _SECOND_MS
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS
_SIXTY = 60
_KIB = 1024

_MOST_STEPS = 5
_MOST_TIMES = 50
# Each step with the unit that it is told in, and the word of that.
_STEPS = [
    *((step, 1, "ms") for step in (1, 2, 5, 10, 20, 50)),
    *((step, _SECOND_MS, "s") for step in (100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000)),
    *((step * _MINUTE_MS, _MINUTE_MS, "m") for step in (1, 2, 5, 10, 20)),
    *((step * _HOUR_MS, _HOUR_MS, "h") for step in (1, 2, 5, 10)),
    *((step * _DAY_MS, _DAY_MS, "d") for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)),
]


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
    """Write a number of milliseconds, rounded: ``640 ms``, ``1.4 s``, ``3 m 05 s``, ``2 h 10 m``, ``3 d 4 h``."""
    if elapsed_ms < _SECOND_MS:
        return f"{elapsed_ms} ms"
    if (tenths := _rounded(elapsed_ms, _SECOND_MS // 10)) < 10 * _SIXTY:
        return f"{tenths / 10:.1f} s"
    if (seconds := _rounded(elapsed_ms, _SECOND_MS)) < _SIXTY**2:
        return f"{seconds // _SIXTY} m {seconds % _SIXTY:02} s"
    if (minutes := _rounded(elapsed_ms, _MINUTE_MS)) < _DAY_MS // _MINUTE_MS:
        return f"{minutes // _SIXTY} h {minutes % _SIXTY:02} m"
    days, hours = divmod(_rounded(elapsed_ms, _HOUR_MS), _DAY_MS // _HOUR_MS)
    return f"{days} d {hours} h"


def _rounded(elapsed_ms: int, unit_ms: int) -> int:
    """Count units, a half one as a whole: as the scripts do, where Python's own rounding goes to the even number."""
    return (elapsed_ms + unit_ms // 2) // unit_ms


def round_times(total_ms: int) -> list[tuple[int, str]]:
    """List a few round times from 0 to a total, in milliseconds and in words: ``0``, ``0.5 s``, ``1 s``, ``1.5 s``.

    The step between them is 1, 2 or 5 of a unit that people count in, or ten times that; five at most
    reach the total, unless that is of many years.
    """
    fitting = (step for step in _STEPS if step[0] * _MOST_STEPS >= total_ms)
    step_ms, unit_ms, word = next(fitting, _STEPS[-1])
    return [(at, f"{at / unit_ms:g} {word}" if at else "0") for at in range(0, total_ms + 1, step_ms)][:_MOST_TIMES]


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
