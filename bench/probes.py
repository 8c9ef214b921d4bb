"""Probes: what can be measured for a second, and gives a sample.

The invariant: processor time and peak memory are those of the servers alone, over the very seconds of the load.
"""

import json
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from bench import usage
from bench.load import Drive, LoadError, drive_all
from bench.servers import Server, Stage

_SECONDS_IN_PROCESS = 0.5


class Sample(NamedTuple):
    """What one measurement said; times in process have no percentiles, and no server.

    ``has_starved``: one of several servers answered nothing the whole time, while another did.
    """

    rate: float
    cpu_us: float
    p50_ms: float | None = None
    p99_ms: float | None = None
    peak_mib: float | None = None
    grown_mib: float | None = None
    background_rate: float = 0.0
    has_starved: bool = False


class Probe(Protocol):
    """Something that can be measured again and again."""

    @property
    def name(self) -> str:
        """What it is, in a few words."""
        ...

    def measure(self, seconds: int) -> Sample:
        """Measure for about so long."""
        ...


@dataclass(frozen=True)
class LoadProbe:
    """Servers under load."""

    name: str
    drives: tuple[Drive, ...]
    servers: tuple[Server, ...]

    def measure(self, seconds: int) -> Sample:
        """Drive the load, and ask what it cost the servers.

        Raises:
            LoadError: a request failed, or none was answered.
        """
        pids = [server.pid for server in self.servers]
        for pid in pids:
            usage.reset_peak(pid)
        before_mib = sum(map(usage.resident_mib, pids))
        before_seconds = sum(map(usage.cpu_seconds, pids))
        said = drive_all(self.drives, seconds)
        spent_seconds = sum(map(usage.cpu_seconds, pids)) - before_seconds
        peak_mib = sum(map(usage.peak_mib, pids))
        pairs = list(zip(self.drives, said, strict=True))
        counted = [each for drive, each in pairs if not drive.is_background]
        if not any(each.requests for each in counted):
            raise LoadError(f"{self.name}: nothing was answered in {seconds} s")
        has_starved = not all(each.requests for each in said)
        return Sample(
            rate=sum(each.rate for each in counted),
            cpu_us=spent_seconds / sum(each.requests for each in said) * 1e6,
            p50_ms=max(each.p50_ms for each in counted),
            p99_ms=max(seconds * 1000.0 if has_starved else 0.0, *(each.p99_ms for each in counted)),
            peak_mib=peak_mib,
            grown_mib=peak_mib - before_mib,
            background_rate=sum(each.rate for drive, each in pairs if drive.is_background),
            has_starved=has_starved,
        )


@dataclass(frozen=True)
class InProcessProbe:
    """A piece of work, done here over and over."""

    name: str
    work: Callable[[], object]

    def measure(self, seconds: int) -> Sample:  # noqa: ARG002 - steady within half a second
        """Repeat the work, and tell how often it could be done."""
        began, began_cpu, times = time.perf_counter(), time.process_time(), 0
        while (passed := time.perf_counter() - began) < _SECONDS_IN_PROCESS:
            self.work()
            times += 1
        return Sample(rate=times / passed, cpu_us=(time.process_time() - began_cpu) / times * 1e6)


def load_probe(name: str, server: Server, drive: Drive) -> LoadProbe:
    """Make the probe of one server under one load."""
    return LoadProbe(name, (drive,), (server,))


def parse_twice(body: bytes) -> InProcessProbe:
    """Make the probe that parses a body twice: what an answer costs that does so at each request."""

    def work() -> None:
        json.loads(body)
        json.loads(body)

    return InProcessProbe("json.loads twice", work)


def commits(stage: Stage, path: Path, body: bytes) -> InProcessProbe:
    """Make the probe of plain SQLite commits of one row each, as durable as the product's."""
    connection = sqlite3.connect(path, isolation_level=None)
    stage.at_end(connection.close)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, data BLOB NOT NULL)")

    def work() -> None:
        connection.execute("INSERT INTO rows (data) VALUES (?)", (body,))

    return InProcessProbe("sqlite3 commits", work)


def better_of(probes: Sequence[LoadProbe], seconds: int) -> LoadProbe:
    """Measure each once and return the one that did more: a baseline is the best that there is."""
    return max(probes, key=lambda probe: probe.measure(seconds).rate)
