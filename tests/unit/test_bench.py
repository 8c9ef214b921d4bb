"""The benchmark's arithmetic: what it reads from wrk and Linux, and what rounds come to. Nothing is measured here."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from bench.cases import SUITES, Case, pause_between
from bench.documents import body_of, document, table_document
from bench.load import LoadError, parse_wrk
from bench.probes import InProcessProbe, Sample
from bench.ratios import Target, median_ratio, spread, verdict
from bench.run import BEGIN_MARK, END_MARK, FULL, QUICK, README, with_results
from bench.table import as_json, markdown, rounds_of, rows_of
from bench.usage import parse_cpu_ticks, parse_kib

WRK = """Running 1s test @ http://127.0.0.1:39065/v1/tasks
  1 threads and 32 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   319.62ms  214.88ms   1.05s    73.44%
    Req/Sec    58.00      8.72    80.00     90.91%
  Latency Distribution
     50%  729.00us
     75%  390.39ms
     90%  580.70ms
     99%    1.05s 
  64 requests in 1.10s, 1.30MB read
Requests/sec:     58.23
Transfer/sec:      1.18MB
"""  # noqa: W291 - wrk pads so


def samples(rates: Sequence[float], **fields: Any) -> list[Sample]:
    return [Sample(rate=rate, cpu_us=1e6 / rate, **fields) for rate in rates]


def case(target: Target | None = None, **fields: Any) -> Case:
    probes = [InProcessProbe(name, lambda: None) for name in ("ours", "theirs")]
    return Case("a case", probes[0], probes[1], target, **fields)


# --- what is read --------------------------------------------------------------------------------


def test_wrk_is_read_with_its_units() -> None:
    """Requests, rate and percentiles are read, and all times are milliseconds."""
    assert parse_wrk(WRK) == (64, 58.23, 0.729, 1050.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (WRK + "  Non-2xx or 3xx responses: 3\n", "Non-2xx or 3xx responses: 3"),
        (WRK + "  Socket errors: connect 0, read 1, write 0, timeout 0\n", "read 1"),
        ("unable to connect to 127.0.0.1:1 Connection refused\n", "unable to connect"),
        (WRK.replace("99%", "98%"), "no latency at 99 %"),
        ("", "it said nothing"),
    ],
)
def test_a_run_with_a_failure_is_no_measurement(text: str, said: str) -> None:
    """A refused connection, an error status, a broken read or an odd output ends the benchmark."""
    with pytest.raises(LoadError, match=said):
        parse_wrk(text)


def test_no_answer_in_time_is_no_failure() -> None:
    """A server that another process kept from answering is measured as such."""
    assert parse_wrk(WRK.replace("64 requests", "0 requests")).requests == 0


def test_processor_time_is_that_of_user_and_kernel() -> None:
    """The fields are counted from behind the command's name, which may hold anything."""
    assert parse_cpu_ticks("7 (a) b (c) S 1 7 7 0 -1 4 115 0 0 0 31 11 0 0 20 0 4 0 447340 3133440 359") == 42


def test_memory_is_read_by_its_key() -> None:
    """Sizes of the status are those of the line that is asked for, and a missing line is told."""
    status = "VmPeak:\t  300 kB\nVmHWM:\t  200 kB\nVmRSS:\t  100 kB\n"
    assert (parse_kib(status, "VmHWM"), parse_kib(status, "VmRSS")) == (200, 100)
    with pytest.raises(ValueError, match="VmSwap"):
        parse_kib(status, "VmSwap")


# --- what rounds come to -------------------------------------------------------------------------


def test_a_ratio_is_the_median_of_the_rounds() -> None:
    """Each round is divided by its own baseline, so a machine that slows down for both changes nothing."""
    assert median_ratio([10, 5, 100], [20, 10, 20]) == 0.5
    with pytest.raises(ValueError, match="zip"):
        median_ratio([1, 2], [1])


def test_a_spread_is_a_part_of_the_median() -> None:
    """The distance of the extremes counts, by the median."""
    assert spread([90, 100, 120]) == pytest.approx(0.3)
    assert spread([7, 7]) == 0


@pytest.mark.parametrize(
    ("ratio", "target", "baseline_spread", "said"),
    [
        (0.5, Target(0.3, 0.5), 0.25, "pass, goal"),
        (0.3, Target(0.3, 0.5), 0.25, "pass"),
        (0.29, Target(0.3, 0.5), 0.0, "miss"),
        (0.9, Target(0.3, 0.5), 0.26, "inconclusive"),
        (0.9, None, 0.26, "inconclusive"),
        (0.9, None, 0.0, ""),
        (2.5, Target(4, 2.5, at_most=True), 0.0, "pass, goal"),
        (4.0, Target(4, 2.5, at_most=True), 0.0, "pass"),
        (4.1, Target(4, 2.5, at_most=True), 0.0, "miss"),
    ],
)
def test_a_verdict_follows_from_target_and_spread(
    ratio: float, target: Target | None, baseline_spread: float, said: str
) -> None:
    """Bounds belong to the good side, and an unsteady baseline lets nothing be said."""
    assert verdict(ratio, target, baseline_spread) == said


