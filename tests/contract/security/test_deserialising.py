"""Deserialising what a client sent: JSON and safe YAML only, bounded, and a value is only a value."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api.bodies import parse_yaml
from app.domain.errors import InvalidJson, NestedTooDeep
from tests.contract.pipeline import Pipeline, code_of, parsed


class TestDeserialising:
    """Airflow CVE-2026-25917, -33858, -42359: JSON and safe YAML only."""

    @staticmethod
    async def _post(client: httpx.AsyncClient, body: bytes, kind: str = "application/yaml") -> httpx.Response:
        return await client.post("/v1/tasks", content=body, headers={"Content-Type": kind})

    async def test_no_yaml_tag_deserialises_to_an_object(self, client: httpx.AsyncClient, tmp_path: Path) -> None:
        """A tag of Python's, or one whose value does not fit it, is 400 ``invalid_json``; nothing is called."""
        target = tmp_path / "called"
        for value in (
            f"!!python/object/apply:os.system ['touch {target}']", "!!python/object:os.system x",
            "!!python/name:os.system",
            f"!!python/object/new:os.system ['touch {target}']", "!!python/module:os", "!!python/tuple [1]",
            "!custom x",
            "!!binary aGk=", "!!set {a}", "!!timestamp 2026-01-01", "!!omap [a: 1]", "!!pairs [a: 1]",
            "!!timestamp nonsense",
            "!!int nonsense", '!!int ""', "!!float nonsense", "!!bool maybe", "!!int 0x", "!!str [a]",
            "!!map [a]", "!!seq {a: 1}",
            ".nan", ".inf", "-.inf", "1" * 5_000, "@x", "`x`", "*unknown", "%x",
        ):  # fmt: skip
            answer = await self._post(client, f"task_metadata: {value}".encode())
            assert code_of(answer) == (400, "invalid_json"), value
        for body in (b"? [a, b]\n: c", b"1: x", b"null: x", b"\xff\xff", b"a: \x00", b"{", b"a: b: c", b"--- a\n--- b"):
            assert code_of(await self._post(client, body)) == (400, "invalid_json"), body
        assert not target.exists()
        assert parsed(await client.get("/v1/tasks"))["tasks"] == []

    async def test_yaml_says_what_json_says(self, client: httpx.AsyncClient) -> None:
        """Words and dates that other YAML readers make values of stay text, so that nobody is told something else."""
        body = (
            b"task_metadata: {a: yes, b: 2026-01-01, c: null, d: 1.5, e: [1, true], f: ~, g: '1', h: NO, i: =, j: 1e3}"
        )
        created = parsed(await self._post(client, body), 201)
        metadata = parsed(await client.get(f"/v1/tasks/{created['task_id']}"))["task"]["task_metadata"]
        expected = {"a": "yes", "b": "2026-01-01", "c": None, "d": 1.5, "e": [1, True], "f": None, "g": "1", "h": "NO"}
        assert {key: metadata[key] for key in expected} == expected
        assert metadata["i"] == "="

    @pytest.mark.parametrize(
        "bomb",
        [
            b"a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
            + b"".join(b"a%d: &a%d [%s]\n" % (i, i, b",".join([b"*a%d" % (i - 1)] * 10)) for i in range(1, 15)),
            b"a0: &a0 {k: v}\n"
            + b"".join(b"a%d: &a%d {<<: [%s]}\n" % (i, i, b",".join([b"*a%d" % (i - 1)] * 10)) for i in range(1, 15)),
            b"a: &a {"
            + b",".join(b"k%d: 1" % i for i in range(3_000))
            + b"}\nb: {<<: ["
            + b",".join([b"*a"] * 3_000)
            + b"]}",
            b"a: {!!merge x: {y: 1}}",
            b"a: &a '" + b"x" * 200_000 + b"'\nb: [" + b",".join([b"*a"] * 100) + b"]",
            b"a: &a {? " + b"k" * 1_000 + b" : 1}\nb: [" + b",".join([b"*a"] * 20_000) + b"]",
            b"a: &a [*a]",
            b"a: " + b"[" * 2_000,
            b"a: " + b"{a: " * 1_000 + b"1" + b"}" * 1_000,
            b"a: " + b"[" * 501 + b"1" + b"]" * 501,
        ],
        ids=[
            "laughs",
            "merges",
            "many-merges",
            "merge-tag",
            "long-text",
            "long-keys",
            "endless",
            "open",
            "deep",
            "deeper",
        ],
    )
    def test_a_bomb_does_not_go_off(self, bomb: bytes) -> None:
        """A small document that would be huge, endless or endlessly deep is refused before it is."""
        with pytest.raises((InvalidJson, NestedTooDeep)):
            parse_yaml(bomb)

    async def test_a_bomb_is_the_clients_fault(self, client: httpx.AsyncClient) -> None:
        """On the route a bomb, of YAML or of JSON, is refused with the one error shape, and the next request served."""
        for body, kind in (
            (b"a: {<<: {b: 1}}", "text/yaml; charset=utf-8"),
            (b'{"task_metadata": 1e999}', "application/json"), (b'{"task_metadata": NaN}', "application/json"),
            (b'{"a": 1}\x00', "application/json"), (b"\x80\x04\x95cposix\nsystem\n.", "application/octet-stream"),
        ):  # fmt: skip
            assert code_of(await self._post(client, body, kind)) == (400, "invalid_json"), body[:40]
        for body, kind in (
            (b"a: &a [*a]", "application/yaml"),
            (b'{"task_metadata": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "application/json"),
        ):
            assert code_of(await self._post(client, body, kind)) == (422, "nested_too_deep"), body[:40]
        assert (await self._post(client, b"{}")).status_code == 201

    async def test_a_body_made_to_be_slow_is_answered(self, client: httpx.AsyncClient) -> None:
        """No submitted text makes the search for its fence take more than linear time (it would not end else)."""
        pipeline = await Pipeline.create(client)
        dispatched = await pipeline.dispatch("ask")
        half = 1024 * 1024 - 16
        bodies = [
            "~" * half + "\n" * half,
            "`" * half + "\n" * half,
            "~~~\n" + "\n~~~x" * (half // 3),
            "```json\n" + "`" * half + "\n",
            "\n" * half + "~~~" + "\n" * (half - 99) + "~~x",
            " " * half + "{" * half,
        ]
        for body in bodies:
            await pipeline.submit(dispatched, body + ".")
            summary = await pipeline.step("ask")
            assert summary["size_bytes"] > len(body)


async def test_a_hostile_value_is_only_a_value(client: httpx.AsyncClient) -> None:
    """Values that are commands, queries or templates elsewhere come back as the bytes they were."""
    pipeline = await Pipeline.create(client)
    values: list[Any] = [
        "{{7*7}}",
        "${jndi:ldap://x}",
        "'; DROP TABLE tasks; --",
        "{% raw %}",
        "%00",
        "\x00",
        "\x1b[2J",
        "__proto__",
    ]
    for value in values:
        name = f"name {value}"
        await pipeline.output(name, {value: value})
        assert json.loads(await pipeline.content(name)) == {value: value}
        assert json.loads(await pipeline.content(name, path=f'["{value}"]')) == value
    assert sorted(await pipeline.names()) == sorted(f"name {value}" for value in values)
