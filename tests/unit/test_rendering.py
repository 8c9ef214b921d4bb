"""Rendering: equal values are equal bytes, and bytes read back as the value."""

import hashlib
import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import orjson
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from app.domain import rendering
from app.domain.errors import IndentedTooLarge, ProjectionSerialize
from app.domain.rendering import (
    PREVIEW_BYTES,
    Narrowing,
    artifact_type,
    compact_json,
    content_path,
    content_url,
    count_indentation,
    etag_of,
    preview_of,
    quote_segment,
    read_submission,
    render_json,
    render_submission,
    require_renderable,
    sha256_hex,
    steps_path,
    text_bytes,
)
from app.domain.values import parse_json
from tests.unit.strategies import any_text, deep_values, json_values, orjson_values, unicode_text

VECTOR_DIR = Path(__file__).parents[1] / "vectors"
BODIES = json.loads((VECTOR_DIR / "bodies.json").read_text(encoding="utf-8"))
PREVIEWS = json.loads((VECTOR_DIR / "preview.json").read_text(encoding="utf-8"))
URLS = json.loads((VECTOR_DIR / "content_url.json").read_text(encoding="utf-8"))


def front_matter(step: str, attempt: int = 1, ok: bool = True) -> dict[str, Any]:
    """The front matter of a submission file."""
    return {"task_id": "ST-0123456789abcdef", "step": step, "attempt": attempt, "ok": ok}


class TestVectors:
    """tests/vectors/bodies.json, preview.json and content_url.json."""

    @pytest.mark.parametrize("case", BODIES["json"], ids=range(len(BODIES["json"])))
    def test_a_body_is_these_very_bytes(self, case: dict[str, Any]) -> None:
        """A value renders to the bytes, size and digest of its vector."""
        body = render_json(case["value"])
        assert body == case["body"].encode()
        assert (len(body), sha256_hex(body)) == (case["size_bytes"], case["sha256"])

    @pytest.mark.parametrize("case", BODIES["submission_files"], ids=lambda case: case["key"]["step"])
    def test_a_submission_file_is_these_very_bytes(self, case: dict[str, Any]) -> None:
        """A Final's file is the bytes of its vector, and reads back."""
        body = render_submission({**case["key"], "attempt": case["attempt"], "ok": case["ok"]}, case["value"])
        assert body == case["file"].encode()
        assert sha256_hex(body) == case["sha256"]
        assert parse_json(read_submission(body)) == case["value"]

    @pytest.mark.parametrize("value", BODIES["round_trip"], ids=range(len(BODIES["round_trip"])))
    def test_a_submission_file_reads_back(self, value: Any) -> None:
        """Fences, rules and blank text inside a value survive the file."""
        assert parse_json(read_submission(render_submission(front_matter("planner"), value))) == value

    @pytest.mark.parametrize("case", PREVIEWS["cases"], ids=range(len(PREVIEWS["cases"])))
    def test_a_preview_is_this_very_text(self, case: dict[str, Any]) -> None:
        """A body previews as its vector says."""
        assert preview_of(case["body"].encode()) == (case["preview"], case["truncated"])

    @pytest.mark.parametrize("case", URLS["cases"], ids=lambda case: case["expect"])
    def test_a_content_url_is_this_very_text(self, case: dict[str, Any]) -> None:
        """A name, its run and its path make the URL of the vector."""
        path = content_path(case["task_id"], case["run_id"], case["name"], Narrowing(path=case["path"]))
        assert content_url(case["base_url"], path) == case["expect"]

    def test_no_part_of_the_files_is_left_out(self) -> None:
        """A vector that nobody runs is a defect."""
        assert BODIES.keys() == {"about", "json", "submission_files", "round_trip"}
        assert PREVIEWS.keys() == {"about", "cases"}
        assert URLS.keys() == {"about", "cases"}
        assert {key for case in BODIES["json"] for key in case} == {"value", "body", "size_bytes", "sha256"}
        assert {key for case in PREVIEWS["cases"] for key in case} == {"body", "preview", "truncated"}
        keys = {"base_url", "task_id", "run_id", "name", "path", "expect"}
        assert {key for case in URLS["cases"] for key in case} == keys


