"""Status and metrics: how the server is, for people and for Prometheus."""

import re

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.contract.pipeline import Pipeline, parsed


async def test_status_tells_how_the_server_is(client: httpx.AsyncClient, dialect: str) -> None:
    """Version, uptime, kind of database and counts."""
    pipeline = await Pipeline.create(client)
    await pipeline.output("step", 1)
    status = parsed(await client.get("/v1/status"))
    assert status["database"] == dialect
    assert re.fullmatch(r"\d+\.\d+\.\d+", status["version"])
    assert status["counts"] == {"tasks": 1, "runs": {"running": 1}, "outputs": 1}
    assert status["uptime_seconds"] >= 0


async def test_metrics_count_by_route_template(client: httpx.AsyncClient) -> None:
    """Requests are counted by template and status, never by raw path; submits, bytes and database time too."""
    pipeline = await Pipeline.create(client)
    before = await _samples(client)
    await pipeline.output("secret-name", "x" * 98)
    await pipeline.get("secret-name", "/content")
    await client.get("/nowhere/at/all")
    after = await _samples(client)

    def grown(name: str, **labels: str) -> float:
        key = (name, *sorted(labels.items()))
        return after.get(key, 0.0) - before.get(key, 0.0)

    content = "/v1/tasks/{task}/runs/{run}/steps/{step}/content"
    assert grown("stepplane_requests_total", method="GET", route=content, status="200") == 1
    assert grown("stepplane_requests_total", method="POST", route="/v1/worker/result", status="204") == 1
    assert grown("stepplane_requests_total", method="GET", route="unmatched", status="404") == 1
    assert grown("stepplane_request_seconds_count", route=content) == 1
    assert grown("stepplane_outputs_total", type="final") == 1
    assert grown("stepplane_output_bytes_total") == 100
    assert grown("stepplane_database_seconds_total", operation="write") > 0
    assert grown("stepplane_database_seconds_total", operation="read") > 0
    assert "secret-name" not in (await client.get("/metrics")).text


async def _samples(client: httpx.AsyncClient) -> dict[tuple[object, ...], float]:
    text = (await client.get("/metrics")).text
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
