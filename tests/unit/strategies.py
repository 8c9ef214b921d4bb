"""Hypothesis strategies for the words of the domain: texts, JSON values, paths."""

from typing import Any

from hypothesis import strategies as st

from app.domain.values import MAX_DEPTH

any_text = st.text(st.characters())
"""Any text that a JSON string can hold, lone surrogates too."""

unicode_text = st.text()
"""Any text that UTF-8 can carry."""

names = st.text(min_size=1).filter(lambda text: text != "_ctx")
"""Names that a step may bear."""

huge_integers = st.builds(
    lambda digits, offset, sign: sign * (10**digits + offset),
    st.integers(20, 900),
    st.integers(0, 9),
    st.sampled_from([1, -1]),
)
floats = st.floats(allow_nan=False, allow_infinity=False)
orjson_leaves = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | floats | unicode_text


def _containers(items: st.SearchStrategy[Any], keys: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    return st.lists(items, max_size=5) | st.dictionaries(keys, items, max_size=5)


orjson_values = st.recursive(orjson_leaves, lambda items: _containers(items, unicode_text), max_leaves=20)
"""JSON values that orjson can render."""

json_values = st.recursive(
    orjson_leaves | huge_integers | any_text, lambda items: _containers(items, any_text), max_leaves=20
)
"""Any JSON value, not deep."""


def nested(leaf: Any, keys: list[str | None]) -> Any:
    """Wrap a value in arrays (where the key is None) and objects."""
    for key in keys:
        leaf = [leaf] if key is None else {key: leaf}
    return leaf


deep_values = st.builds(
    lambda leaf, keys, depth: nested(leaf, (keys * MAX_DEPTH)[:depth]),
    orjson_leaves | huge_integers | any_text,
    st.lists(st.none() | any_text, min_size=1, max_size=4),
    st.integers(MAX_DEPTH - 3, MAX_DEPTH),
)
"""JSON values that nest about as deep as they may."""

segments = st.lists(any_text | st.integers(-(10**100) + 1, 10**100 - 1), max_size=6).map(tuple)
"""The segments of a path."""

pathlike_text = st.lists(st.sampled_from([*'$.[]"\\-', "a", "0", '["a"]', "[0]", ".a"]) | any_text, max_size=12).map(
    "".join
)
"""Texts that are nearly paths, and some that are."""


def step(ref: str, out: Any = None) -> dict[str, Any]:
    """A step node of a flow; ``out`` is a path, or an expression as it stands."""
    where = {"op": "path", "at": out} if isinstance(out, str) else out or {"op": "lit", "value": None}
    return {"kind": "step", "ref": ref, "in": {"op": "lit", "value": 1}, "out": where}


def seq(*children: Any) -> dict[str, Any]:
    """A seq node of a flow."""
    return {"kind": "seq", "children": list(children)}


LIT = {"op": "lit", "value": True}
_few_names = st.sampled_from(["a", "b", "c", "d", "x.y"])
_outs = st.one_of(
    _few_names.map(lambda name: f'$["{name}"]'),
    st.tuples(_few_names, _few_names).map(lambda pair: f'$["{pair[0]}"]["{pair[1]}"]'),
    st.sampled_from(["$", "$[0].a", {"op": "lit", "value": 1}, {"op": "other", "at": "$.a"}]),
)
flows = st.recursive(
    st.builds(step, _few_names | names.filter(lambda name: len(name) < 100), _outs),
    lambda nodes: st.one_of(
        st.lists(nodes, max_size=6).map(lambda children: seq(*children)),
        st.builds(lambda then, other: {"kind": "branch", "cond": LIT, "then": then, "else": other}, nodes, nodes),
        st.builds(lambda body, other: {"kind": "try", "body": body, "catch": other}, nodes, nodes),
        st.builds(lambda body: {"kind": "loop", "counter": LIT, "cond": LIT, "body": body, "max": 3}, nodes),
    ),
    max_leaves=12,
)
"""Documents of flows in which names clash often."""

projection_names = st.dictionaries(_few_names, _few_names | names.filter(lambda name: len(name) < 100), max_size=3)
"""Declared names by agent, some of which clash with those of flows."""
