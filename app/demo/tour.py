"""What the demo prints at its end: how to look at the run, line by line, ready to paste.

The invariant: each line works as it stands in a POSIX shell, and no line holds a secret.
"""

import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from app.client import StepplaneClient
from app.demo.pipeline import FinishedRun
from app.demo.worker import PART
from app.domain.rendering import WHOLE, Narrowing, content_path, etag_of, steps_path

_BEARER = '-H "Authorization: Bearer $STEPPLANE_OPERATOR_TOKEN" '


async def tour_of(client: StepplaneClient, run: FinishedRun, *, with_token: bool, server_option: str) -> str:
    """Write the tour of a finished run, with its real addresses and digests.

    Args:
        client: reads what is there to show.
        run: the run.
        with_token: whether the server wants the operator token.
        server_option: what the command line needs to reach this server, such as `` --server URL``; may be empty.
    """
    measure = await client.get_step(run.task_id, "measure", run.run_id)
    inventory = await client.get_step(run.task_id, "inventory", run.run_id)
    curl = _Curl(client.base_url, run, _BEARER if with_token else "")
    sections = (
        _browse(curl),
        _narrow(curl, measure["occurrences"]),
        _cache(curl, inventory["sha256"]),
        _commands(run, server_option),
    )
    return "\n".join(line for section in sections for line in section)


def keeping(database_url: str | None) -> str:
    """Write where all of it is kept, and the line that removes what is old.

    Args:
        database_url: the database of the server that was started here; None leaves it to the shell's own variable.
    """
    where = "the database of STEPPLANE_DATABASE_URL" if database_url is None else database_url
    setting = "" if database_url is None else f"STEPPLANE_DATABASE_URL={shlex.quote(database_url)} "
    told = f"What was put out is kept in {where}. What is old there, and goes without --dry-run:"
    return f"{told}\n  {setting}{_program()} prune --older-than 30d --dry-run"


class _Curl:
    def __init__(self, base_url: str, run: FinishedRun, header: str) -> None:
        self._base_url = base_url
        self._run = run
        self._header = header

    def steps(self) -> str:
        return self._line("-s", steps_path(*self._run))

    def step(self, name: str) -> str:
        return self._line("-s", content_path(*self._run, name).removesuffix("/content"))

    def content(self, name: str, narrowing: Narrowing = WHOLE, options: str = "-s") -> str:
        return self._line(options, content_path(*self._run, name, narrowing))

    def etags(self, *names: str) -> str:
        url = f"{self._base_url}{steps_path(*self._run)}/$name/content"  # ids and a host: nothing for a shell to expand
        return f"  for name in {' '.join(names)}; do curl -sI {self._header}\"{url}\" | grep -i '^etag'; done"

    def _line(self, options: str, path: str) -> str:
        return f"  curl {options} {self._header}{shlex.quote(self._base_url + path)}"


def _browse(curl: _Curl) -> Iterator[str]:
    yield "What the run put out, one summary a name:"
    yield curl.steps()
    yield "One step, without its OUTPUT:"
    yield curl.step("source-report")
    yield "The OUTPUT itself: its file as it lies on disk, the bare text, and the part staged before it:"
    yield curl.content("source-report")
    yield curl.content("source-report", Narrowing(format="raw"))
    yield curl.content(PART)


def _narrow(curl: _Curl, occurrences: int) -> Iterator[str]:
    yield "One value of it, by a path with an array index ($.files[0].path), and a whole branch:"
    yield curl.content("inventory", Narrowing(path="$.files[0].path"))
    yield curl.content("longest-functions", Narrowing(path="$.functions"))
    yield f"The first of the {occurrences} occurrences of one name, and the attempt that was blocked:"
    yield curl.content("measure", Narrowing(occurrence=1))
    yield curl.content("review", Narrowing(attempt=1))


def _cache(curl: _Curl, sha256: str) -> Iterator[str]:
    yield "Three names of one step, one ETag; and with that ETag there is nothing to send (304):"
    yield curl.etags("inventory", "scan", "files")
    tag = shlex.quote(f"If-None-Match: {etag_of(sha256)}")
    yield curl.content("inventory", options=f"-s -o /dev/null -w '%{{http_code}}\\n' -H {tag}")


def _commands(run: FinishedRun, server_option: str) -> Iterator[str]:
    yield "The same from the command line:"
    program = _program()
    for command in (
        f"steps {run.task_id}",
        f"step {run.task_id} source-report",
        f"content {run.task_id} source-report --format raw",
        f"content {run.task_id} inventory --path '$.languages[0]'",
    ):
        yield f"  {program} {command}{server_option}"


def _program() -> str:
    """Name the command as this shell finds it: a local environment is seldom on the PATH."""
    if shutil.which("stepplane"):
        return "stepplane"
    path = Path(sys.executable).with_name("stepplane")
    return shlex.quote(str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path))
