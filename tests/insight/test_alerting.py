"""Alerting rules: how they are written, when they fire, and what a receiver gets."""

import contextlib
import re
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuconsole.insight.health.alerting import (
    RESOLVED_KEPT,
    ActiveAlert,
    AlertCondition,
    AlertEvaluator,
    AlertingError,
    AlertingRule,
    AlertSilence,
    AlertState,
    LabelMatcher,
    MetricSample,
    grouped,
    notification,
    parse_condition,
    read_rules,
)
from gpuconsole.model.clock import HOUR, MINUTE, format_time

RULES = """\
groups:
  - name: queues
    rules:
      - alert: PendingTooLong
        expr: gpuconsole_workload_pending_seconds{namespace!="test"} > 2h
        for: 5m
        labels: {severity: warning}
        annotations:
          summary: '{{ $labels.workload }} pending for {{ $value | humanizeDuration }}'
"""


def test_the_rules_of_the_guide_are_read() -> None:
    guide = Path(__file__).parents[2] / "docs" / "how-to" / "alerts.md"
    (rules,) = re.findall(r"    # rules\.yaml\n(.*?)    ```", guide.read_text(encoding="utf-8"), re.DOTALL)
    names = ["PendingTooLong", "StarvedQueue", "ManyPreemptions", "IdleGpus", "FaultyGpu", "RehearsalsUnreliable"]
    assert [rule.name for rule in read_rules(textwrap.dedent(rules))] == names


def pending(seconds: float, workload: str = "rlhf", namespace: str = "research") -> MetricSample:
    labels = {"namespace": namespace, "workload": workload}
    return MetricSample("gpuconsole_workload_pending_seconds", labels, seconds)


def test_a_rule_file_of_prometheus_is_read() -> None:
    assert read_rules(RULES) == (
        AlertingRule(
            name="PendingTooLong",
            condition=AlertCondition(
                "gpuconsole_workload_pending_seconds", (LabelMatcher("namespace", "!=", "test"),), None, ">", 7200.0
            ),
            wait=5 * MINUTE,
            labels={"severity": "warning"},
            annotations={"summary": "{{ $labels.workload }} pending for {{ $value | humanizeDuration }}"},
        ),
    )


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("a >= 8", AlertCondition("a", (), None, ">=", 8.0)),
        ("a{} < 50%", AlertCondition("a", (), None, "<", 0.5)),
        ("a == -1.5e3", AlertCondition("a", (), None, "==", -1500.0)),
        ("a > 1h30m", AlertCondition("a", (), None, ">", 5400.0)),
        ("increase(a_total[1h]) > 3", AlertCondition("a_total", (), HOUR, ">", 3.0)),
        (
            "increase(a{queue=~'team-.*', reason!~\"x|y\"}[90m]) != 0",
            AlertCondition(
                "a",
                (LabelMatcher("queue", "=~", "team-.*"), LabelMatcher("reason", "!~", "x|y")),
                90 * MINUTE,
                "!=",
                0.0,
            ),
        ),
    ],
)
def test_a_condition_is_a_comparison_of_a_metric_or_of_its_increase(text: str, condition: AlertCondition) -> None:
    assert parse_condition(text) == condition


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "column 1: expected the name of a metric, found the end"),
        ("a", "column 2: expected one of > >= < <= == !=, found the end"),
        ("a > ", "column 4: expected a number, such as 8, 2h or 50%, found the end"),
        ("a > 2 and b > 3", "column 7: expected the end: one comparison per rule, found and"),
        ("a{b=c} > 2", "column 5: expected a value in quotes, found c"),
        ('a{b=~"("} > 2', "column 6: invalid regular expression: missing ), unterminated subpattern at position 0"),
        ("increase(a[1s]) > 2", "column 12: write a time from 1m to 1d"),
        ("increase(a) > 2", "column 11: expected '[', found )"),
        ("a > 5q", "column 5: '5q' is not a duration; write it as 90s, 30m, 1h30m or 2d, a number, or 50%"),
        ("a ; b", "column 3: unexpected ';'"),
    ],
)
def test_an_error_of_a_condition_names_its_column(text: str, problem: str) -> None:
    with pytest.raises(AlertingError) as raised:
        parse_condition(text)
    assert str(raised.value) == problem


@given(st.text(alphabet="ab{}()[]=~!<>\"'\\,.%0123456789hm _-", max_size=40))
def test_any_text_is_a_condition_or_an_error(text: str) -> None:
    with contextlib.suppress(AlertingError):
        assert parse_condition(text).comparison in text


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "> 2h",
            "> two",
            "line 5: groups[0].rules[0].expr: column 58: expected a number, such as 8, 2h or 50%, found two",
        ),
        (
            "for: 5m",
            "for: soon",
            "line 6: groups[0].rules[0].for: 'soon' is not a duration; write it as 90s, 30m, 1h30m or 2d",
        ),
        ("for: 5m", "wait: 5m", "line 4: groups[0].rules[0]: Object contains unknown field `wait`"),
        (
            "humanizeDuration",
            "toUpper",
            "line 9: groups[0].rules[0].annotations.summary: unknown template {{ $value | toUpper }};"
            " use {{ $labels.NAME }} or {{ $value }}, which may be followed by | and one of"
            " humanize, humanizeDuration, humanizePercentage",
        ),
        ("groups:", "groups: [", "line 2"),
    ],
)
def test_an_error_of_a_file_names_line_and_field(old: str, new: str, problem: str) -> None:
    with pytest.raises(AlertingError) as raised:
        read_rules(RULES.replace(old, new))
    assert str(raised.value).startswith(problem)


def states(alerts: tuple[ActiveAlert, ...]) -> list[tuple[str, AlertState]]:
    return [(alert.labels["workload"], alert.state) for alert in alerts]


