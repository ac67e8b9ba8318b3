"""Lines of history that say the same again: one line with a count and the last time."""

from gpuconsole.insight.timeline import Moment, Repeated, folded, timeline
from gpuconsole.model.clock import MINUTE, SECOND, Span
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from tests.support.snapshots import START, world


def line(
    after: Span, what: HistoryEventKind = HistoryEventKind.PENDING, message: str = "8 more needed", **fields: object
) -> HistoryEvent:
    given: dict[str, object] = {"workload": "ns/w", "reason": "Pending", "message": message, **fields}
    return HistoryEvent(time=START + after, what=what, **given)  # type: ignore[arg-type]


def test_twenty_times_the_same_is_one_line_with_a_count_at_the_last_time() -> None:
    lines = [line(second * SECOND) for second in range(0, 40, 2)]
    assert folded(lines) == [Repeated(lines[-1], 20, START)]
    assert folded(lines)[0].span == 38 * SECOND


def test_an_event_that_the_history_has_once_counts_as_often_as_it_occurred() -> None:
    stored = [line(0, count=5, last_time=START + 8 * SECOND), line(9 * SECOND), line(9 * SECOND, message="other")]
    assert folded(stored) == [Repeated(stored[1], 6, START), Repeated(stored[2], 1, START + 9 * SECOND)]
    last = line(8 * SECOND, count=5, last_time=START + 8 * SECOND)
    assert folded(stored[:1]) == [Repeated(last, 5, START)]
    moments = [(one.time - START, one.count, one.last - START) for one in timeline(world([]), "ns/w", stored[:2])]
    assert moments == [(0, 6, 9 * SECOND)]


def test_texts_that_alternate_are_folded_each_with_its_like() -> None:
    lines = [line(second * SECOND, message=f"{2 + second % 2} more needed") for second in range(6)]
    assert folded(lines) == [Repeated(lines[4], 3, START), Repeated(lines[5], 3, START + SECOND)]


def test_what_differs_in_subject_kind_text_or_preemptor_is_told_apart() -> None:
    lines = [
        line(0),
        line(0, workload="ns/other"),
        line(0, message="7 more needed"),
        line(0, HistoryEventKind.EVICTED),
        line(0, HistoryEventKind.PREEMPTED, by="ns/a"),
        line(0, HistoryEventKind.PREEMPTED, by="ns/b"),
    ]
    assert folded(lines) == [Repeated(one, 1, START) for one in lines]


def test_the_loss_of_evictions_that_repeat_does_not_keep_them_apart() -> None:
    lines = [line(second * SECOND, HistoryEventKind.EVICTED, lost_gpu_seconds=second) for second in range(3)]
    assert folded(lines) == [Repeated(lines[2], 3, START)]


def test_what_is_said_again_after_more_than_ten_minutes_is_a_line_of_its_own() -> None:
    lines = [line(0), line(10 * MINUTE), line(20 * MINUTE + SECOND)]
    assert folded(lines) == [Repeated(lines[1], 2, START), Repeated(lines[2], 1, lines[2].time)]


def test_a_timeline_counts_how_often_it_was_refused_until_something_else_happened() -> None:
    reasons = ["Pending", "PreemptionNoCandidates", "Pending", "PreemptionNoCandidates", "Pending"]
    refused = [line(second * SECOND, reason=reason) for second, reason in enumerate(reasons)]
    told = [
        line(0, HistoryEventKind.SUBMITTED, reason=""),
        *refused,
        line(5 * SECOND, HistoryEventKind.ADMITTED, reason=""),
        line(7 * SECOND),
    ]
    found = [(one.title, one.detail, one.count, one.last) for one in timeline(world([]), "ns/w", told)]
    assert found == [
        ("submitted", "", 1, 0),
        ("pending", "Pending", 3, START + 4 * SECOND),
        ("pending", "PreemptionNoCandidates", 2, START + 3 * SECOND),
        ("admitted", "", 1, 0),
        ("pending", "Pending", 1, 0),
    ]


def test_a_timeline_is_in_the_order_in_which_it_was_told_where_moments_have_whole_seconds_only() -> None:
    """Conditions and Events have whole seconds, and what the console notices itself has more digits."""
    told = [
        line(SECOND // 2, HistoryEventKind.PENDING),
        line(0, HistoryEventKind.ADMITTED, reason=""),
        line(0, HistoryEventKind.RESERVED, reason=""),
        line(0, HistoryEventKind.STARTED, reason=""),
    ]
    titles = [one.title for one in timeline(world([]), "ns/w", told)]
    assert titles == ["pending", "quota reserved", "admitted", "all pods run"]


def test_moments_have_the_time_of_the_first_of_their_kind() -> None:
    told = [line(0), line(2 * SECOND)]
    assert timeline(world([]), "ns/w", told) == (
        Moment(
            time=START,
            title="pending",
            detail="Pending",
            what=HistoryEventKind.PENDING,
            count=2,
            last=START + 2 * SECOND,
        ),
    )
