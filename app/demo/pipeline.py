"""The demo's orchestrator: it creates the task, dispatches the steps in order, and lets workers do them.

The invariant: a run that was kicked is finished, whatever happens: done, failed, or interrupted.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from app.client import ClientError, StepplaneClient
from app.demo.processes import DemoError, end, start
from app.demo.worker import HANDLE_VARIABLE, SERVER_VARIABLE
from app.domain.rendering import Narrowing, steps_path
from app.domain.values import Found, parse_json

WORKERS_AT_ONCE = 3
MAX_LANGUAGES = 6
_WORKER_SECONDS = 60.0
_FINISH_SECONDS = 3.0
_BLUEPRINT = Path(__file__).with_name("blueprint.yaml")


class Plan(NamedTuple):
    """What the pipeline works on, and how."""

    folder: Path
    work_dir: Path
    pace_seconds: float
    show: Callable[[str], None]
    """Takes each line of progress."""


class FinishedRun(NamedTuple):
    """Where the run can be looked at."""

    task_id: str
    run_id: str


async def run_pipeline(client: StepplaneClient, plan: Plan) -> FinishedRun:
    """Run the pipeline whole.

    Raises:
        ClientError: the server refused something, or went away.
        DemoError: a worker failed, or the folder holds nothing to work on.
    """
    task = await client.create_task(
        {
            "goal": f"Measure the source in {plan.folder.name or plan.folder} and report on it",
            "blueprint": yaml.safe_load(_BLUEPRINT.read_bytes()),
            "init_ctx": {"folder": str(plan.folder)},
            "project_root": str(plan.folder),
            "work_dir": str(plan.work_dir),
            "task_metadata": {"made_by": "stepplane demo"},
        }
    )
    pipeline = _Pipeline(client, plan, FinishedRun(task["task_id"], task["run_id"]))
    plan.show(f"  task     {task['task_id']}   run {task['run_id']}")
    plan.show(f"  look     {client.base_url}/ui/tasks/{task['task_id']}/runs/{task['run_id']}")
    plan.show(f"  watch    curl -s {client.base_url}{steps_path(task['task_id'], task['run_id'])}\n")
    try:
        result = await pipeline.carry_out()
    except ClientError as error:
        await pipeline.give_up("failed", str(error))
        raise
    except asyncio.CancelledError:
        await pipeline.give_up("interrupted", "the demo was stopped")
        raise
    await client.finish(task["run_id"], "done", Found(result))
    return pipeline.run


class _Pipeline:
    def __init__(self, client: StepplaneClient, plan: Plan, run: FinishedRun) -> None:
        self._client = client
        self._plan = plan
        self.run = run
        self._workers = asyncio.Semaphore(WORKERS_AT_ONCE)

    async def carry_out(self) -> dict[str, Any]:
        """Dispatch every step in its order; return the run's result."""
        await self._step("scan", {"folder": str(self._plan.folder)})
        languages = (await self._value("inventory", "$.languages"))[:MAX_LANGUAGES]
        if not languages:
            raise DemoError(f"{self._plan.folder} holds no text files: give the demo another folder")
        names = [entry["language"] for entry in languages]
        await self._fan_out("measure", [{"language": name} for name in names])
        await self._step("functions", {"of": "every language that has functions"})
        rounds = await self._report_until_it_passes(names)
        return {
            "languages": names,
            "files": len(await self._value("inventory", "$.files")),
            "reviews": rounds,
            "verdict": "pass",
        }

    async def give_up(self, status: str, error: str) -> None:
        """End the run with what went wrong, as far as the server still listens."""
        try:
            await asyncio.wait_for(self._client.finish(self.run.run_id, status, error=error), _FINISH_SECONDS)
        except (ClientError, TimeoutError):
            self._plan.show(f"  the run {self.run.run_id} could not be finished as {status}")

    async def _report_until_it_passes(self, languages: list[str]) -> int:
        """Write and review the report, a second attempt of both where the first was blocked; return the reviews."""
        report_id = review_id = None
        for attempt in (1, 2):
            report_id = await self._step("report", {"about": languages}, retry_of=report_id)
            review_id = await self._step("review", {"languages": languages}, retry_of=review_id)
            if await self._value("review", "$.verdict") == "pass":
                return attempt
        failed = [check["check"] for check in await self._value("review", "$.checks") if not check["passed"]]
        raise DemoError(f"the report did not pass its second review: it should be that it {'; that it '.join(failed)}")

    async def _step(self, ref: str, directive: dict[str, Any], retry_of: str | None = None) -> str:
        dispatched = await self._client.dispatch(self.run.run_id, ref, directive, retry_of=retry_of)
        await self._work(dispatched)
        step_id: str = dispatched["step_id"]
        return step_id

    async def _fan_out(self, ref: str, directives: list[dict[str, Any]]) -> None:
        """Dispatch one ref once per directive, then let a few workers at a time do them."""
        dispatched = [await self._client.dispatch(self.run.run_id, ref, directive) for directive in directives]
        try:
            async with asyncio.TaskGroup() as group:
                for one in dispatched:
                    group.create_task(self._work(one))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors  # the others were ended because of it

    async def _work(self, dispatched: dict[str, Any]) -> None:
        """Let a worker do one dispatched step, and show what it put out."""
        async with self._workers:
            await _run_worker(self._client.base_url, dispatched["worker_handle"], dispatched["step_ref"])
            await self._show(dispatched)
            await asyncio.sleep(self._plan.pace_seconds)

    async def _show(self, dispatched: dict[str, Any]) -> None:
        run = await self._client.get_run(self.run.run_id)
        key = (dispatched["step_id"], dispatched["attempt"])
        entry = next(entry for entry in run["step_entries"] if (entry["step_id"], entry["attempt"]) == key)
        which = Narrowing(attempt=entry["attempt"], occurrence=entry["occurrence"])
        output = await self._client.get_step(self.run.task_id, entry["name"], self.run.run_id, which)
        self._plan.show(
            f"  {entry['status']:8} {entry['name']:18} attempt {entry['attempt']}   occurrence {entry['occurrence']}"
            f" {output['size_bytes']:>9,} bytes {entry['duration_ms']:>7,} ms"
        )

    async def _value(self, name: str, path: str) -> Any:
        run = self.run
        return parse_json((await self._client.get_content(run.task_id, name, run.run_id, Narrowing(path=path))).body)


async def _run_worker(server_url: str, handle: str, ref: str) -> None:
    """Run one worker process to its end; it is told a server and a handle, and nothing else of ours.

    Raises:
        DemoError: it failed, or took too long.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STEPPLANE_")}
    environment = {**kept, SERVER_VARIABLE: server_url, HANDLE_VARIABLE: handle}
    process = await start(["-m", "app.demo.worker"], environment, asyncio.subprocess.PIPE)
    try:
        _, said = await asyncio.wait_for(process.communicate(), _WORKER_SECONDS)
    except TimeoutError as error:
        raise DemoError(f"the worker of {ref} took over {_WORKER_SECONDS:.0f} seconds") from error
    finally:
        await end(process)
    if process.returncode != 0:
        lines = said.decode(errors="replace").strip().splitlines()
        raise DemoError(f"the worker of {ref} failed: {lines[-1] if lines else f'exit status {process.returncode}'}")