def test_writers_pause_for_what_they_are_too_fast() -> None:
    """Eight clients that do 2,000 submits a second without a pause do 1,000 with one of 4 ms; none is sped up."""
    assert pause_between(1_000, 2_000, 8) == 4
    assert pause_between(2_000, 1_000, 8) == 0


# --- what comes out ------------------------------------------------------------------------------


def test_the_table_tells_every_number_once() -> None:
    """A case is a line: ratio, target, verdict, its own medians, and those of its baseline."""
    ours, theirs = samples([100, 200, 300], p50_ms=1.5, p99_ms=12.345, peak_mib=99.6), samples([1000, 1000, 1100])
    lines = markdown(rows_of(case(Target(0.1, 0.4)), ours, theirs)).splitlines()
    assert lines[2] == (
        "| a case | 0.200 | ≥ 0.1; 0.4 | pass | 200 | 1.50 | 12.3 | 5,000 | 100 | theirs | 1,000 | 5.00 | 10% |"
    )
    assert {line.count("|") for line in lines} == {14}


def test_a_case_of_latencies_is_judged_by_them() -> None:
    """The ratio and the spread of a case of p99 are those of p99, and its share of reads is told."""
    ours = samples([900], p99_ms=30, background_rate=100)
    (row,) = rows_of(case(Target(4, 2.5, at_most=True), quantity="p99_ms"), ours, samples([500], p99_ms=10))
    assert (row.value, row.verdict, row.note) == (3.0, "pass", "90% of the requests were reads")
    assert row.note in markdown([row])


def test_a_load_that_starved_is_told() -> None:
    """Two processes that do not share fairly show it below the table."""
    starved = [sample._replace(has_starved=True) for sample in samples([10])]
    (row,) = rows_of(case(), [*starved, *samples([10])], samples([10, 10]))
    assert row.note == "in 1 of 2 rounds one of its loads got no answer at all"


def test_memory_is_a_line_of_its_own() -> None:
    """What a server grows for each of 32 connections is told in MiB, by the round in which it grew most."""
    ours = [*samples([10], grown_mib=64), *samples([10], grown_mib=0)]
    rows = rows_of(case(memory_target=Target(2, 0.7, at_most=True)), ours, samples([10, 10]))
    assert [(row.value, row.unit, row.verdict) for row in rows] == [(1.0, "", ""), (2.0, "MiB", "pass")]
    assert "| memory per concurrent body, a case | 2.00 MiB | ≤ 2; 0.7 | pass |  |" in markdown(rows)


def test_rounds_that_the_time_cut_off_are_told() -> None:
    """The number of rounds is part of the results."""
    rows = [*rows_of(case(), samples([1]), samples([1])), *rows_of(case(), samples([1, 1]), samples([1, 1]))]
    assert (rounds_of(rows[:1]), rounds_of(rows)) == ("1 round", "1 to 2 rounds")


def test_the_json_has_what_the_table_has() -> None:
    """Programs read the same numbers, unrounded, with the machine beside them."""
    rows = rows_of(case(Target(0.1, 0.4)), samples([100]), samples([300]))
    document_ = json.loads(as_json(rows, {"cores": "2"}))
    assert document_["machine"] == {"cores": "2"}
    assert document_["rows"][0]["value"] == pytest.approx(1 / 3)
    assert document_["rows"][0]["target"] == {"floor": 0.1, "goal": 0.4, "at_most": False}


def test_results_replace_results() -> None:
    """Written twice, the README holds the newer table alone, and all around the marks stays."""
    once = with_results(f"before\n{BEGIN_MARK}\n{END_MARK}\nafter\n", "old")
    assert with_results(once, "new") == f"before\n{BEGIN_MARK}\n\nnew\n\n{END_MARK}\nafter\n"


def test_the_readme_has_a_place_for_the_results() -> None:
    """What `--write-results` looks for is there, once."""
    assert "results" in with_results(README.read_text(), "results")


# --- what is measured ----------------------------------------------------------------------------


@pytest.mark.parametrize("size_bytes", [128, 1024, 100 * 1024])
def test_a_document_has_exactly_its_size(size_bytes: int) -> None:
    """The bytes that a server must answer have the size that the case names."""
    assert len(body_of(document("step-0000", size_bytes))) == size_bytes
    assert len(body_of(table_document(4096, 3))) == 4096


def test_a_document_cannot_be_smaller_than_its_frame() -> None:
    """Too small a size is refused, and never silently a larger document."""
    with pytest.raises(ValueError, match="too few"):
        document("step-0000", 10)


def test_the_plans_name_suites_that_exist() -> None:
    """Each plan's suites are known, and the full one leaves none out and has at least five rounds."""
    assert set(QUICK.suites) < set(FULL.suites) == set(SUITES)
    assert FULL.rounds >= 5