class TestJson:
    """Values as bytes."""

    @given(json_values | deep_values)
    def test_rendered_json_is_the_value(self, value: Any) -> None:
        """Both forms parse back to an equal value, huge integers, lone surrogates and deep nesting included."""
        for body in (render_json(value), compact_json(value)):
            again = parse_json(body)
            assert again == value
            assert render_json(again) == render_json(value)

    @given(orjson_values)
    def test_both_renderers_agree(self, value: Any) -> None:
        """What orjson can render, our own renderer renders to the same bytes, in both forms."""
        indented = orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS)
        assert render_json(value) == rendering._render_any(value, "\n").encode() == indented
        assert compact_json(value) == rendering._render_any(value, "").encode() == orjson.dumps(value)

    @given(st.dictionaries(any_text, json_values, max_size=6), st.randoms())
    def test_the_order_of_keys_does_not_matter(self, value: dict[str, Any], random: Any) -> None:
        """Equal objects are equal bytes; in the compact form the order is kept."""
        keys = list(value)
        random.shuffle(keys)
        shuffled = {key: value[key] for key in keys}
        assert render_json(shuffled) == render_json(value)
        assert list(parse_json(compact_json(shuffled))) == keys

    @given(json_values)
    def test_a_rendering_is_utf_8_that_any_reader_takes(self, value: Any) -> None:
        """The standard library reads our bytes as the same value; compact JSON is one line."""
        assert json.loads(render_json(value)) == value
        assert b"\n" not in compact_json(value)

    @pytest.mark.parametrize("value", [{1: 2}, {"a": object()}, object(), {"a": {None: 1}}, {"a": 1 + 2j}, [b"x"]])
    def test_what_is_no_json_value_is_refused(self, value: Any) -> None:
        """A value that JSON cannot say raises our own error from both forms, with a huge integer beside it or not."""
        for refused in (value, [10**30, value]):
            with pytest.raises(ProjectionSerialize):
                render_json(refused)
            with pytest.raises(ProjectionSerialize):
                compact_json(refused)

    def test_a_long_integer_beside_what_orjson_can(self) -> None:
        """A Decimal is written with all its digits by both renderers."""
        digits = "7" * 5000
        assert compact_json([Decimal(digits), 1]) == f"[{digits},1]".encode()
        assert compact_json([Decimal(digits), 10**30]) == f"[{digits},{10**30}]".encode()
        assert compact_json(10**5000) == b"1" + b"0" * 5000

    def test_a_digest_is_of_the_bytes(self) -> None:
        """The digest is SHA-256 in lowercase hex, and the entity tag quotes it."""
        assert sha256_hex(b"x") == hashlib.sha256(b"x").hexdigest()
        assert etag_of("ab") == '"sha256:ab"'


class TestPreview:
    """The beginning of a body."""

    @given(st.text(max_size=700), st.integers(0, 3))
    def test_a_preview_never_splits_a_character(self, text: str, shift: int) -> None:
        """It is the longest beginning of whole characters within 512 bytes, and an ellipsis says that more follows."""
        body = ("a" * shift + text * 20)[:2000].encode()
        preview = preview_of(body)
        kept = preview.text.removesuffix("…") if preview.truncated else preview.text
        assert body.startswith(kept.encode())
        assert "\ufffd" not in kept or "\ufffd" in text
        if preview.truncated:
            following = body.decode()[len(kept)]
            assert len(kept.encode()) <= PREVIEW_BYTES < len((kept + following).encode())
            assert preview.text == kept + "…"
        else:
            assert kept.encode() == body

    @given(st.binary(max_size=1200))
    def test_any_bytes_have_a_preview(self, body: bytes) -> None:
        """A file on disk may hold anything; what is no UTF-8 shows as U+FFFD."""
        preview = preview_of(body)
        assert preview.truncated == (len(body) > PREVIEW_BYTES)
        assert len(preview.text) <= PREVIEW_BYTES + 1


class TestText:
    """String values as bytes of their own."""

    @given(any_text)
    def test_a_string_is_its_utf_8(self, text: str) -> None:
        """A string is its own UTF-8; a lone surrogate, which has none, becomes U+FFFD."""
        decoded = text_bytes(text).decode()
        assert re.sub("\ufffd+", "\ufffd", decoded) == re.sub("[\ud800-\udfff\ufffd]+", "\ufffd", text)

    @given(unicode_text)
    def test_valid_text_is_untouched(self, text: str) -> None:
        """Text that UTF-8 can carry is carried exactly."""
        assert text_bytes(text) == text.encode()

    @pytest.mark.parametrize(
        ("name", "expect"),
        [
            ("a.md", "text/markdown; charset=utf-8"),
            ("A.MD", "text/markdown; charset=utf-8"),
            ("a.json", "application/json"),
            ("a.Json", "application/json"),
            ("a", "text/plain; charset=utf-8"),
            ("md", "text/plain; charset=utf-8"),
            ("a.html", "text/plain; charset=utf-8"),
        ],
    )
    def test_the_ending_names_the_type(self, name: str, expect: str) -> None:
        """A part is Markdown or JSON by its ending, else plain text: never anything that a browser runs."""
        assert artifact_type(name) == expect


