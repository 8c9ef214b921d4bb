"""Part names as the least telling disk compares them: on no disk is a part another file of its step."""

from pathlib import Path

import httpx
import pytest

from tests.contract.pipeline import Dispatched, Pipeline, bearer, code_of

TAKEN = [
    "plan.md", "PLAN.md", "Plan.MD", "plan.md.", "plan.md ", "plan.md. .", "_ctx.md", "_CTX.md", "_Ctx.md..",
    "report.md", "REPORT.MD", "report.md ", "stra\u00dfe", "STRASSE", "e\u0301", "\u00c9", "\u212a",
    "CON", "nul.txt", "Com1.md", "lpt9", "aux .x",
]  # fmt: skip
FREE = [
    "plan",
    "plan.txt",
    "ctx.md",
    "reports.md",
    "console.md",
    "com10",
    "nulls",
    "e",
    "x/plan.md",
    "report.md/CON",
    "...",
]


async def _stage(pipeline: Pipeline, dispatched: Dispatched, name: str) -> httpx.Response:
    return await pipeline.http.post(
        "/v1/worker/artifact", content="other", params={"name": name}, headers=bearer(dispatched)
    )


@pytest.mark.parametrize("has_root", [True, False])
async def test_a_part_that_meets_a_taken_name_is_409(
    client: httpx.AsyncClient, work_dir: Path, *, has_root: bool
) -> None:
    """By case, composition, dots and spaces at the end, and devices: 409, root or not, and nothing is kept of it."""
    pipeline = await Pipeline.create(client, **({"work_dir": str(work_dir)} if has_root else {}))
    dispatched = await pipeline.output("plan", 1)
    parts = ["Report.md", "Stra\u00dfe.", "\u00e9", "k"]
    for name in parts:
        await pipeline.stage(dispatched, name, "first")
    before = {path: path.read_bytes() for path in work_dir.rglob("*") if path.is_file()}
    for name in TAKEN:
        answer = await _stage(pipeline, dispatched, name)
        assert code_of(answer) == (409, "name_taken"), name
    assert {path: path.read_bytes() for path in work_dir.rglob("*") if path.is_file()} == before
    assert sorted(await pipeline.names()) == sorted(["plan", *parts])
    for name in parts:
        assert await pipeline.content(name) == b"first"


async def test_a_name_that_meets_none_is_kept(client: httpx.AsyncClient, work_dir: Path) -> None:
    """Names that every disk tells apart, and names that can be no file, are kept; the same name again replaces."""
    pipeline = await Pipeline.create(client, work_dir=str(work_dir))
    dispatched = await pipeline.output("plan.x", 1)
    await pipeline.stage(dispatched, "report.md", "first")
    for name in [*FREE, "report.md"]:
        assert (await _stage(pipeline, dispatched, name)).status_code == 204, name
    assert await pipeline.content("report.md") == b"other"


async def test_each_step_has_names_of_its_own(client: httpx.AsyncClient) -> None:
    """Another step, and another occurrence, has a directory of its own; another attempt has its step's."""
    pipeline = await Pipeline.create(client)
    first = await pipeline.output("plan", 1)
    await pipeline.stage(first, "report.md", "first")
    for other in (await pipeline.dispatch("draft"), await pipeline.dispatch("plan")):
        assert (await _stage(pipeline, other, "REPORT.md")).status_code == 204
    assert code_of(await _stage(pipeline, await pipeline.retry(first), "REPORT.md")) == (409, "name_taken")


async def test_an_emitted_part_is_held_to_the_same(client: httpx.AsyncClient) -> None:
    """A part that comes as a data event meets taken names as a staged one does."""
    pipeline = await Pipeline.create(client)
    dispatched = await pipeline.dispatch("plan")
    document = {
        "task_id": dispatched["step_id"],
        "attempt": 1,
        "producer_agent": "plan",
        "event": {"type": "artifact", "name": "PLAN.md", "content": {"kind": "inline", "value": 1}},
    }
    answer = await client.post("/v1/data/emit", json=document, headers=bearer(dispatched))
    assert code_of(answer) == (409, "name_taken")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("plan.md", "that file is the step's own"),
        ("PLAN.md", "on some disks that is the file 'plan.md' of the same step"),
        ("NUL", "some disks keep that name for a device"),
    ],
)
async def test_the_refusal_says_what_the_name_meets(client: httpx.AsyncClient, name: str, why: str) -> None:
    """The sentence names the file that stands there, or says that a device does."""
    pipeline = await Pipeline.create(client)
    answer = await _stage(pipeline, await pipeline.dispatch("plan"), name)
    assert why in answer.json()["error"]
