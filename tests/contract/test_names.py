"""Names: whatever a step or an artifact is called, it is listed once and read back byte for byte.

Source: contract §2, the first paragraph; ``tests/vectors/content_url.json``.
"""

import json
from pathlib import Path

import httpx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.config import Settings
from app.domain.ids import MAX_NAME_BYTES
from app.domain.records import RunStatus, TaskRecord
from app.storage.opening import open_database
from app.storage.stores import WriteStores
from app.storage.urls import parse_database_url
from tests.contract.pipeline import Pipeline, code_of, dumped, serving

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "content_url.json").read_text())["cases"]
WHOLE_RESULT = "_ctx"
AT = "2026-01-02T03:04:05.678Z"

pieces = st.sampled_from(
    [
        *("/", "?", "#", "%", " ", "..", ".", "\\", "\x00", "\x01", "\x7f", "\n", "\r\n", "\t", '"', "'", "+", "&"),
        *("content", "steps", "latest", "_ctx", "%2F", "%2f", "%00", "%C3%A9", "%25", "~", "é", "e\u0301", "計画"),
        *("=", ";", "😀", "\ufeff", "\u2028", "\u202e", "\uffff", "\U0010ffff", "\x80", "A", "a"),
    ]
)  # fmt: skip
names = (
    (st.lists(pieces, min_size=1, max_size=6).map("".join) | st.text(min_size=1, max_size=40))
    .filter(lambda name: len(name.encode()) <= MAX_NAME_BYTES and name != WHOLE_RESULT)
    .filter(lambda name: not any("\ud800" <= char <= "\udfff" for char in name))
)
some_names = st.lists(names, min_size=1, max_size=3, unique=True)
bounded = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],  # every example makes a task of its own
)


async def read_back(pipeline: Pipeline, bodies: dict[str, str]) -> None:
    """Hold the list and every ``content_url`` in it to what was put out under which name."""
    steps = await pipeline.steps()
    assert [step["name"] for step in steps] == sorted(bodies, key=str.encode)
    for step in steps:
        assert step["content_url"].isascii()
        answer = await pipeline.http.get(step["content_url"])
        body = json.loads(answer.content) if step["content_type"] == "application/json" else answer.text
        assert (answer.status_code, body) == (200, bodies[step["name"]])
        assert answer.headers["etag"] == f'"sha256:{step["sha256"]}"'
        assert await pipeline.step(step["name"]) == step