class TestUrls:
    """Where a name is served."""

    @given(unicode_text, unicode_text, st.none() | unicode_text)
    def test_a_content_path_carries_any_name(self, run_id: str, name: str, path: str | None) -> None:
        """Name and path come out of the URL as they went in, and add no segment and no query to it."""
        url = urlsplit("http://h" + content_path("T-1", run_id, name, Narrowing(path=path)))
        parts = url.path.split("/")
        assert [unquote(part, errors="strict") for part in parts] == (
            ["", "v1", "tasks", "T-1", "runs", run_id, "steps", name, "content"]
        )
        assert not {".", ".."} & set(parts)
        assert url.fragment == ""
        expect = {} if path is None else {"path": [path]}
        assert parse_qs(url.query, keep_blank_values=True, errors="strict") == expect

    def test_a_narrowing_is_in_the_query(self) -> None:
        """What narrowed a value is in its URL, in one order, and what is absent is not."""
        narrowing = Narrowing(path="$.a", format="raw", attempt=2, occurrence=1)
        url = content_path("T-1", "R-1", "p", narrowing)
        assert url == "/v1/tasks/T-1/runs/R-1/steps/p/content?path=%24.a&format=raw&attempt=2&occurrence=1"
        assert steps_path("T-1", "R-1") == "/v1/tasks/T-1/runs/R-1/steps"

    @pytest.mark.parametrize(
        ("text", "expect"), [(".", "%2E"), ("..", "%2E%2E"), ("...", "..."), ("a~b_c-d.e", "a~b_c-d.e")]
    )
    def test_a_dot_name_is_encoded_whole(self, text: str, expect: str) -> None:
        """No client takes a name for a step up the tree."""
        assert quote_segment(text) == expect


class TestSubmissionFiles:
    """The file of a Final."""

    @given(json_values | deep_values, any_text, st.integers(), st.booleans())
    def test_any_value_under_any_name_reads_back(self, value: Any, step: str, attempt: int, ok: bool) -> None:
        """The value comes out as rendered, and YAML reads the front matter as the same scalars."""
        matter = front_matter(step, attempt, ok)
        body = render_submission(matter, value)
        assert read_submission(body) == render_json(value)
        _, header, _ = body.split(b"---\n", 2)
        assert yaml.safe_load(header) == matter

    @pytest.mark.parametrize(
        "step", ["yes", "No", "null", "~", "1", "1.5", "0x1f", "a: b", "-", "# x", "\x7f", "\x85", "=", "a"]
    )
    def test_a_name_that_yaml_would_misread_is_quoted(self, step: str) -> None:
        """A step's name is a string in the front matter, whatever word it is."""
        header = render_submission(front_matter(step), None).split(b"---\n")[1]
        assert yaml.safe_load(header)["step"] == step

    def test_other_scalars_are_json(self) -> None:
        """A null and a number are written as YAML and JSON both write them."""
        header = render_submission({"a": None, "b": 2.5}, None).split(b"---\n")[1]
        assert header == b"a: null\nb: 2.5\n"

    def test_a_file_that_somebody_edited_reads_back(self) -> None:
        """White space after the fence changes nothing."""
        body = render_submission(front_matter("a"), {"x": 1})
        assert parse_json(read_submission(body + b"\n \n")) == {"x": 1}

    @pytest.mark.parametrize("body", [b"", b"---\n---\n", b"\n```json\n1", b"a\n```\nb", b"\n```\n\n```json\n"])
    def test_a_file_without_its_fence_is_refused(self, body: bytes) -> None:
        """What is no submission file is an error, never a wrong value."""
        with pytest.raises(ProjectionSerialize, match="no ```json fence"):
            read_submission(body)


class TestIndentation:
    """What two spaces a level may come to."""

    @given(json_values | deep_values)
    def test_it_is_counted_without_rendering(self, value: Any) -> None:
        """The count is that of the rendering, whatever the value."""
        lines = re.findall(rb"^ +", render_json(value), re.MULTILINE)
        assert count_indentation(value) == (sum(map(len, lines)), len(lines))

    def test_what_is_deep_and_much_is_refused(self) -> None:
        """A megabyte of brackets that would render to 160 MB is refused, with both sizes; shallow data never is."""
        deep: Any = []
        for _ in range(400):
            deep = [deep]
        require_renderable([deep] * 10)
        with pytest.raises(IndentedTooLarge) as refused:
            require_renderable([deep] * 500)
        assert refused.value.details["size_bytes"] > refused.value.details["limit_bytes"] == 32 * 1024 * 1024
        rows = [{"id": number, "tags": [[1, 2], [3]]} for number in range(300_000)]
        assert count_indentation(rows)[0] > 10_000_000
        require_renderable(rows)
