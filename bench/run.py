"""The command: start, check, measure by turns, print, and leave nothing behind.

The invariant: it ends in bounded time: what does not fit any more is left out, and said to be.
"""

import argparse
import os
import platform
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import NoReturn

from bench.cases import CLIENTS, QUICK_SUITES, SUITES, Bench, Case
from bench.checks import WrongAnswer
from bench.load import Drive, LoadError, find_wrk
from bench.probes import Probe, Sample, load_probe
from bench.servers import ROOT, Stage, StartError
from bench.table import Row, as_json, markdown, rounds_of, rows_of

README = Path(__file__).parent / "README.md"
BEGIN_MARK, END_MARK = "<!-- results -->", "<!-- end of results -->"


@dataclass(frozen=True)
class Plan:
    """How thoroughly to measure.

    ``baseline_for_seconds``: how long a baseline's measurement stands for the cases after it; 0 measures it anew
    before each.
    """

    suites: Sequence[str]
    rounds: int
    seconds: int
    baseline_for_seconds: float
    within_seconds: float


_NEEDS_SECONDS = {"crowd": 150}
"""Suites whose seeding takes so long that they are not begun when less time is left."""

FULL = Plan(tuple(SUITES), rounds=5, seconds=1, baseline_for_seconds=0, within_seconds=450)
QUICK = Plan(QUICK_SUITES, rounds=3, seconds=1, baseline_for_seconds=4, within_seconds=75)


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark and return its exit status."""
    given = _parser().parse_args(arguments)
    plan = QUICK if given.quick else FULL
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    try:
        find_wrk()
        rows = _run(plan, given.only, given.runs, is_quick=given.quick)
    except KeyboardInterrupt:
        return 130
    except (LoadError, StartError, WrongAnswer) as error:
        sys.stderr.write(f"bench: {error}\n")
        return 1
    return _report(rows, given)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer cases, three rounds: under 90 seconds")
    parser.add_argument("--only", metavar="SUITE", choices=SUITES, action="append", help="one suite; repeatable")
    parser.add_argument("--runs", type=int, default=100_000, help="runs of the large database, ten outputs each")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the numbers there as well")
    parser.add_argument("--write-results", action="store_true", help="put the table into bench/README.md")
    return parser


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


def _run(plan: Plan, only: Sequence[str] | None, runs: int, *, is_quick: bool) -> list[Row]:
    clock = _Clock(plan.within_seconds)
    rows: list[Row] = []
    with Stage() as stage:
        server = stage.start_bare()
        bare = load_probe("bare answer", server, Drive(f"{server.url}/", CLIENTS))
        bench = Bench(stage, bare, is_quick, runs, clock.say)
        for name in only or plan.suites:
            if clock.left_seconds < _NEEDS_SECONDS.get(name, 0):
                clock.say(f"{name} is left out: the time is up")
                continue
            rows += _measure(plan, SUITES[name](bench), clock)
    return rows


@dataclass
class _Clock:
    within_seconds: float
    began: float = field(default_factory=time.monotonic)

    @property
    def left_seconds(self) -> float:
        return self.began + self.within_seconds - time.monotonic()

    def say(self, what: str) -> None:
        sys.stderr.write(f"{time.monotonic() - self.began:5.0f} s  {what}\n")
        sys.stderr.flush()


def _measure(plan: Plan, cases: Sequence[Case], clock: _Clock) -> list[Row]:
    """Measure every case once in each round, next to its baseline."""
    ours: dict[str, list[Sample]] = {case.name: [] for case in cases}
    theirs: dict[str, list[Sample]] = {case.name: [] for case in cases}
    taken: dict[Probe, tuple[float, Sample]] = {}
    for number in range(plan.rounds):
        if clock.left_seconds < 0:
            clock.say(f"only {number} rounds: the time is up")
            break
        for case in cases:
            at, sample = taken.get(case.baseline, (float("-inf"), None))
            if sample is None or time.monotonic() - at > plan.baseline_for_seconds:
                sample = case.baseline.measure(plan.seconds)
                taken[case.baseline] = (time.monotonic(), sample)
            theirs[case.name].append(sample)
            ours[case.name].append(case.subject.measure(plan.seconds))
        clock.say(f"round {number + 1} of {plan.rounds}: {', '.join(case.name for case in cases)}")
    return [row for case in cases if ours[case.name] for row in rows_of(case, ours[case.name], theirs[case.name])]


# --- what comes out ------------------------------------------------------------------------------


def _report(rows: Sequence[Row], given: argparse.Namespace) -> int:
    if not rows:
        sys.stderr.write("bench: nothing was measured\n")
        return 1
    machine = _machine()
    results = f"{_sentence(machine)} Medians of {rounds_of(rows)}.\n\n{markdown(rows)}"
    print(results)
    if given.json is not None:
        given.json.write_text(as_json(rows, machine) + "\n")
    if given.write_results:
        README.write_text(with_results(README.read_text(), results))
    return 0


def with_results(text: str, results: str) -> str:
    """Replace what stands between the two marks.

    Raises:
        ValueError: a mark is missing.
    """
    before, rest = text.split(BEGIN_MARK)
    _, after = rest.split(END_MARK)
    return f"{before}{BEGIN_MARK}\n\n{results}\n\n{END_MARK}{after}"


def _machine() -> dict[str, str]:
    return {
        "cores": str(len(os.sched_getaffinity(0))),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "commit": _commit(),
    }


def _sentence(machine: dict[str, str]) -> str:
    return (
        f"{machine['cores']} cores, Python {machine['python']}, SQLite {machine['sqlite']}; commit {machine['commit']}."
    )


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
