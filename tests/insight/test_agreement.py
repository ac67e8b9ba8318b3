"""The agreement of the engine with Kueue: counts by the hour, and the sentence that forecasts and what-ifs show."""

from hypothesis import given
from hypothesis import strategies as st

from gpuconsole.insight.forecast.agreement import (
    NO_COMPARISON,
    AgreementCounts,
    AgreementRecord,
    DecisionKind,
    DisagreementCause,
    ShadowDisagreement,
    ShadowReport,
    agreement_sentence,
)
from gpuconsole.model.clock import DAY, HOUR, Time, parse_time

NOW = parse_time("2026-01-05T14:05:00Z")


def disagreement(time: Time) -> ShadowDisagreement:
    return ShadowDisagreement(
        time=time,
        workload="a/b",
        kind=DecisionKind.RESERVED,
        expected="",
        actual="",
        cause=DisagreementCause.NOT_TRIED,
    )


counts = st.builds(
    lambda agreed, unknown, other: AgreementCounts(agreed + unknown + other, agreed, unknown),
    *[st.integers(0, 9)] * 3,
).filter(lambda one: one.decisions > 0)
records = st.builds(
    AgreementRecord,
    hours=st.dictionaries(st.integers(0, 30), counts),
    disagreements=st.lists(st.integers(0, 30 * HOUR).map(disagreement), max_size=3).map(tuple),
)


@given(records, records)
def test_what_is_written_is_what_was_added_since(earlier: AgreementRecord, news: AgreementRecord) -> None:
    assert (earlier + news).without(earlier) == news


@given(records, st.integers(0, 30 * HOUR))
def test_the_last_day_is_24_whole_hours(record: AgreementRecord, now: Time) -> None:
    day = record.day_before(now)
    assert {hour for hour in record.hours if now - DAY < hour * HOUR <= now} == set(day.hours)
    assert all(now - DAY < one.time <= now for one in day.disagreements)
    assert day.as_report(now).last_day == day.counts


def test_a_report_of_a_shadow_adds_what_is_new_in_it() -> None:
    before = ShadowReport(
        counts=AgreementCounts(3, 2), hours={7: AgreementCounts(3, 2)}, disagreements=(disagreement(1),)
    )
    after = ShadowReport(
        counts=AgreementCounts(6, 4),
        hours={7: AgreementCounts(4, 2), 8: AgreementCounts(2, 2)},
        disagreements=(disagreement(1), disagreement(2)),
    )
    added = AgreementRecord(hours={7: AgreementCounts(1), 8: AgreementCounts(2, 2)}, disagreements=(disagreement(2),))
    assert after.news(before) == added
    assert not after.news(after)


def test_the_sentence_says_what_is_known_and_what_is_not() -> None:
    assert [
        agreement_sentence(AgreementCounts(1206, 1204)),
        agreement_sentence(AgreementCounts(1300, 1204, 94), NOW),
        agreement_sentence(AgreementCounts(12, 0, 12), NOW),
        agreement_sentence(AgreementCounts(12, 0, 12)),
        agreement_sentence(NO_COMPARISON),
    ] == [
        "The engine agreed with Kueue in 1,204 of 1,206 decisions of the last 24 h on this cluster.",
        "The engine agreed with Kueue in 1,204 of 1,206 decisions of the last 24 h on this cluster;"
        " 94 more are unknown until 2026-01-05T14:05:00Z.",
        "The engine's agreement with Kueue on this cluster is unknown until 2026-01-05T14:05:00Z.",
        "The engine's agreement with Kueue on this cluster is unknown yet.",
        "No decision of Kueue was compared with the engine in the last 24 h on this cluster.",
    ]
