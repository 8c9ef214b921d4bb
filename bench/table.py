"""The table: what the rounds of every case came to, as Markdown and as JSON.

The invariant: both carry the same numbers, and every one is the median of its rounds.
"""

import json
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from bench.cases import CLIENTS, Case
from bench.probes import Sample
from bench.ratios import Target, median_ratio, spread, verdict


class Row(NamedTuple):
    """One line of the table; ``unit`` is empty for a ratio."""

    case: str
    value: float
    unit: str
    target: Target | None
    verdict: str
    rounds: int
    rate: float
    p50_ms: float | None
    p99_ms: float | None
    cpu_us: float
    peak_mib: float | None
    baseline: str
    baseline_rate: float
    baseline_p99_ms: float | None
    baseline_cpu_us: float
    baseline_spread: float
    cpu_ratio: float
    note: str = ""


def rows_of(case: Case, subject: Sequence[Sample], baseline: Sequence[Sample]) -> list[Row]:
    """Make the lines of a case from its rounds."""
    ours, theirs = ([_quantity(case, sample) for sample in samples] for samples in (subject, baseline))
    ratio, baseline_spread = median_ratio(ours, theirs), spread(theirs)
    row = Row(
        case=case.name,
        value=ratio,
        unit="",
        target=case.target,
        verdict=verdict(ratio, case.target, baseline_spread),
        rounds=len(subject),
        rate=median(sample.rate for sample in subject),
        p50_ms=_median([sample.p50_ms for sample in subject]),
        p99_ms=_median([sample.p99_ms for sample in subject]),
        cpu_us=median(sample.cpu_us for sample in subject),
        peak_mib=_median([sample.peak_mib for sample in subject]),
        baseline=case.baseline.name,
        baseline_rate=median(sample.rate for sample in baseline),
        baseline_p99_ms=_median([sample.p99_ms for sample in baseline]),
        baseline_cpu_us=median(sample.cpu_us for sample in baseline),
        baseline_spread=baseline_spread,
        cpu_ratio=median_ratio([sample.cpu_us for sample in subject], [sample.cpu_us for sample in baseline]),
        note="; ".join(filter(None, (_share_of_reads(subject), _starved(subject)))),
    )
    return [row] if case.memory_target is None else [row, _memory_row(row, case.memory_target, subject)]


def markdown(rows: Sequence[Row]) -> str:
    """Write the table for people."""
    lines = [_HEAD, _RULE]
    for row in rows:
        cells = [row.case, _value(row), _bounds(row.target), row.verdict, *_measured(row)]
        lines.append(f"| {' | '.join(cells)} |")
    notes = [f"\n{row.case}: {row.note}." for row in rows if row.note]
    return "\n".join([*lines, *notes])


def rounds_of(rows: Sequence[Row]) -> str:
    """Say how many rounds the numbers are medians of; when the time was up, some lines have fewer than others."""
    few, many = min(row.rounds for row in rows), max(row.rounds for row in rows)
    return f"{many} round{'s' * (many > 1)}" if few == many else f"{few} to {many} rounds"


def as_json(rows: Sequence[Row], machine: dict[str, str]) -> str:
    """Write the table for programs."""
    lines = [row._asdict() | {"target": None if row.target is None else row.target._asdict()} for row in rows]
    return json.dumps({"machine": machine, "rows": lines}, indent=2)


_HEAD = (
    "| case | ratio | floor; goal | | requests/s | p50 ms | p99 ms | CPU µs | peak MiB "
    "| baseline | its rate | CPU ratio | its spread |"
)
_RULE = "|---|--:|--:|---|--:|--:|--:|--:|--:|---|--:|--:|--:|"


def _measured(row: Row) -> list[str]:
    if row.unit:
        return [""] * 9
    return [
        f"{row.rate:,.0f}",
        _number(row.p50_ms),
        _number(row.p99_ms),
        _number(row.cpu_us),
        "" if row.peak_mib is None else f"{row.peak_mib:.0f}",
        row.baseline,
        f"{row.baseline_rate:,.0f}",
        _number(row.cpu_ratio),
        f"{row.baseline_spread:.0%}",
    ]


def _memory_row(row: Row, target: Target, subject: Sequence[Sample]) -> Row:
    """Tell how much the server grew for each connection: by the largest round, since what it once took it may keep."""
    grown = max(sample.grown_mib or 0.0 for sample in subject) / CLIENTS
    return row._replace(
        case=f"memory per concurrent body, {row.case}",
        value=grown,
        unit="MiB",
        target=target,
        verdict=verdict(grown, target, 0.0),
        note="",
    )


def _share_of_reads(subject: Sequence[Sample]) -> str:
    if not any(sample.background_rate for sample in subject):
        return ""
    share = median(sample.rate / (sample.rate + sample.background_rate) for sample in subject)
    return f"{share:.0%} of the requests were reads"


def _starved(subject: Sequence[Sample]) -> str:
    rounds = sum(sample.has_starved for sample in subject)
    return f"in {rounds} of {len(subject)} rounds one of its loads got no answer at all" if rounds else ""


def _quantity(case: Case, sample: Sample) -> float:
    return sample.rate if case.quantity == "rate" else sample.p99_ms or 0.0


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _value(row: Row) -> str:
    return f"{_number(row.value)} {row.unit}".strip()


def _bounds(target: Target | None) -> str:
    if target is None:
        return ""
    sign = "≤" if target.at_most else "≥"
    return f"{sign} {target.floor:.2g}; {target.goal:.2g}"


def _number(value: float | None) -> str:
    """Write three digits that count."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:#.3g}"  # noqa: PLR2004 - three digits
