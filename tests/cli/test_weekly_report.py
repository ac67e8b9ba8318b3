"""`gpuconsole report`: what was recorded of a week, as Markdown, a self-contained page, and JSON."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from gpuconsole.cli.options import OpenRequest
from gpuconsole.cli.sources import open_simulation
from gpuconsole.insight.cost.allocation import CostHour, CostKind, CostOwner
from gpuconsole.insight.weekly_report import WEEK, WeekData, week_begin, weekly_report
from gpuconsole.model.clock import HOUR, MINUTE
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.store import queries
from gpuconsole.store.recorder import Opening, Recorder
from gpuconsole.store.schema import earlier_sessions
from gpuconsole.ui.answers.weekly_report import as_html, as_markdown
from tests.support.command_line import Line
from tests.support.recorded_histories import NEVER, record

BEGIN = week_begin("2026-W02")
HOSTILE = "</td><script>alert(1)</script>|`*[x](javascript:y)\x1b[2J"


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("report") / "history.db"
    record(file, open_simulation(OpenRequest(files=("org-cohort",))).simulation, 2 * HOUR, source="org-cohort")
    return file


def test_the_report_has_a_section_for_each_question(gpuconsole: Line, history: Path) -> None:
    done = gpuconsole("report", "--week", "--history", history)
    assert (done.status, done.err) == (0, "")
    assert done.lines[0] == "# GPU cluster org-cohort, week 2026-W02"
    assert [line for line in done.lines if line.startswith("## ")] == [
        "## Summary",
        "## Utilization",
        "## ClusterQueues",
        "## Waits by team",
        "## Waits by size",
        "## Preemptions and lost work",
        "## Unused GPUs by owner",
        "## Cost",
        "## Anti-patterns",
    ]
    assert "3 of 168 hours of this week are recorded; sums and counts are of these hours." in done.lines
    assert "Nothing is recorded in the week before." in done.lines


def test_the_json_document_adds_up_to_what_was_recorded(gpuconsole: Line, history: Path) -> None:
    done = gpuconsole("report", "--week", "2026-W02", "-o", "json", "--history", history)
    found = json.loads(done.out)
    assert (found["kind"], found["version"], found["source"], found["mode"]) == (
        "WeeklyReport",
        1,
        "org-cohort",
        "recorded",
    )
    report = found["answer"]
    assert (report["begin"], report["end"]) == ("2026-01-05T00:00:00Z", "2026-01-12T00:00:00Z")
    with earlier_sessions(history) as db:
        (recording,) = queries.recordings(db)
        rows = queries.cost_hours(db, recording.id, BEGIN, BEGIN + WEEK)
        events = queries.counted_events(db, recording.id, BEGIN, BEGIN + WEEK)
    admitted = sum(event.what is HistoryEventKind.ADMITTED for event in events)
    assert report["total_cost_usd"]["value"] == pytest.approx(sum(row.cost_usd for row in rows), abs=0.00501)
    assert sum(one["cost_usd"]["value"] for one in report["costs"]) == pytest.approx(report["total_cost_usd"]["value"])
    assert sum(one["admitted"]["value"] for one in report["waits_by_team"]) == admitted
    assert sum(one["admitted"]["value"] for one in report["waits_by_size"]) == admitted
    assert sum(one["admitted"]["value"] for one in report["queues"]) == admitted
    assert report["total_cost_usd"]["before"] is None


def test_events_and_their_start_are_read_over_all_sessions_of_a_recording(tmp_path: Path) -> None:
    file = tmp_path / "history.db"
    for session in range(2):
        opening = Opening(version="1", mode="LIVE", source="prod")
        recorder = Recorder(file, opening, wall=lambda: BEGIN, interval=NEVER)
        kinds = (HistoryEventKind.ADMITTED, HistoryEventKind.PENDING, HistoryEventKind.PREEMPTED)
        recorder.record([HistoryEvent(time=BEGIN + session * HOUR, what=what, workload="a/b") for what in kinds])
        recorder.flush()
        recorder.close()
    with earlier_sessions(file) as db:
        (recording,) = queries.recordings(db)
        found = queries.counted_events(db, recording.id, BEGIN, BEGIN + WEEK)
        assert [(event.time, event.what.value) for event in found] == [
            (BEGIN, "admitted"),
            (BEGIN, "preempted"),
            (BEGIN + HOUR, "admitted"),
            (BEGIN + HOUR, "preempted"),
        ]
        assert queries.counted_events(db, recording.id, BEGIN + 1, BEGIN + HOUR) == []
        assert queries.counted_since(db, recording.id) == BEGIN
        assert queries.counted_since(db, recording.id + 1) is None


class Loads(HTMLParser):
    """Collects the tags and attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


def hostile_report() -> WeekData:
    owner = CostOwner(kind=CostKind.WORKLOAD, team=HOSTILE, workload="a/b")
    events = [
        HistoryEvent(time=BEGIN, what=HistoryEventKind.ADMITTED, workload=f"{HOSTILE}/w", waited=MINUTE, gpus=1),
        HistoryEvent(
            time=BEGIN, what=HistoryEventKind.PREEMPTED, workload="a/b", queue=HOSTILE, by="c/d", by_queue=HOSTILE
        ),
    ]
    costs = [CostHour(owner=owner, hour=BEGIN, gpu_seconds=3600.0, used_usd=1.0)]
    return WeekData(begin=BEGIN, costs=costs, events=events, events_since=BEGIN)


def test_the_page_is_self_contained_and_names_cannot_add_markup() -> None:
    report = weekly_report(hostile_report(), WeekData(begin=BEGIN - WEEK))
    page = "\n".join(as_html(report, HOSTILE))
    loads = Loads()
    loads.feed(page)
    assert not loads.tags & {"script", "a", "img", "link", "iframe"}
    assert loads.attributes <= {"lang", "charset"}
    assert "\x1b" not in page
    assert "@import" not in page
    assert "url(" not in page


def test_names_are_escaped_in_markdown() -> None:
    report = weekly_report(hostile_report(), WeekData(begin=BEGIN - WEEK))
    text = "\n".join(as_markdown(report, HOSTILE))
    assert "<" not in text
    assert "\x1b" not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    cells = {len(re.split(r"(?<!\\)\|", row)) for row in rows if "script" in row and row.count("Week before") == 0}
    assert cells <= {len(re.split(r"(?<!\\)\|", row)) for row in rows if "script" not in row}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--week", "2026-47"), "--week: '2026-47' is not a week; write it as 2026-W47"),
        (("--week", "2026-W10"), "--week 2026-W10: nothing is recorded then; org-cohort is recorded from"),
        (("--recording", "7"), "there is no recording 7; the newest are 1 (org-cohort)"),
    ],
)
def test_what_is_not_recorded_is_named(
    gpuconsole: Line, history: Path, arguments: tuple[str, ...], problem: str
) -> None:
    done = gpuconsole("report", *arguments, "--history", history)
    assert done.status == 2
    assert problem in done.err
    assert done.out == ""
