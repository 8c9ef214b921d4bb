"""Load: wrk, run against servers, and what it says of them.

The invariant: a run in which one request failed is no measurement.
"""

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_CONNECTION_TIMEOUT_SECONDS = 10
_ENDS_WITHIN_SECONDS = 15
_SCRIPTS = Path(__file__).parent


class LoadError(Exception):
    """The load tool is not there, or could not do all its requests."""


class Drive(NamedTuple):
    """One wrk process: what it asks for, and over how many connections.

    ``is_background``: it loads the server beside what is measured, and its own rate and latency are not counted.
    """

    url: str
    connections: int
    script: str | None = None
    arguments: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    is_background: bool = False


class Said(NamedTuple):
    """What one wrk said. No request at all is no failure: the server may have been busy with another's."""

    requests: int
    rate: float
    p50_ms: float
    p99_ms: float


def drive_all(drives: Sequence[Drive], seconds: int) -> list[Said]:
    """Run one wrk for each drive, all at the same time.

    Raises:
        LoadError: one could not do all its requests.
    """
    running: list[subprocess.Popen[str]] = []
    try:
        running += [
            subprocess.Popen(_command(drive, seconds), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            for drive in drives
        ]
        return [parse_wrk(wrk.communicate(timeout=seconds + _ENDS_WITHIN_SECONDS)[0]) for wrk in running]
    except subprocess.TimeoutExpired as error:
        message = f"wrk did not end {_ENDS_WITHIN_SECONDS} s after it should have"
        raise LoadError(message) from error
    finally:
        for wrk in running:
            wrk.kill()  # of no effect on one that has ended
            wrk.communicate()


def parse_wrk(text: str) -> Said:
    """Read what ``wrk --latency`` printed.

    Raises:
        LoadError: a request failed, or this is no output of wrk.
    """
    failed = re.search(r"^ *(Non-2xx.*|Socket errors:.*)$|unable to connect.*", text, re.MULTILINE)
    if failed is not None:
        raise LoadError(f"wrk: {failed[0].strip()}")
    requests = re.search(r"^ *(\d+) requests in ", text, re.MULTILINE)
    rate = re.search(r"^Requests/sec: +([\d.]+)$", text, re.MULTILINE)
    if requests is None or rate is None:
        raise LoadError(f"this is no output of wrk: {text.strip() or 'it said nothing'}")
    return Said(int(requests[1]), float(rate[1]), _percentile(text, 50), _percentile(text, 99))


def find_wrk() -> str:
    """Return where wrk is.

    Raises:
        LoadError: it is not installed.
    """
    found = shutil.which("wrk")
    if found is None:
        raise LoadError("the load tool wrk is missing; Debian, Ubuntu: apt-get install wrk")
    return found


_MS = {"us": 0.001, "ms": 1.0, "s": 1000.0, "m": 60_000.0}


def _percentile(text: str, percent: int) -> float:
    found = re.search(rf"^ *{percent}% +([\d.]+)(us|ms|s|m) *$", text, re.MULTILINE)
    if found is None:
        raise LoadError(f"wrk told no latency at {percent} %: {text.strip()}")
    return float(found[1]) * _MS[found[2]]


def _command(drive: Drive, seconds: int) -> list[str]:
    command = [find_wrk(), "--threads", "1", "--connections", str(drive.connections), "--duration", f"{seconds}s"]
    command += ["--latency", "--timeout", f"{_CONNECTION_TIMEOUT_SECONDS}s"]
    for header in drive.headers:
        command += ["--header", header]
    if drive.script is not None:
        command += ["--script", str(_SCRIPTS / drive.script)]
    command.append(drive.url)
    return [*command, "--", *drive.arguments] if drive.arguments else command
