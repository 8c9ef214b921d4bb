"""Slices: a long JSON text parsed a slice at a time.

The invariant: what is taken, and the value that it is, are those of ``json.loads``; a property test holds both
together.

The scanner in C holds the interpreter's lock for the whole of one call, a second for 15 MiB of short lists, and in a
thread it would hold up the event loop as if it ran there. Here its calls are short, and others run between them.
"""

import json
import re
from typing import Any

SLICE_CHARS = 32 * 1024
"""From how many characters on the items of a container are parsed, before those behind them are looked at."""


class OverBoundError(Exception):
    """The text nests deeper, or holds more values, than is taken.

    Attributes:
        is_depth: which of the two.
    """

    def __init__(self, *, is_depth: bool) -> None:
        super().__init__("depth" if is_depth else "values")
        self.is_depth = is_depth


class _Container:
    """An open container.

    Attributes:
        start: where it opens.
        since: from where on its text is not parsed yet.
        item: where its current item begins.
        items: what is parsed of it; None while all of it may yet be parsed along with what is around it.
        is_taken: whether its current item is among them.
    """

    __slots__ = ("brackets", "is_taken", "item", "items", "since", "start")

    def __init__(self, opening: str, start: int) -> None:
        self.brackets = "[]" if opening == "[" else "{}"
        self.start = start
        self.since = self.item = start + 1
        self.items: Any = None
        self.is_taken = False


def parse_sliced(
    text: str, decoder: json.JSONDecoder, *, most_depth: int, most_values: int, slice_chars: int = SLICE_CHARS
) -> Any:
    """Parse a JSON text as the decoder would, a slice at a time.

    Args:
        text: the text.
        decoder: parses each slice.
        most_depth: how deep its containers may nest.
        most_values: how many commas and containers it may hold.
        slice_chars: how long a slice is about.

    Raises:
        ValueError: it is no JSON.
        OverBoundError: it nests deeper, or holds more.
    """
    return _Slicer(text, decoder, slice_chars).parse(most_depth, most_values)


_TOKENS = re.compile(r'"(?:[^"\\]++|\\.)*+"|[\[\]{},]', re.DOTALL)


def is_well_nested(text: str) -> bool:
    """Tell whether a text that begins with a bracket ends with the one that closes it, and all between are closed."""
    expected: list[str] = []
    ends_at = 0
    for token in _TOKENS.finditer(text):
        mark = text[token.start()]
        if mark in "[{":
            expected.append("]" if mark == "[" else "}")
        elif mark in "]}":
            if not expected or expected.pop() != mark:
                return False
            ends_at = token.end()
    return not expected and ends_at == len(text.rstrip(_BLANK))


class _Slicer:
    def __init__(self, text: str, decoder: json.JSONDecoder, slice_chars: int) -> None:
        self._text = text
        self._decoder = decoder
        self._slice_chars = slice_chars
        self._open: list[_Container] = []
        self._root: Any = None

    def parse(self, most_depth: int, most_values: int) -> Any:
        """Walk the brackets and commas; what is between them the decoder judges, slice by slice."""
        for token in _TOKENS.finditer(self._text):
            at = token.start()
            mark = self._text[at]
            if mark == '"':
                continue
            if mark in "]}":
                self._end(mark, at)
                if not self._open:
                    self._require_blank(at + 1, len(self._text))
                    return self._root
                continue
            most_values -= 1
            if most_values < 0:
                raise OverBoundError(is_depth=False)
            if mark == ",":
                self._pass_comma(at)
            else:
                if len(self._open) == most_depth:
                    raise OverBoundError(is_depth=True)
                if not self._open:
                    self._require_blank(0, at)
                self._open.append(_Container(mark, at))
        return self._decoder.decode(self._text)  # a single string or number, or no JSON

    def _pass_comma(self, at: int) -> None:
        if not self._open:
            raise self._fault("Extra data", at)
        top = self._open[-1]
        if top.is_taken:
            self._require_blank(top.since, at)
            top.is_taken = False
            top.since = at + 1
        elif at - top.since >= self._slice_chars:
            self._take_items(top, at)
        top.item = at + 1

    def _end(self, mark: str, at: int) -> None:
        if not self._open or mark != self._open[-1].brackets[1]:
            raise self._fault("Expecting value", at)
        ended = self._open.pop()
        if ended.items is None and at - ended.start < self._slice_chars:
            if not self._open:
                self._root = self._decoder.decode(self._text[ended.start : at + 1])
            return  # it is parsed along with what is around it
        if ended.is_taken:
            self._require_blank(ended.since, at)
        elif ended.since > ended.start + 1 or self._text[ended.since : at].strip(_BLANK):
            self._take_items(ended, at)
        value = self._items_of(ended)
        if self._open:
            self._put(self._open[-1], value, ended.start, at + 1)
        else:
            self._root = value

    def _put(self, outer: _Container, value: Any, start: int, end: int) -> None:
        """Make what was parsed the current item of the container around it."""
        if outer.is_taken:
            raise self._fault("Expecting ',' delimiter", start)
        if outer.item > outer.since:
            self._take_items(outer, outer.item - 1)
        items = self._items_of(outer)
        if outer.brackets == "[]":
            self._require_blank(outer.item, start)
            items.append(value)
        else:
            items |= dict.fromkeys(self._decoder.decode("{" + self._text[outer.item : start] + "null}"), value)
        outer.since, outer.is_taken = end, True

    def _take_items(self, container: _Container, end: int) -> None:
        """Parse the whole items that stand before a comma or the container's end."""
        opening, closing = container.brackets[0], container.brackets[1]
        found = self._decoder.decode(opening + self._text[container.since : end] + closing)
        if not found:
            raise self._fault("Expecting value", end)
        items = self._items_of(container)
        if closing == "]":
            items.extend(found)
        else:
            items.update(found)
        container.since = end + 1

    def _items_of(self, container: _Container) -> Any:
        if container.items is None:
            container.items = [] if container.brackets == "[]" else {}
        return container.items

    def _require_blank(self, start: int, end: int) -> None:
        if self._text[start:end].strip(_BLANK):
            raise self._fault("Expecting ',' delimiter", start)

    def _fault(self, message: str, at: int) -> ValueError:
        return json.JSONDecodeError(message, self._text, at)


_BLANK = " \t\n\r"
