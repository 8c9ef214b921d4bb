"""Stored XSS by artifacts and by file names: nothing that a step put out can run in a browser."""

from pathlib import Path

import httpx

from tests.contract.pipeline import Pipeline, bearer

HTML = "<!doctype html><script>alert(document.cookie)</script><svg onload=alert(1)>"


class TestStoredXss:
    """Argo CVE-2022-29164, GHSA-cv78-6m8q-ph82."""

    async def test_no_stored_xss_by_an_output_an_artifact_or_its_file_name(
        self, client: httpx.AsyncClient, work_dir: Path
    ) -> None:
        """Whatever a step put out: never a type that a browser runs, nosniff, and a sandbox without same origin."""
        pipeline = await Pipeline.create(client)
        filed = await pipeline.dispatch("filed.html", ctx={"work_dir": str(work_dir)})
        stored = await pipeline.dispatch("stored.html")
        for dispatched in (filed, stored):
            await pipeline.submit(dispatched, HTML)
            for ending in (
                "html",
                "htm",
                "xhtml",
                "svg",
                "xml",
                "js",
                "mjs",
                "css",
                "pdf",
                "swf",
                "md",
                "json",
                "txt",
                "big.HTML",
            ):
                await pipeline.stage(dispatched, f"part of {dispatched['name']}.{ending}", HTML)
        await pipeline.stage(stored, '"><img src=x onerror=alert(1)>\r\nX-Evil: 1.html', HTML)
        bodies = 0
        for name in await pipeline.names():
            queries: list[dict[str, str]] = [{}, *({"format": each} for each in ("raw", "json", "file"))]
            for query in [*queries, {"path": "", "format": "raw"}]:
                answer = await pipeline.get(name, "/content", **query)
                if answer.status_code == 404:
                    assert query == {"format": "file"}
                    continue
                told = answer.headers
                again = await client.get(answer.request.url, headers={"If-None-Match": told["etag"]})
                head = await client.head(answer.request.url)
                assert (again.status_code, head.status_code) == (304, 200)
                for headers in (told, again.headers, head.headers):
                    assert headers["content-type"] in {
                        "text/plain; charset=utf-8", "text/markdown; charset=utf-8", "application/json",
                    }  # fmt: skip
                    assert headers["x-content-type-options"] == "nosniff"
                    assert headers["content-security-policy"] == "sandbox; default-src 'none'"
                    assert headers["content-disposition"].startswith("inline; filename*=UTF-8''")
                    assert not set(headers["content-disposition"]) & set('<>"\r\n')
                    assert "x-evil" not in headers
                bodies += 1
        assert bodies > 100

    async def test_no_stored_xss_by_any_other_answer(self, client: httpx.AsyncClient) -> None:
        """Lists, summaries, prompts, records and errors that repeat a hostile text are typed, and nosniff."""
        pipeline = await Pipeline.create(client, goal=HTML, task_metadata=HTML)
        dispatched = await pipeline.dispatch(HTML, HTML, system=HTML * 500)
        out_id = await pipeline.emit(dispatched, {"type": "partial", "chunk": HTML})
        await pipeline.submit(dispatched, HTML)
        urls = [
            pipeline.steps_url, pipeline.url(HTML), pipeline.url(f"{HTML}none"), "/v1/tasks",
            f"/v1/tasks/{pipeline.task_id}",
            "/v1/runs", f"/v1/runs/{pipeline.run_id}", f"/v1/runs/{pipeline.run_id}/steps", f"/v1/runs/{HTML[1:]}",
            "/v1/worker/prompt", "/v1/worker/prompt/system", f"/v1/data/{out_id}", f"/v1/data/{out_id}/content",
            pipeline.url(HTML) + "?format=%3Cscript%3E", "/v1/tasks?limit=%3Cscript%3E", f"/{HTML}",
        ]  # fmt: skip
        for url in urls:
            headers = bearer(dispatched) if url.startswith("/v1/worker") else {}
            answer = await client.get(url, headers=headers)
            assert answer.headers["content-type"].partition(";")[0] in {"application/json", "text/plain"}, url
            assert answer.headers["x-content-type-options"] == "nosniff", url
