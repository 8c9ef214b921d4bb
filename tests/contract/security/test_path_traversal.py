"""Path traversal, and the bypass of its first fix: no name, path, id, template or link leads out of a directory."""

import hashlib
import json
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from tests.contract.pipeline import Pipeline, blueprint_of, code_of, dumped
from tests.contract.test_guards import raw_request

HOSTILE = {
    "dot-dot": ["..", ".", "../escaped", "../../../../../../../../../../tmp/escaped", "a/../../escaped",
                "....//escaped", "..;/escaped", "..\u2215escaped", "\uff0e\uff0e\uff0fescaped"],
    "encoded": ["%2e%2e%2fescaped", "..%2fescaped", "%252e%252e%252f"],
    "absolute": ["/etc/passwd", "/tmp/escaped", "file:///etc/passwd", "~/escaped", "~root", "C:\\escaped"],
    "backslash": ["..\\escaped", "\\\\host\\share", "a\\..\\..\\escaped"],
    "nul": ["a\x00b", "a\x00/../escaped", "..\x00"],
    "over-long": ["x" * 1_000, "é" * 500, "a" * 200 + ".md"],
    "special": ["a\nb", " ", "-rf", "$(id)", "`id`", "con", "\u202egpj.exe", "a:b", "'; DROP TABLE runs; --",
                "{task_id}", "%s%n", ".hidden", "content", "steps", "*", "?x", "#x"],
}  # fmt: skip
"""Names that led somewhere else somewhere else."""


def _files(directory: Path) -> set[Path]:
    return {path for path in directory.rglob("*") if path.is_file() or path.is_symlink()}


