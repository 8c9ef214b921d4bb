"""Comparing: what differs between two values, by path, and between two texts, by line.

The invariant: nothing differs if and only if the two render to the same bytes; what is left out is counted.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Literal, NamedTuple

from app.domain.outline import preview_line
from app.domain.paths import Segment, format_path
from app.domain.rendering import render_json
from app.domain.values import JsonValue

MOST_CHANGES = 200
MOST_LINES = 1_000
"""How many lines of each side are compared: the search for what they share may take the square of it."""

_MOST_PAIRS = 30_000
"""How many pairs of equal lines are looked at one by one: each may be looked at again for every line."""

CONTEXT_LINES = 3
LINE_CHARS = 400
"""How much of a line is shown."""


class Change(NamedTuple):
    """A path at which two values differ; a side that has nothing there is None."""

    kind: Literal["added", "removed", "changed"]
    path: str
    before: str | None
    after: str | None


class Changes(NamedTuple):
    """Where two values differ: the first of the paths, and the number of all."""

    shown: list[Change]
    total: int


def list_changes(before: JsonValue, after: JsonValue, most: int = MOST_CHANGES) -> Changes:
    """List the paths at which a value became another, in the order of the rendered JSON.

    Objects are compared by key, arrays by index; where a whole object or array came or went, its own path is told.
    """
    shown: list[Change] = []
    total = 0
    for path, old, new in _differing(before, after):
        total += 1
        if len(shown) < most:
            shown.append(_change(path, old, new))
    return Changes(shown, total)


class DiffLine(NamedTuple):
    """One line of a diff; a number is that of the line on its side, from 1, None on the side that lacks it."""

    kind: Literal["same", "removed", "added", "gap"]
    before: int | None
    after: int | None
    text: str


class LineDiff(NamedTuple):
    """What differs between two texts, with some lines around, and how many lines of each were not compared."""

    lines: list[DiffLine]
    added: int
    removed: int
    left_out_before: int
    left_out_after: int


def diff_lines(before: str, after: str) -> LineDiff:
    """Compare two texts line by line.

    What they begin and end with alike is found at once; of the rest between, the first ``MOST_LINES`` lines of each
    side are compared.
    """
    old, new = before.split("\n"), after.split("\n")
    head = _shared(old, new)
    tail = _shared(old[head:][::-1], new[head:][::-1])
    middle_old, middle_new = old[head : len(old) - tail], new[head : len(new) - tail]
    left_out = len(middle_old[MOST_LINES:]), len(middle_new[MOST_LINES:])
    whole: list[tuple[str, int, int, int, int]] = [("equal", 0, head, 0, head)] if head else []
    found = _opcodes(middle_old[:MOST_LINES], middle_new[:MOST_LINES])
    whole += [(tag, a + head, b + head, c + head, d + head) for tag, a, b, c, d in found]
    if tail and not any(left_out):
        whole.append(("equal", len(old) - tail, len(old), len(new) - tail, len(new)))
    lines = list(_with_context(whole, old, new))
    kinds = [line.kind for line in lines]
    return LineDiff(lines, kinds.count("added"), kinds.count("removed"), *left_out)


# --- values ----------------------------------------------------------------------------------------


class _Nothing:
    """Stands where a side has no value: None is one."""


_NOTHING = _Nothing()
_Differing = tuple[tuple[Segment, ...], JsonValue, JsonValue]


def _differing(before: JsonValue, after: JsonValue) -> Iterator[_Differing]:
    """Yield each outermost path at which the two differ. Without recursion: values nest hundreds of levels deep."""
    waiting: list[_Differing] = [((), before, after)]
    while waiting:
        path, old, new = waiting.pop()
        if isinstance(old, dict) and isinstance(new, dict):
            keys = sorted(old.keys() | new.keys(), reverse=True)
            waiting += [((*path, key), old.get(key, _NOTHING), new.get(key, _NOTHING)) for key in keys]
        elif isinstance(old, list) and isinstance(new, list):
            waiting += [
                ((*path, index), _item(old, index), _item(new, index))
                for index in reversed(range(max(len(old), len(new))))
            ]
        elif not _is_same(old, new):
            yield path, old, new


def _item(items: list[JsonValue], index: int) -> JsonValue:
    return items[index] if index < len(items) else _NOTHING


def _is_same(old: JsonValue, new: JsonValue) -> bool:
    """Compare two values, not both of them objects or arrays: ``1``, ``1.0`` and ``true`` are equal to Python alone."""
    if type(old) is not type(new) or isinstance(old, dict | list):
        return False
    return repr(old) == repr(new) if isinstance(old, float) else bool(old == new)


def _change(path: tuple[Segment, ...], old: JsonValue, new: JsonValue) -> Change:
    kind: Literal["added", "removed", "changed"] = "changed"
    if old is _NOTHING or new is _NOTHING:
        kind = "added" if old is _NOTHING else "removed"
    return Change(kind, format_path(path), _preview(old), _preview(new))


def _preview(value: JsonValue) -> str | None:
    return None if value is _NOTHING else preview_line(render_json(value)).text


# --- lines -----------------------------------------------------------------------------------------


def _opcodes(old: list[str], new: list[str]) -> Sequence[tuple[str, int, int, int, int]]:
    """Find what two lists of lines share. Where lines recur a lot, the frequent ones are no starting points."""
    counts = Counter(new)
    is_cheap = sum(counts[line] for line in old) <= _MOST_PAIRS
    return SequenceMatcher(None, old, new, autojunk=not is_cheap).get_opcodes()


def _shared(old: Sequence[str], new: Sequence[str]) -> int:
    """Count the lines that both begin with."""
    shared = 0
    for left, right in zip(old, new, strict=False):
        if left != right:
            break
        shared += 1
    return shared


def _with_context(
    whole: list[tuple[str, int, int, int, int]], old: Sequence[str], new: Sequence[str]
) -> Iterator[DiffLine]:
    for place, (tag, old_from, old_to, new_from, new_to) in enumerate(whole):
        if tag == "equal":
            kept_before = CONTEXT_LINES if place > 0 else 0
            kept_after = CONTEXT_LINES if place < len(whole) - 1 else 0
            yield from _same(old, (old_from, old_to), new_from - old_from, kept_before, kept_after)
            continue
        yield from (DiffLine("removed", at + 1, None, _cut(old[at])) for at in range(old_from, old_to))
        yield from (DiffLine("added", None, at + 1, _cut(new[at])) for at in range(new_from, new_to))


def _same(
    old: Sequence[str], span: tuple[int, int], shift: int, kept_before: int, kept_after: int
) -> Iterator[DiffLine]:
    """Give the lines of a shared stretch that stand next to a change, and a gap for the others."""
    start, end = span
    for at in range(start, end):
        if at < start + kept_before or at >= end - kept_after:
            yield DiffLine("same", at + 1, at + 1 + shift, _cut(old[at]))
        elif at == start + kept_before:
            hidden = end - start - kept_before - kept_after
            yield DiffLine("gap", None, None, f"{hidden:,} equal line{'' if hidden == 1 else 's'}")


def _cut(line: str) -> str:
    return line if len(line) <= LINE_CHARS else f"{line[:LINE_CHARS]}… ({len(line):,} characters)"
