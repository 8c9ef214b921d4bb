"""What pages are made of, with no server: words for sizes and times, bars, sessions."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import StepplaneError, Unauthenticated, Unavailable
from app.domain.records import RunStatus, RunSummary, StepEntry, StepStatus, wire_time
from app.services.sessions import SESSION_LASTS, Sessions
from app.web import formats
from app.web.bars import TRACK_PX
from app.web.error_pages import error_page, is_page
from app.web.pages import Pages
from app.web.shown_rows import ShownRows
from app.web.statics import Statics
from app.web.timeline import MAX_LANES, scale_of, timeline_of
from app.web.urls import run_url, step_url, with_query

START = datetime(2026, 11, 30, 12, tzinfo=UTC)
WEB = Path(__file__).parents[2] / "app" / "web"


class TestFormats:
    @pytest.mark.parametrize(
        ("size_bytes", "text"),
        [
            (0, "0 B"), (1, "1 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (9_738, "9.5 KiB"), (102_400, "100 KiB"),
            (2 * 1024**2, "2.0 MiB"), (5 * 1024**3, "5.0 GiB"), (3 * 1024**4, "3.0 TiB"), (9_999 * 1024**4, "9999 TiB"),
        ],
    )  # fmt: skip
    def test_sizes(self, size_bytes: int, text: str) -> None:
        """A size is told with two or three digits and a unit of 1,024."""
        assert formats.size(size_bytes) == text

    @pytest.mark.parametrize(
        ("elapsed", "text"),
        [
            (0, "0 ms"), (999, "999 ms"), (1_000, "1.0 s"), (1_449, "1.4 s"), (1_450, "1.5 s"), (59_949, "59.9 s"),
            (59_950, "1 m 00 s"), (185_400, "3 m 05 s"), (185_500, "3 m 06 s"), (3_599_499, "59 m 59 s"),
            (3_599_500, "1 h 00 m"), (86_369_999, "23 h 59 m"), (86_370_000, "1 d 0 h"),
            (99 * 86_400_000, "99 d 0 h"),
        ],
    )  # fmt: skip
    def test_durations(self, elapsed: int, text: str) -> None:
        """A duration is told by its two largest units, rounded; what is rounded to a whole unit is told in that."""
        assert formats.duration(elapsed) == text

    @pytest.mark.parametrize(
        ("total", "words"),
        [
            (1, "0, 1 ms"), (640, "0, 0.2 s, 0.4 s, 0.6 s"), (2_300, "0, 0.5 s, 1 s, 1.5 s, 2 s"),
            (47_000, "0, 10 s, 20 s, 30 s, 40 s"), (100_000, "0, 20 s, 40 s, 60 s, 80 s, 100 s"),
            (100_001, "0, 1 m"), (3 * 3_600_000, "0, 1 h, 2 h, 3 h"), (12 * 86_400_000, "0, 5 d, 10 d"),
        ],
    )  # fmt: skip
    def test_round_times(self, total: int, words: str) -> None:
        """An axis is told in steps of 1, 2 or 5, or ten times that, of a unit that people count in."""
        assert ", ".join(word for _, word in formats.round_times(total)) == words

    @given(st.integers(1, 10**13))
    def test_round_times_are_few_and_within(self, total: int) -> None:
        """Whatever the total, a handful of times begins at 0 and does not leave it."""
        times = [at for at, _ in formats.round_times(total)]
        assert times[0] == 0
        assert max(times) <= total
        assert 1 <= len(times) <= 50

    def test_other_words(self) -> None:
        """Counts agree with their noun, sentences begin and end as sentences do, times name their zone."""
        assert formats.count(1, "step") == "1 step"
        assert formats.count(2_000, "step") == "2,000 steps"
        assert formats.count(0, "dispatch", "dispatches") == "0 dispatches"
        assert formats.sentence("no run has the id 'R-1'") == "No run has the id 'R-1'."
        assert formats.sentence("Why?") == "Why?"
        assert formats.sentence("") == "."
        assert formats.moment("2026-11-30T12:34:56.789Z") == "2026-11-30 12:34:56 UTC"


class TestUrls:
    @given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
    def test_a_name_survives_its_url(self, name: str) -> None:
        """Any name travels in the query, where nothing normalises it, and comes out as it went in."""
        url = step_url("T-1", "R-1", name, occurrence=2)
        path, _, query = url.partition("?")
        assert path == "/ui/tasks/T-1/runs/R-1/step"
        assert parse_qs(query, strict_parsing=True) == {"name": [name], "occurrence": ["2"]}
        assert re.fullmatch(r"[A-Za-z0-9_.~%&=-]*", query)

    def test_what_says_nothing_is_left_away(self) -> None:
        """A URL has no empty parameter and no first page."""
        assert with_query("/ui", {"q": "", "cursor": None}) == "/ui"
        assert run_url("T-1", "R-1", q="a b", page=1) == "/ui/tasks/T-1/runs/R-1?q=a%20b"
        assert run_url("T-1", "R-1", sort="-size", page=2) == "/ui/tasks/T-1/runs/R-1?sort=-size&page=2"


def at(offset_ms: int) -> str:
    return wire_time(START + timedelta(milliseconds=offset_ms))


def run_of(status: RunStatus, ended_ms: int = 0) -> RunSummary:
    return RunSummary(id="R-1", task_id="T-1", status=status, error=None, created_at=at(0), updated_at=at(ended_ms))


def entry(name: str, start_ms: int, end_ms: int | None, number: int = 1) -> StepEntry:
    return StepEntry(
        step_id=f"ST-{name}-{number}", step_ref=name, name=name, attempt=1, occurrence=number, started_at=at(start_ms),
        status=StepStatus.DISPATCHED if end_ms is None else StepStatus.PASSED,
        completed_at=None if end_ms is None else at(end_ms),
        duration_ms=None if end_ms is None else end_ms - start_ms,
    )  # fmt: skip


spans = st.lists(st.tuples(st.integers(0, 10_000), st.none() | st.integers(0, 5_000)), min_size=1, max_size=20)


class TestTimeline:
    def test_nothing_dispatched_is_no_timeline(self) -> None:
        """A run without a dispatch draws nothing."""
        assert timeline_of(run_of(RunStatus.RUNNING), [], set()) is None

    @given(spans)
    def test_bars_of_one_track_never_overlap(self, given_spans: list[tuple[int, int | None]]) -> None:
        """Dispatches that overlap stand on tracks of their own; one that has ended gives its track away."""
        starts = sorted(given_spans, key=lambda span: span[0])
        entries = [
            entry("a", start, None if took is None else start + took, number)
            for number, (start, took) in enumerate(starts, start=1)
        ]
        timeline = timeline_of(run_of(RunStatus.RUNNING), entries, set())
        assert timeline is not None
        (lane,) = timeline.lanes
        ends: dict[int, float] = {}
        for bar in lane.bars:
            assert ends.get(bar.y, 0) <= bar.start_ms
            ends[bar.y] = float("inf") if bar.end_ms is None else bar.end_ms
            assert 0 < bar.y < lane.height
        assert lane.height == len(ends) * TRACK_PX

    def test_while_it_goes_on_its_end_is_now(self) -> None:
        """A running timeline is scaled to the moment it is looked at; an ended one stands still."""
        entries = [entry("a", 0, 1_000), entry("b", 1_000, None)]
        running = timeline_of(run_of(RunStatus.RUNNING, 1_000), entries, {"a"})
        assert running is not None
        for seconds, x in ((2, "50.000%"), (4, "25.000%")):
            scale = scale_of(running, START + timedelta(seconds=seconds))
            assert (scale.x(1_000), scale.x(None)) == (x, "100.000%")
        assert scale_of(running, START + timedelta(seconds=8)).ticks == [
            ("0.000%", "0"), ("25.000%", "2 s"), ("50.000%", "4 s"), ("75.000%", "6 s"), ("100.000%", "8 s")
        ]  # fmt: skip
        filtered = timeline_of(run_of(RunStatus.RUNNING, 1_000), entries, {"a"}, {"b"})
        assert filtered is not None
        assert [(lane.name, lane.bars[0].start_ms) for lane in filtered.lanes] == [("b", 1_000)]
        assert [bar.url is None for lane in running.lanes for bar in lane.bars] == [False, True]
        assert [lane.url is None for lane in running.lanes] == [False, True]
        ended = timeline_of(run_of(RunStatus.FAILED, 5_000), entries, {"a"})
        assert ended is not None
        assert scale_of(ended, START + timedelta(days=9)).total_ms == 5_000
        assert [mark.word for mark in ended.marks] == ["passed", "never submitted"]

    def test_very_many_are_bounded(self) -> None:
        """Names and overlapping dispatches without end make a page of bounded size, which says what it leaves out."""
        names = [entry(f"n{number}", 0, 1) for number in range(MAX_LANES + 7)]
        timeline = timeline_of(run_of(RunStatus.DONE, 1), names, set())
        assert timeline is not None
        assert (len(timeline.lanes), timeline.more_lanes, timeline.is_focusable) == (MAX_LANES, 7, True)
        crowd = timeline_of(run_of(RunStatus.RUNNING), [entry("a", 0, None, n) for n in range(500)], set())
        assert crowd is not None
        assert (len(crowd.lanes[0].bars), crowd.lanes[0].height) == (47, 24 * TRACK_PX)

    def test_what_is_blocked_is_never_hidden(self) -> None:
        """Of many names those that are blocked are drawn first; a bar of many dispatches looks like its worst one."""
        blocked = entry("blocked", 0, 1).model_copy(update={"status": StepStatus.BLOCKED})
        names = [blocked, *(entry(f"n{number}", 0, 1) for number in range(MAX_LANES + 7))]
        timeline = timeline_of(run_of(RunStatus.DONE, 1), names, set())
        assert timeline is not None
        assert (timeline.lanes[0].name, timeline.more_lanes, timeline.more_blocked) == ("blocked", 8, 0)
        loop = [entry("a", at_ms, at_ms + 1, at_ms + 1) for at_ms in range(1_000)]
        loop[100] = loop[100].model_copy(update={"status": StepStatus.BLOCKED})
        crowd = timeline_of(run_of(RunStatus.DONE, 1), loop, set())
        assert crowd is not None
        (worst,) = [bar for bar in crowd.lanes[0].bars if bar.mark.word == "blocked"]
        assert worst.label == "a, 32 dispatches: 1 blocked, 31 passed"
        assert worst.url == "/ui/tasks/T-1/runs/R-1?q=a&status=blocked#dispatches"
        assert (worst.start_ms, worst.end_ms) == (96, 128)

    def test_bars_of_the_past_stand_still(self) -> None:
        """While one more comes in, all bars but the few newest stay as they are; no dispatch is in none."""
        many = [entry("a", at_ms, at_ms + 1, at_ms + 1) for at_ms in range(1_001)]
        before, after = (timeline_of(run_of(RunStatus.RUNNING), many[:count], set()) for count in (1_000, 1_001))
        assert before is not None
        assert after is not None
        assert len(set(after.lanes[0].bars) - set(before.lanes[0].bars)) <= 3
        bars = after.lanes[0].bars
        assert len(bars) <= 64
        assert [bar.end_ms for bar in bars[:-1]] == [bar.start_ms for bar in bars[1:]]

    def test_all_lanes_together_have_a_bounded_number_of_bars(self) -> None:
        """Many names, each dispatched often, share the bars of one page."""
        crowd = [entry(f"n{number % 50}", number, number + 1, number) for number in range(5_000)]
        timeline = timeline_of(run_of(RunStatus.RUNNING), crowd, set())
        assert timeline is not None
        assert sum(len(lane.bars) for lane in timeline.lanes) <= 240


class TestShownRows:
    LINES = ("a", "b", "c", "d")

    def marks(self, edition: str = "1") -> list[str]:
        return [row.mark for row in ShownRows("", edition).rows(self.LINES)]

    def test_what_was_not_shown_is_written(self) -> None:
        """Without a header, or with one of another edition or none at all of ours, every row is written."""
        for told in ("", "x", "\udc80 \x00", ".".join(self.marks(edition="2"))):
            assert [row.it for row in ShownRows(told, "1").rows(self.LINES)] == list(self.LINES), told

    def test_rows_that_stay_side_by_side_are_one(self) -> None:
        """Of a list with one changed row three come back: those before it, it, and those after it."""
        marks = self.marks()
        rows = ShownRows("".join(marks), "1").rows(("a", "b", "C", "d"))
        assert [(row.it, row.mark, row.last_mark) for row in rows if row.it is None] == [
            (None, marks[0], marks[1]), (None, marks[3], marks[3])
        ]  # fmt: skip
        assert [row.it for row in rows] == [None, "C", None]

    def test_another_order_is_other_rows(self) -> None:
        """Rows that are shown, but not side by side in this order or not in one list, are told one by one."""
        a, b, c, d = self.marks()
        for told in (d + c + b + a, f"{a}.{b}.{c}.{d}"):
            rows = ShownRows(told, "1").rows(self.LINES)
            assert [(row.mark, row.last_mark) for row in rows] == [(a, a), (b, b), (c, c), (d, d)]

    def test_what_a_row_depends_on_is_part_of_it(self) -> None:
        """A row whose columns changed is another one, though its view is the same."""
        shown = ShownRows("".join(self.marks()), "1")
        assert [row.it for row in shown.rows(self.LINES, True)] == list(self.LINES)


class TestSessions:
    def test_one_lasts_for_a_day(self) -> None:
        """A session is good until its hour has come, for whoever has the same token, and for nobody else."""
        now = START
        sessions = Sessions("token", clock=lambda: now)
        session = sessions.start()
        for moment, is_good in ((START, True), (START + SESSION_LASTS, False), (START - SESSION_LASTS, True)):
            now = moment
            assert sessions.is_good(session) is is_good
        assert not Sessions("other", clock=lambda: START).is_good(session)
        assert not Sessions(None, clock=lambda: START).is_good(session)

    def test_without_a_token_there_is_none(self) -> None:
        """Nothing can be signed without a secret."""
        with pytest.raises(ValueError, match="operator token"):
            Sessions(None, clock=lambda: START).start()

    @given(st.text(max_size=100))
    def test_any_text_is_judged(self, text: str) -> None:
        """Whatever a cookie holds is no session, and no crash."""
        assert not Sessions("token", clock=lambda: START).is_good(text)


class TestFiles:
    def test_no_template_or_script_breaks_the_policy(self) -> None:
        """Templates have no style, no handler, no inline script and nothing unescaped; nothing comes from elsewhere."""
        for template in (WEB / "templates").glob("*.html"):
            text = template.read_text()
            assert not re.search(r"\sstyle=|\son\w+=|<script(?! type=\"module\" src=\"\{\{ static\()", text), template
            assert not re.search(r"https?://(?!127\.0\.0\.1)", text), template
        for file in (WEB / "static").iterdir():
            text = file.read_text().replace("http://www.w3.org/2000/svg", "")
            assert not re.search(r"https?://|innerHTML|insertAdjacentHTML|document\.write|eval\(", text), file

    @pytest.mark.parametrize(
        ("error", "status", "header"),
        [
            (Unavailable(), 503, ("retry-after", "2")),
            (Unauthenticated("this bearer is not known here"), 401, ("www-authenticate", "Bearer")),
        ],
    )
    def test_an_error_page_says_what_programs_are_told(
        self, error: StepplaneError, status: int, header: tuple[str, str]
    ) -> None:
        """An error as a page keeps its status, the headers that go with it, its sentence, code and request id."""
        scope = {"method": "POST", "path": "/ui", "query_string": b"", "headers": []}
        answer = error_page(Pages(Statics(), version="1.2.3", has_login=True), scope, error, status, "request-4711")
        assert answer.status_code == status
        assert header in answer.headers.items()
        text = bytes(answer.body).decode()
        for told in (formats.sentence(error.sentence), error.code, "request-4711", "stepplane 1.2.3", "Log out"):
            assert told in text

    def test_a_page_is_known_by_its_path(self) -> None:
        """Pages are what stands under ``/ui``, and the root for a browser; all else is the API's."""
        html = [(b"accept", b"text/html,*/*")]
        for path, headers, expected in (
            ("/ui", [], True), ("/ui/x", [], True), ("/uix", [], False), ("/v1/ui", html, False), ("/", html, True),
            ("/", [(b"accept", b"*/*")], False),
        ):  # fmt: skip
            assert is_page({"type": "http", "path": path, "headers": headers}) is expected