class TestAnyName:
    @bounded
    @given(bearing=some_names)
    async def test_a_step_is_read_back(self, client: httpx.AsyncClient, bearing: list[str]) -> None:
        """A step of any name is listed once, in bytewise order, and its ``content_url`` leads to it and no other."""
        pipeline = await Pipeline.create(client)
        bodies = {name: f"the body of {name}" for name in bearing}
        for name, body in bodies.items():
            assert (await pipeline.output(name, body))["name"] == name
        await read_back(pipeline, bodies)

    @bounded
    @given(bearing=some_names)
    async def test_an_artifact_is_read_back(
        self, client: httpx.AsyncClient, work_dir: Path, bearing: list[str]
    ) -> None:
        """An artifact of any name likewise, whether the disk can have a file of that name or not."""
        own = "the worker's own step"
        pipeline = await Pipeline.create(client, work_dir=str(work_dir))
        dispatched = await pipeline.dispatch(own)
        bodies = {name: f"the part {name}." for name in bearing if name != own}
        for name, body in bodies.items():
            await pipeline.stage(dispatched, name, body)
        steps = {step["name"]: step for step in await pipeline.steps()}
        assert list(steps) == sorted(bodies, key=str.encode)
        for name, step in steps.items():
            answer = await client.get(step["content_url"])
            assert (answer.status_code, answer.content) == (200, bodies[name].encode())
            if "file_path" in step:
                assert Path(step["file_path"]).is_relative_to(work_dir)
                assert Path(step["file_path"]).name == name

    async def test_the_longest_name(self, client: httpx.AsyncClient) -> None:
        """A name may have 1,024 bytes of UTF-8; a longer or an empty one, or one that no URL can carry, is refused."""
        pipeline = await Pipeline.create(client)
        longest = ["n" * MAX_NAME_BYTES, "é" * (MAX_NAME_BYTES // 2), "😀" * (MAX_NAME_BYTES // 4)]
        longest += ["\x00" * MAX_NAME_BYTES, "/" * MAX_NAME_BYTES]
        for name in longest:
            await pipeline.output(name, f"the body of {name}")
        await read_back(pipeline, {name: f"the body of {name}" for name in longest})
        worker = await pipeline.dispatch("w")
        for name in ("", "n" * (MAX_NAME_BYTES + 1), "é" * 513, "\ud800"):
            answer = await client.post(
                f"/v1/runs/{pipeline.run_id}/steps", content=dumped({"ref": name, "directive": "go"})
            )
            assert answer.status_code == 422, name
            if name != "\ud800":
                headers = {"Authorization": f"Bearer {worker['worker_handle']}"}
                part = await client.post("/v1/worker/artifact", params={"name": name}, headers=headers)
                assert code_of(part) == (422, "invalid_name")
        assert len(await pipeline.entries()) == len(longest) + 1


async def test_names_that_look_alike_stay_apart(client: httpx.AsyncClient, work_dir: Path) -> None:
    """Names that differ only in case, normalization, percent-encoding or white space are different names of a run.

    Each is the part of another step: within one, those that are one file on some disk are refused.
    """
    groups = (
        ("plan", "Plan", "PLAN", "\uff50lan", "plan ", " plan", "plan\u200b", "plan\n"),
        ("caf\u00e9", "cafe\u0301", "caf%C3%A9", "caf%c3%a9", "CAF\u00c9", "café\ufe0f"),
        ("a/b", "a%2Fb", "a%2fb", "a%252Fb", "a\\b", "a//b", "a/./b", "a/b/"),
        ("a b", "a+b", "a%20b", "a%2Bb", "a\u00a0b"),
        (".", "..", "%2E", "%2e%2e", "./", "...", "\u2024"),
        ("x?path=$", "x#y", "x;y", "x&y", "x"),
        ("\x00", "\x01", "\x01\x01", "\x01\x02", "\x00\x00", "\\x00", "%00"),
        ("content", "steps", "steps/content", "latest", "ﬃ", "ffi", "ß", "ss", "\u0131", "i", "İ"),
    )
    everything = [name for group in groups for name in group]
    pipeline = await Pipeline.create(client, work_dir=str(work_dir))
    for number, name in enumerate(everything):
        await pipeline.stage(await pipeline.dispatch(f"worker {number}"), name, f"[{name}]")
    assert await pipeline.names() == sorted(everything, key=str.encode)
    for step in await pipeline.steps():
        assert (await client.get(step["content_url"])).text == f"[{step['name']}]"
        assert await pipeline.content(step["name"]) == f"[{step['name']}]".encode()


async def test_content_urls_are_those_of_the_vectors(database_url: str) -> None:
    """The server writes each URL of the vectors, and GET of it reaches that step."""
    url = parse_database_url(database_url)
    bodies = {case["name"]: {"a": {"b": case["name"], "x.y": [case["name"]]}} for case in VECTORS}
    # Never stale: the run that is made below is old already.
    async with serving(Settings(database_url=database_url, stale_run_after_seconds=0)) as http:
        database = open_database(url)
        await database.write(_add_task_and_run)
        await database.close()
        pipeline = Pipeline(http, {"task_id": "T-1", "run_id": "R-2"})
        for name, body in bodies.items():
            await pipeline.output(name, body)
    for base_url in dict.fromkeys(case["base_url"] for case in VECTORS):
        async with serving(Settings(database_url=database_url, base_url=base_url, stale_run_after_seconds=0)) as http:
            pipeline = Pipeline(http, {"task_id": "T-1", "run_id": "R-2"})
            for case in [case for case in VECTORS if case["base_url"] == base_url]:
                query = {} if case["path"] is None else {"path": case["path"]}
                summary = await pipeline.step(case["name"], **query)
                assert summary["content_url"] == case["expect"]
                # What stands before /v1 is a proxy's, which removes it.
                answer = await http.get("/v1" + case["expect"].partition("/v1")[2])
                assert answer.status_code == 200, case
                whole = bodies[case["name"]]
                values = {None: whole, "": whole, "$.a.b": case["name"], '$.a["x.y"][0]': case["name"]}
                assert json.loads(answer.content) == values[case["path"]]


def _add_task_and_run(stores: WriteStores) -> None:
    """Make what the vectors' ids name; over HTTP every id is a fresh one."""
    task = TaskRecord(
        id="T-1",
        goal=None,
        status=RunStatus.RUNNING,
        latest_run_id="R-2",
        project_root=None,
        work_dir=None,
        created_at=AT,
        task_metadata=None,
        init_ctx=None,
        blueprint=None,
    )
    stores.tasks.add(task, None)
    stores.runs.add("R-2", "T-1", AT)
