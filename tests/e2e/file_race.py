"""The file race: directories are swapped for links that lead out, while a server reads through them.

The invariant: no answer holds anything from outside, however many were asked for. ``python -m tests.e2e.file_race 60``
runs it for a minute and prints what was counted.
"""

import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import httpx

from tests.contract.pipeline import Dispatched, Pipeline, bearer
from tests.e2e.conftest import Server

SECRET = "the-servers-own-secret-token"
INSIDE = "inside"
_AT_ONCE = 4

Job = Callable[[], Awaitable[tuple[str, str]]]
"""Asks once, and returns the kind of the answer and what it held."""


class Tally(NamedTuple):
    """What was counted.

    Attributes:
        swaps: how often the directories were exchanged.
        answers: how many answers of which kind came.
        leaks: the answers that held something from outside.
    """

    swaps: int
    answers: Counter[str]
    leaks: list[str]


async def race(server: Server, work: Path, seconds: float) -> Tally:
    """Submit files and read contents for so long, while what they lead through is swapped."""
    answers: Counter[str] = Counter()
    leaks: list[str] = []
    async with httpx.AsyncClient(
        base_url=server.url, headers={"Authorization": f"Bearer {SECRET}"}, timeout=60
    ) as http:
        pipeline = await Pipeline.create(http, work_dir=str(work))
        await pipeline.output("plan", INSIDE)
        loops = [
            _submits(pipeline, await pipeline.dispatch(f"ask-{n}", ctx={"allow_file_submit": True}), work / "x/environ")
            for n in range(_AT_ONCE)
        ]
        pairs = _lay_out(server, work, Path((await pipeline.step("plan"))["file_path"]))
        with _swapping(pairs) as swaps:
            until = time.monotonic() + seconds
            jobs = [*loops, *(_reads(pipeline) for _ in range(_AT_ONCE))]
            await asyncio.gather(*(_repeat(job, until, answers, leaks) for job in jobs))
        return Tally(sum(swaps), answers, leaks)


def _lay_out(server: Server, work: Path, materialized: Path) -> list[tuple[Path, Path]]:
    """Put links that lead out beside the directories that are walked through."""
    outside = work.parent / "outside"
    outside.mkdir()
    (outside / materialized.name).write_text(SECRET)
    (work / "x").mkdir()
    (work / "x/environ").write_text(INSIDE)
    (work / "y").symlink_to(f"/proc/{server.pid}")
    beside = materialized.parent.with_name("beside")
    beside.symlink_to(outside)
    return [(work / "x", work / "y"), (materialized.parent, beside)]


@contextlib.contextmanager
def _swapping(pairs: list[tuple[Path, Path]]) -> Iterator[list[int]]:
    """Swap each pair in a process of its own; afterwards the list holds how often."""
    swaps: list[int] = []
    command = [sys.executable, "-m", "tests.e2e.swapping"]
    processes = [
        subprocess.Popen([*command, *map(str, pair)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) for pair in pairs
    ]
    try:
        yield swaps
    finally:
        for process in processes:
            told, _ = process.communicate(b"", timeout=30)
            swaps.append(int(told))


def _submits(pipeline: Pipeline, dispatched: Dispatched, path: Path) -> Job:
    async def submit() -> tuple[str, str]:
        answer = await pipeline.http.post("/v1/worker/submit", content=f"@file:{path}", headers=bearer(dispatched))
        if answer.status_code != 204:
            return f"submit {answer.status_code}", INSIDE
        return "submit 204", json.loads(await pipeline.content(dispatched["name"], format="json"))

    return submit


def _reads(pipeline: Pipeline) -> Job:
    async def read() -> tuple[str, str]:
        body = (await pipeline.content("plan")).decode()
        return ("content of the store" if body == f'"{INSIDE}"' else "content of the file"), body

    return read


async def _repeat(job: Job, until: float, answers: Counter[str], leaks: list[str]) -> None:
    while time.monotonic() < until:
        kind, text = await job()
        answers[kind] += 1
        if INSIDE not in text or SECRET in text:
            leaks.append(text)


def main() -> None:
    """Run it on a server of its own for as many seconds as the command line says."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name).resolve()
        (directory / "work").mkdir()
        server = Server(
            f"sqlite:///{directory}/race.db", directory / "server.log", {"STEPPLANE_OPERATOR_TOKEN": SECRET}
        )
        try:
            tally = asyncio.run(race(server, directory / "work", float(sys.argv[1])))
        finally:
            server.stop()
    sys.stdout.write(f"{tally.swaps} swaps, {dict(tally.answers)}, {len(tally.leaks)} from outside\n")
    sys.exit(1 if tally.leaks else 0)


if __name__ == "__main__":
    main()