def test_an_alert_is_pending_then_fires_and_is_resolved() -> None:
    evaluator = AlertEvaluator(read_rules(RULES))
    begin = 100 * HOUR
    assert evaluator.evaluate([pending(7200.0)], begin) == ()
    assert states(evaluator.evaluate([pending(7201.0)], begin + MINUTE)) == [("rlhf", AlertState.PENDING)]
    assert states(evaluator.evaluate([pending(7500.0)], begin + 5 * MINUTE)) == [("rlhf", AlertState.PENDING)]
    (fired,) = evaluator.evaluate([pending(7800.0), pending(9e9, "x", "test")], begin + 6 * MINUTE)
    assert fired == ActiveAlert(
        labels={"alertname": "PendingTooLong", "namespace": "research", "workload": "rlhf", "severity": "warning"},
        annotations={"summary": "rlhf pending for 2h10m"},
        state=AlertState.FIRING,
        value=7800.0,
        metric="gpuconsole_workload_pending_seconds",
        since=begin + MINUTE,
        fired=begin + 6 * MINUTE,
    )
    (resolved,) = evaluator.evaluate([], begin + 7 * MINUTE)
    assert (resolved.state, resolved.ended, resolved.value) == (AlertState.RESOLVED, begin + 7 * MINUTE, 7800.0)
    assert evaluator.evaluate([], begin + 7 * MINUTE + RESOLVED_KEPT) == ()


def test_a_condition_that_holds_too_briefly_raises_nothing() -> None:
    evaluator = AlertEvaluator(read_rules(RULES))
    assert states(evaluator.evaluate([pending(8000.0)], HOUR)) == [("rlhf", AlertState.PENDING)]
    assert evaluator.evaluate([pending(10.0)], HOUR + MINUTE) == ()
    (again,) = evaluator.evaluate([pending(8000.0)], HOUR + 6 * MINUTE)
    assert (again.state, again.since) == (AlertState.PENDING, HOUR + 6 * MINUTE)


def test_the_increase_is_that_of_the_window_and_a_counter_that_begins_again_counts_from_zero() -> None:
    evaluator = AlertEvaluator(
        [AlertingRule(name="Preempted", condition=parse_condition("increase(preemptions_total[10m]) >= 5"))]
    )

    def fires(value: float, minute: int) -> bool:
        found = evaluator.evaluate([MetricSample("preemptions_total", {"queue": "cq"}, value)], HOUR + minute * MINUTE)
        return any(alert.state is AlertState.FIRING for alert in found)

    values = {0: 100, 1: 104, 2: 105, 9: 105, 11: 105, 12: 105, 13: 4, 14: 5, 15: 6}
    assert {minute for minute, value in values.items() if fires(value, minute)} == {2, 9, 14, 15}
    late = evaluator.evaluate([MetricSample("preemptions_total", {"queue": "new"}, 6.0)], HOUR + 16 * MINUTE)
    assert [alert.labels["queue"] for alert in late if alert.state is AlertState.FIRING] == ["new"]


@given(st.dictionaries(st.sampled_from("abcd"), st.lists(st.booleans(), min_size=12, max_size=12), min_size=1))
def test_an_alert_fires_just_while_its_condition_has_held_for_the_time_of_its_rule(
    holds: dict[str, list[bool]],
) -> None:
    rule = AlertingRule(name="A", condition=parse_condition("m > 0"), wait=2 * MINUTE)
    evaluator = AlertEvaluator([rule])
    for minute in range(12):
        samples = [MetricSample("m", {"one": name}, float(values[minute])) for name, values in holds.items()]
        found = evaluator.evaluate(samples, HOUR + minute * MINUTE)
        firing = {alert.labels["one"] for alert in found if alert.state is AlertState.FIRING}
        assert firing == {
            name for name, values in holds.items() if minute >= 2 and all(values[minute - 2 : minute + 1])
        }


def alert(workload: str, state: AlertState = AlertState.FIRING) -> ActiveAlert:
    ended = 2 * HOUR if state is AlertState.RESOLVED else None
    labels = {"alertname": "Long", "workload": workload, "queue": "cq"}
    return ActiveAlert(labels=labels, annotations={"summary": workload}, state=state, value=1, since=HOUR, ended=ended)


def test_a_notification_has_the_form_of_alertmanagers_webhook() -> None:
    both = [alert("a"), alert("b", AlertState.RESOLVED), alert("c", AlertState.PENDING)]
    (group,) = grouped(both, ["alertname", "queue"])
    assert notification(group, "prod", format_time) == {
        "version": "4",
        "groupKey": '{}:{alertname="Long", queue="cq"}',
        "truncatedAlerts": 0,
        "status": "firing",
        "receiver": "gpuconsole",
        "groupLabels": {"alertname": "Long", "queue": "cq"},
        "commonLabels": {"alertname": "Long", "queue": "cq"},
        "commonAnnotations": {},
        "externalURL": "",
        "alerts": [
            {
                "status": status,
                "labels": {"alertname": "Long", "workload": name, "queue": "cq", "cluster": "prod"},
                "annotations": {"summary": name},
                "startsAt": "1970-01-01T01:00:00Z",
                "endsAt": ends,
                "generatorURL": "",
                "fingerprint": alert(name).fingerprint,
            }
            for name, status, ends in (
                ("a", "firing", "0001-01-01T00:00:00Z"),
                ("b", "resolved", "1970-01-01T02:00:00Z"),
            )
        ],
    }


def test_a_silence_covers_the_alerts_with_its_labels_until_its_end() -> None:
    silence = AlertSilence({"workload": "a"}, HOUR)
    assert [silence.covers(alert(name), now) for name, now in (("a", 0), ("b", 0), ("a", HOUR))] == [True, False, False]
