"""A server that is made to be killed, and workers that submit to it for as long as they are answered."""

import asyncio
import hashlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.domain.rendering import read_submission, render_json
from tests.contract.pipeline import Dispatched, Pipeline, bearer, dumped

_LAUNCHER = """
import os, signal, sys
from app import running
from app.config import Settings
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        running.serve(Settings(port=int(line)))
        os._exit(0)
    print(child, flush=True)
"""
"""Forks a server of a process that has imported the program already: a start costs a tenth, and dies as any other."""


class Mortal:
    """A server that is made to be killed: a process of its own each time, on one port and one database."""

    def __init__(self, database_url: str, log_path: Path) -> None:
        self._log = log_path.open("ab")
        self._launcher = subprocess.Popen(
            [sys.executable, "-c", _LAUNCHER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=os.environ | {"STEPPLANE_DATABASE_URL": database_url, "STEPPLANE_LOG_LEVEL": "warning"},
        )
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self._pid = 0

    def start(self) -> None:
        """Start a process and wait until it answers."""
        assert self._launcher.stdin is not None
        assert self._launcher.stdout is not None
        self._launcher.stdin.write(f"{self._port}\n")
        self._launcher.stdin.flush()
        self._pid = int(self._launcher.stdout.readline())
        give_up_at = time.monotonic() + 30
        while time.monotonic() < give_up_at:
            try:
                if httpx.get(f"{self.url}/v1/healthz", timeout=5).text == "ok":
                    return
            except httpx.TransportError:
                os.kill(self._pid, 0)  # it lives yet
                time.sleep(0.02)
        pytest.fail("the server did not start")

    def kill(self) -> None:
        """End the process as a power cut would, and wait until it is gone."""
        os.kill(self._pid, signal.SIGKILL)
        while Path(f"/proc/{self._pid}").exists():
            time.sleep(0.005)

    def close(self) -> None:
        """End everything."""
        with self._log, self._launcher:
            self._launcher.kill()


class Workers:
    """Workers that submit Finals and parts for as long as they are answered, and remember what was."""

    COUNT = 6

    def __init__(self, http: httpx.AsyncClient, pipeline: Pipeline, handles: list[Dispatched]) -> None:
        self._http = http
        self._pipeline = pipeline
        self._handles = handles
        self._random = random.Random(4711)  # noqa: S311 - it chooses sizes
        self._number = 0
        self.finals: dict[str, list[Any]] = {handle["name"]: [] for handle in handles}
        """The Finals of each step that were answered 204, in order."""
        self.unanswered: dict[str, list[Any]] = {handle["name"]: [] for handle in handles}
        """Those whose answer never came: each may have been kept or not, but whole."""
        self.parts: dict[str, bytes] = {}
        self.lost_parts: dict[str, bytes] = {}

    @property
    def answered(self) -> int:
        """How many submits were answered 204 so far."""
        return sum(map(len, self.finals.values())) + len(self.parts)

    async def work_until_killed(self, server: Mortal, answers: int, seconds: float) -> None:
        """Submit, all at once, until the server has been killed: so long after so many answers."""
        target = self.answered + answers
        working = [asyncio.create_task(self._work(handle)) for handle in self._handles]
        while self.answered < target:  # noqa: ASYNC110 - six workers count, one waits
            await asyncio.sleep(0.002)
        await asyncio.sleep(seconds)
        await asyncio.to_thread(server.kill)
        await asyncio.gather(*working)

    async def _work(self, handle: Dispatched) -> None:
        name = handle["name"]
        while True:
            self._number += 1
            value = {"number": self._number, "padding": "é" * self._random.choice([3, 3_000, 90_000])}
            part, body = f"part-{self._number}.md", f"part {self._number} " * self._random.choice([1, 20_000])
            try:
                answer = await self._http.post("/v1/worker/submit", content=dumped(value), headers=bearer(handle))
                assert answer.status_code == 204, answer.text
                self.finals[name].append(value)
            except httpx.TransportError:
                self.unanswered[name].append(value)
                return
            try:
                url = f"/v1/worker/artifact?name={part}"
                answer = await self._http.post(url, content=body, headers=bearer(handle))
                assert answer.status_code == 204, answer.text
                self.parts[part] = body.encode()
            except httpx.TransportError:
                self.lost_parts[part] = body.encode()
                return

    async def check(self) -> None:
        """Compare what the server has now with what was answered: all is there, whole, and its digest right."""
        steps = {step["name"]: step for step in await self._pipeline.steps()}
        for part, body in self.parts.items():
            assert steps[part]["sha256"] == hashlib.sha256(body).hexdigest(), part
        for name, answered in self.finals.items():
            if not answered:
                continue
            body = await self._pipeline.content(name)
            assert steps[name]["sha256"] == hashlib.sha256(body).hexdigest()
            kept = json.loads(await self._pipeline.content(name, format="json"))
            assert kept in [answered[-1], *self.unanswered[name]]
            assert kept["number"] >= answered[-1]["number"]
            if "file_path" in steps[name]:
                assert json.loads(read_submission(Path(steps[name]["file_path"]).read_bytes())) == kept
        for part in self._random.sample(sorted(self.parts), min(10, len(self.parts))):
            assert await self._pipeline.content(part) == self.parts[part]

    def check_files(self, work_dir: Path) -> int:
        """Look at every file under a final name: each is one of the bodies that were sent, whole."""
        sent = {
            render_json(value)
            for values in (self.finals, self.unanswered)
            for each in values.values()
            for value in each
        }
        parts = self.parts | self.lost_parts
        files = [path for path in work_dir.rglob("*.md") if path.name != "_ctx.md"]
        for path in files:
            if path.name in parts:
                assert path.read_bytes() == parts[path.name]
            else:
                assert read_submission(path.read_bytes()) in sent
        return len(files)