class TestTraversal:
    """MLflow CVE-2023-6909, CVE-2024-1483, CVE-2024-3848, CVE-2023-1177; Gradio CVE-2023-51449, CVE-2024-1561."""

    @pytest.mark.parametrize("kind", HOSTILE)
    async def test_no_path_traversal_by_the_name_of_a_step_or_a_part(
        self, client: httpx.AsyncClient, work_dir: Path, tmp_path: Path, kind: str
    ) -> None:
        """A hostile name is kept and served as the name it is; its file lies in the step's directory or nowhere."""
        pipeline = await Pipeline.create(client, work_dir=str(work_dir))
        before, homes = _files(tmp_path), set()
        for number, name in enumerate(HOSTILE[kind]):
            dispatched = await pipeline.dispatch(name)
            await pipeline.submit(dispatched, f"final {number}")
            part = await pipeline.dispatch(f"stager-{number}")
            await pipeline.stage(part, f"part {name}", f"part {number}")
            await pipeline.stage(part, f"{name}/part", f"inner {number}")
            assert json.loads(await pipeline.content(name, format="json")) == f"final {number}"
            assert await pipeline.content(f"part {name}") == f"part {number}".encode()
            assert await pipeline.content(f"{name}/part") == f"inner {number}".encode()
            homes |= {work_dir / f"workspace/tasks/{step['step_id']}/ctx" for step in (dispatched, part)}
        written = _files(tmp_path) - before
        assert {path.parent for path in written} == homes
        assert len(written) >= 2 * len(HOSTILE[kind])
        assert not Path("/tmp/escaped").exists()

    async def test_no_path_traversal_by_a_projection_name(
        self, client: httpx.AsyncClient, work_dir: Path, tmp_path: Path
    ) -> None:
        """A declared name with ``../`` is a name as any; no file is made of it."""
        blueprint = blueprint_of(("plan", "$.plan"), names={"plan": "../../../../escaped"})
        pipeline = await Pipeline.create(client, blueprint, work_dir=str(work_dir))
        before = _files(tmp_path)
        dispatched = await pipeline.output("plan", "x")
        assert json.loads(await pipeline.content("plan")) == "x"
        assert {path.name for path in _files(tmp_path) - before} == {"_ctx.md"}
        assert dispatched["name"] == "../../../../escaped"

    async def test_no_path_traversal_by_a_placement_template(self, client: httpx.AsyncClient) -> None:
        """A placement that is absolute, leads upwards or holds control characters is refused with the Blueprint."""
        for template in (
            "../{task_id}", "/tmp/{task_id}", "a/../../{task_id}", "..\\{task_id}", "C:\\{task_id}", "{task_id}\x00",
        ):  # fmt: skip
            document = blueprint_of(("a", "$.a"), projection_placement={"dir_template": template})
            answer = await client.post("/v1/tasks", content=dumped({"blueprint": document}))
            assert code_of(answer) == (422, "invalid_blueprint"), template

    async def test_no_path_traversal_by_the_spelling_of_a_url(
        self, app: FastAPI, client: httpx.AsyncClient, work_dir: Path, tmp_path: Path
    ) -> None:
        """Dots, slashes and their encodings are parts of names that nothing bears: 404, and no file's bytes."""
        secret = tmp_path / "secret.md"
        secret.write_text("the secret")
        pipeline = await Pipeline.create(client, work_dir=str(work_dir))
        await pipeline.output("plan", 1)
        up = len(work_dir.relative_to("/").parts) + 4
        spellings = [
            b"../" * up, b"..%2f" * up, b"%2e%2e/" * up, b"%2e%2e%2f" * up, b"%252e%252e%252f" * up, b"..%5c" * up,
            b"..\\" * up, b"..%c0%af" * up, b"....//" * up, b"..;/" * up, b"%00/", b"plan%00/../",
        ]  # fmt: skip
        base = pipeline.steps_url.encode()
        for spelling in spellings:
            for file in (b"secret.md", str(secret).encode(), str(secret).encode().replace(b"/", b"%2F")):
                for tail in (b"", b"/content", b"?format=file", b"/content?format=file"):
                    status, _, body = await raw_request(app, base + b"/" + spelling + file + tail)
                    assert status in {400, 404}, (spelling, body)
                    assert b"the secret" not in body
                    status, _, body = await raw_request(app, base + b"/plan/content/" + spelling + file + tail)
                    assert status == 404, (spelling, body)
        status, _, body = await raw_request(app, base + b"/../" * up + b"etc/passwd")
        assert (status, json.loads(body)["code"]) == (404, "route_not_found")

    async def test_no_path_traversal_by_an_id(self, app: FastAPI, client: httpx.AsyncClient) -> None:
        """An id with a separator, dots alone or another prefix is 400 ``invalid_id`` on every route that takes one."""
        pipeline = await Pipeline.create(client)
        for bad in (b"..", b"T-%2F..", b"T-..%2f..", b"R-%00", b"T-a b", b"t-1", b"T-", b"T-" + b"a" * 65, b"%2e%2e"):
            for target in (
                b"/v1/tasks/%s",
                b"/v1/tasks/%s/runs/latest/steps",
                b"/v1/tasks/%s/runs/latest/steps/x/content",
            ):
                status, _, body = await raw_request(app, target % bad)
                assert (status, json.loads(body)["code"]) == (400, "invalid_id"), target % bad
            for target in (b"/v1/runs/%s", b"/v1/tasks/T-1/runs/%s/steps", b"/v1/runs/%s/steps"):
                status, _, body = await raw_request(app, target % bad)
                assert (status, json.loads(body)["code"]) == (400, "invalid_id"), target % bad
        for bad_id in ("ST-../../x", "../x", "ST-\x00"):
            content = dumped({"ref": "a", "directive": "x", "retry_of": bad_id})
            answer = await client.post(f"/v1/runs/{pipeline.run_id}/steps", content=content)
            assert code_of(answer) == (400, "invalid_id")

    @pytest.mark.parametrize("component", ["workspace", "workspace/tasks"])
    async def test_no_path_traversal_by_a_symlinked_directory(
        self, client: httpx.AsyncClient, work_dir: Path, tmp_path: Path, component: str
    ) -> None:
        """A link in the way of a step's directory: the submit is kept, and nothing is written where it leads."""
        outside = tmp_path / "outside"
        outside.mkdir()
        (work_dir / component).parent.mkdir(exist_ok=True)
        (work_dir / component).symlink_to(outside)
        pipeline = await Pipeline.create(client, work_dir=str(work_dir))
        dispatched = await pipeline.dispatch("plan")
        assert "ctx_projection" not in dispatched
        await pipeline.submit(dispatched, "x")
        await pipeline.stage(dispatched, "part", "x")
        assert list(outside.iterdir()) == []
        assert all("file_path" not in step for step in await pipeline.steps())
        assert json.loads(await pipeline.content("plan")) == "x"

    async def test_no_path_traversal_by_a_symlink_in_the_place_of_a_file(
        self, client: httpx.AsyncClient, work_dir: Path, tmp_path: Path
    ) -> None:
        """A link put where a file was: the stored OUTPUT is served, and the next submit replaces the link."""
        secret = tmp_path / "secret"
        secret.write_text("the secret")
        pipeline = await Pipeline.create(client, work_dir=str(work_dir))
        dispatched = await pipeline.output("plan", "mine")
        await pipeline.stage(dispatched, "part.md", "my part")
        final = await pipeline.content("plan")
        path, part = [Path((await pipeline.step(name))["file_path"]) for name in ("plan", "part.md")]
        for file in (path, part):
            file.unlink()
            file.symlink_to(secret)
        await self._serves_the_store(pipeline)
        ctx = path.parent
        ctx.rename(tmp_path / "moved")
        (tmp_path / "moved/plan.md").unlink()
        (tmp_path / "moved/plan.md").write_text("the secret")
        ctx.symlink_to(tmp_path / "moved")
        await self._serves_the_store(pipeline)
        ctx.unlink()
        ctx.mkdir()
        path.symlink_to(secret)
        await pipeline.result(dispatched, "mine")
        assert await pipeline.content("plan") == final
        assert not path.is_symlink()
        assert secret.read_text() == "the secret"

    @staticmethod
    async def _serves_the_store(pipeline: Pipeline) -> None:
        for name, body in (("plan", b'"mine"'), ("part.md", b"my part")):
            assert await pipeline.content(name) == body
            summary = await pipeline.step(name)
            assert summary["sha256"] == hashlib.sha256(body).hexdigest()
            assert "file_path" not in summary
            assert (await pipeline.get(name, "/content", format="file")).status_code == 404
        assert all("file_path" not in step for step in await pipeline.steps())
