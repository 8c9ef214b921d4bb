"""Schemas: a Blueprint's is served, for editors and programs."""

import httpx

from app.domain.blueprint_schema import blueprint_schema
from tests.contract.pipeline import one_database, parsed


@one_database
async def test_the_schema_of_a_blueprint_is_served(client: httpx.AsyncClient) -> None:
    """``/v1/schemas/blueprint`` is the JSON Schema that the parser's own models make, under the type of schemas."""
    answer = await client.get("/v1/schemas/blueprint")
    assert parsed(answer) == blueprint_schema()
    assert answer.headers["content-type"] == "application/schema+json"
