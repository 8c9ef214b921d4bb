"""Logs and metrics: how both are set up, and the metric objects.

The invariant: no token, handle or settings object is ever logged, and no raw path becomes a label.
"""

import logging
import sys

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

REGISTRY = CollectorRegistry()

REQUESTS = Counter(
    "stepplane_requests_total",
    "Requests, by route template and status.",
    ("method", "route", "status"),
    registry=REGISTRY,
)
REQUEST_SECONDS = Histogram(
    "stepplane_request_seconds",
    "Time from a request to the end of its answer.",
    ("route",),
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10),
    registry=REGISTRY,
)
DATABASE_SECONDS = Counter(
    "stepplane_database_seconds_total", "Time spent in the database.", ("operation",), registry=REGISTRY
)
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
"""All metrics count since the process started, as Prometheus expects of counters."""


def count_request(method: str, route: str, status: int, seconds: float) -> None:
    """Count one request. The metric objects of each kind are kept at hand: finding them costs more than counting."""
    key = (method if method in _METHODS else "other", route, status)
    counted = _counted.get(key)
    if counted is None:
        counted = _counted[key] = (REQUESTS.labels(*key), REQUEST_SECONDS.labels(route))
    requests, request_seconds = counted
    requests.inc()
    request_seconds.observe(seconds)


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_counted: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}  # bounded: routes are templates, methods known


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
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
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
