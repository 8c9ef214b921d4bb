"""Logs and metrics: how both are set up, and the metric objects.

The invariant: no token, handle or settings object is ever logged, and no raw path becomes a label.
"""

import contextlib
import logging
import sys
from bisect import bisect_left
from collections import Counter as Counted
from collections.abc import Iterator
from itertools import accumulate

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

REGISTRY = CollectorRegistry()


class HotMetrics(Collector):
    """What is counted at every request, in plain numbers that become metrics when they are asked for.

    A metric object takes a lock at each count: with four of them a request, a sixth of what a read costs. Each number
    here is added to by one thread: requests and reads by the event loop, writes by whoever writes.
    """

    def __init__(self) -> None:
        self._requests: Counted[tuple[str, str, int]] = Counted()
        self._counts: dict[str, list[int]] = {}  # by route, one a bucket; bounded, as routes are templates
        self._sums: dict[str, float] = {}
        self._database = {"read": 0.0, "write": 0.0}

    def count_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one request."""
        self._requests[method if method in _METHODS else "other", route, status] += 1
        counts = self._counts.get(route)
        if counts is None:
            counts = self._counts[route] = [0] * (len(_BUCKETS) + 1)
            self._sums[route] = 0.0
        counts[bisect_left(_BUCKETS, seconds)] += 1
        self._sums[route] += seconds

    def count_database(self, operation: str, seconds: float) -> None:
        """Count time spent in the database; ``operation`` is ``read`` or ``write``."""
        self._database[operation] += seconds

    def collect(self) -> Iterator[Metric]:
        """Yield the numbers as metrics."""
        requests = CounterMetricFamily(
            "stepplane_requests", "Requests, by route template and status.", labels=("method", "route", "status")
        )
        for (method, route, status), count in self._requests.items():
            requests.add_metric((method, route, str(status)), count)
        yield requests
        seconds = HistogramMetricFamily(
            "stepplane_request_seconds", "Time from a request to the end of its answer.", labels=("route",)
        )
        bounds = (*map(str, _BUCKETS), "+Inf")
        for route, counts in self._counts.items():
            seconds.add_metric((route,), list(zip(bounds, accumulate(counts), strict=True)), self._sums[route])
        yield seconds
        database = CounterMetricFamily(
            "stepplane_database_seconds", "Time spent in the database.", labels=("operation",)
        )
        for operation, spent in self._database.items():
            database.add_metric((operation,), spent)
        yield database


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)

HOT_METRICS = HotMetrics()
REGISTRY.register(HOT_METRICS)
OUTPUTS = Counter(
    "stepplane_outputs_total", "Outputs stored, by the type of their event.", ("type",), registry=REGISTRY
)
OUTPUT_BYTES = Counter("stepplane_output_bytes_total", "Bytes of rendered bodies stored.", registry=REGISTRY)
MATERIALIZE_FAILURES = Counter(
    "stepplane_materialize_failures_total",
    "Files that could not be written; their submits were kept all the same.",
    ("what",),
    registry=REGISTRY,
)
FILE_READ_FAILURES = Counter(
    "stepplane_file_read_failures_total",
    "Reads of materialized files at which the disk failed; the kept value was served in their place.",
    registry=REGISTRY,
)
STORAGE_FULL = Gauge(
    "stepplane_storage_full", "Whether the last write found no room on the disk of the database.", registry=REGISTRY
)
"""All counters count since the process started, as Prometheus expects of them."""


def metrics_text() -> bytes:
    """Write every metric in Prometheus' text format."""
    return generate_latest(REGISTRY)


def set_up_logs(log_format: str, log_level: str) -> None:
    """Send our log lines, and those of the libraries, to standard error in one format.

    Args:
        log_format: ``console`` for people, ``json`` for machines.
        log_level: the least level that is shown.
    """
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    if log_format == "json":
        shared.append(structlog.processors.format_exc_info)
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(),
            pad_event_to=0,
            exception_formatter=structlog.dev.plain_traceback,  # the default one prints locals, and so bearers
        )
    )
    structlog.configure(
        processors=[*shared, renderer],
        logger_factory=lambda *_: _Lines(sys.stderr),  # half the time that a record of the standard library takes
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[log_level.upper()]),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(log_level.upper())
    for chatty in ("uvicorn.access", "httpx", "httpcore", "alembic"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


class _Lines(structlog.WriteLogger):
    """Writes lines, and lets nothing fail where that fails: a full disk, a reader that went away."""

    def msg(self, message: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            super().msg(message)

    debug = info = warning = error = critical = msg
