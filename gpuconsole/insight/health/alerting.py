"""Alerting rules over the metrics of gpuconsole, and the alerts that they raise.

A rule file has the form of Prometheus' rule files, and its conditions are a part of PromQL: a metric with label
matchers, or the `increase` of a counter, compared with a number. The metrics are those of docs/reference/metrics.md.
As in Prometheus, each series that meets the condition is an alert of its own: `pending` until the condition has held
for the time of the rule (`for`), then `firing`, and `resolved` when the condition no longer holds
(https://prometheus.io/docs/prometheus/latest/configuration/alerting_rules).
"""

import hashlib
import operator
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from gpuconsole.model.clock import DAY, MINUTE, SECOND, Span, Time, format_span, parse_span
from gpuconsole.model.documents.yaml_json import FormError, YamlDocument, YamlPosition, read_yaml
from gpuconsole.model.text import clean

LARGEST_FILE = 1_000_000
"""Maximum characters of a rule file."""
MOST_ALERTS = 1_000
"""Maximum alerts of one rule; the series after them are not looked at."""
RESOLVED_KEPT: Span = 15 * MINUTE
"""How long a resolved alert is listed, as in Prometheus."""
LONGEST_WINDOW: Span = DAY
POINTS = 60
"""Values of a counter that are kept for its `increase`; the time of the oldest is exact to 1/60 of the window."""
LONGEST_TEXT = 500
"""Maximum characters of a label or an annotation of an alert."""
UNNAMED_SEVERITY = "none"
Read = TypeVar("Read")


class AlertingError(ValueError):
    """A rule file is invalid; the message names the line, the field, the problem and the fix."""


class AlertState(StrEnum):
    """State of an alert."""

    FIRING = "firing"
    PENDING = "pending"
    """The condition holds, but not yet as long as the rule demands."""
    RESOLVED = "resolved"


class MetricSample(NamedTuple):
    """One value of one series."""

    name: str
    labels: Mapping[str, str]
    value: float


class LabelMatcher(NamedTuple):
    """A condition on a label, such as `namespace!="test"`; a missing label is empty."""

    name: str
    operator: str
    """`=`, `!=`, `=~` or `!~`."""
    value: str

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether a series with these labels meets it."""
        found = labels.get(self.name, "")
        is_equal = re.fullmatch(self.value, found) is not None if self.operator.endswith("~") else found == self.value
        return is_equal is not self.operator.startswith("!")


class AlertCondition(NamedTuple):
    """A comparison of a metric with a number."""

    metric: str
    matchers: tuple[LabelMatcher, ...]
    window: Span | None
    """Time over which the increase of the counter is compared; None for the value itself."""
    comparison: str
    threshold: float

    def holds(self, value: float) -> bool:
        """Whether a value meets the condition."""
        return _COMPARISONS[self.comparison](value, self.threshold)


class AlertingRule(Struct, frozen=True, kw_only=True):
    """A rule of a rule file."""

    name: str
    condition: AlertCondition
    wait: Span = 0
    """How long the condition has to hold until the alert fires."""
    labels: Mapping[str, str] = {}
    """Texts of labels that are added to those of the series, and replace labels of the same name."""
    annotations: Mapping[str, str] = {}
    """Texts with `{{ $labels.NAME }}` and `{{ $value }}`."""


class ActiveAlert(Struct, frozen=True, kw_only=True):
    """An alert: a series that meets, or has met, the condition of a rule."""

    labels: Mapping[str, str]
    """Those of the series and of the rule, and `alertname`."""
    annotations: Mapping[str, str]
    state: AlertState
    value: float
    """The value of the series when the condition held last."""
    metric: str = ""
    """The metric of the condition."""
    rule: int = 0
    """Number of its rule, from 0: two rules may raise alerts with the same labels."""
    since: Time
    """When the condition began to hold."""
    fired: Time | None = None
    """When it began to fire; None before that."""
    ended: Time | None = None
    """When it was resolved; None before that."""

    @property
    def name(self) -> str:
        return self.labels["alertname"]

    @property
    def severity(self) -> str:
        """The label `severity`, `none` without one."""
        return self.labels.get("severity", UNNAMED_SEVERITY)

    @property
    def summary(self) -> str:
        """What is wrong, for people: the annotation `summary`, else `description`, else the labels and the value."""
        written = self.annotations.get("summary") or self.annotations.get("description")
        if written:
            return written
        named = ", ".join(f"{key}={text}" for key, text in self.labels.items() if key not in ("alertname", "severity"))
        return f"{self.metric} is {in_unit(self.metric, self.value)}" + (f": {named}" if named else "")

    @property
    def key(self) -> tuple[int, str]:
        """Identifies it among all alerts."""
        return self.rule, self.fingerprint

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that identify the labels."""
        return fingerprint(self.labels)


class AlertSilence(Struct, frozen=True):
    """Suppresses the notifications of the alerts that have these labels."""

    labels: Mapping[str, str]
    until: Time

    def covers(self, alert: ActiveAlert, now: Time) -> bool:
        """Whether it suppresses an alert now."""
        return now < self.until and self.labels.items() <= alert.labels.items()


def in_unit(metric: str, value: float) -> str:
    """Format the value of a metric by the unit in its name: `2h1m` of seconds, `98.7%` of a ratio, else the number."""
    name = metric.removesuffix("_total")
    if name.endswith("_seconds"):
        return _duration(value)
    if name.endswith("_ratio"):
        return _percentage(value)
    return f"{value:,.10g}"


def _duration(seconds: float) -> str:
    return format_span(round(seconds * SECOND))


def _percentage(ratio: float) -> str:
    return f"{ratio * 100:.4g}%"


def fingerprint(labels: Mapping[str, str]) -> str:
    """Return sixteen hexadecimal digits that identify a set of labels."""
    text = "\xff".join(f"{name}\xfe{labels[name]}" for name in sorted(labels))
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]


# Rule files


class _WrittenRule(Struct, frozen=True, forbid_unknown_fields=True):
    expr: str
    alert: str
    wait: str = msgspec.field(name="for", default="0")
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class _WrittenGroup(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    rules: list[_WrittenRule]
    interval: str = ""
    """Accepted and not used: all rules are evaluated together."""


class _WrittenFile(Struct, frozen=True, forbid_unknown_fields=True):
    groups: list[_WrittenGroup]


def read_rules(text: str) -> tuple[AlertingRule, ...]:
    """Read a rule file. Raises AlertingError for the first error."""
    if len(text) > LARGEST_FILE:
        raise AlertingError(f"more than {LARGEST_FILE:,} characters; split the file")
    try:
        document = read_yaml(text)
    except FormError as error:
        raise AlertingError(f"line {error.problem.line}: {error.problem.problem}") from error
    try:
        written = msgspec.convert(document.value, _WrittenFile)
    except msgspec.ValidationError as error:
        problem, _, where = str(error).partition(" - at `$")
        where = where.rstrip("`").lstrip(".")
        raise AlertingError(f"line {_line_at(document, where)}: {where or 'file'}: {clean(problem)}") from error
    rules: list[AlertingRule] = []
    for number, group in enumerate(written.groups):
        for index, rule in enumerate(group.rules):
            where = f"groups[{number}].rules[{index}]"
            condition = _field(document, f"{where}.expr", parse_condition, rule.expr)
            wait = _field(document, f"{where}.for", parse_span, rule.wait)
            for field, templates in (("labels", rule.labels), ("annotations", rule.annotations)):
                for name, template in templates.items():
                    _field(document, f"{where}.{field}.{name}", _check_template, template)
            rules.append(
                AlertingRule(
                    name=clean(rule.alert, LONGEST_TEXT),
                    condition=condition,
                    wait=wait,
                    labels=rule.labels,
                    annotations=rule.annotations,
                )
            )
    return tuple(rules)


def _field(document: YamlDocument, where: str, read: Callable[[str], Read], text: str) -> Read:
    """Read the text of a field; an error names its line and its place."""
    try:
        return read(text)
    except ValueError as error:
        raise AlertingError(f"line {_line_at(document, where)}: {where}: {error}") from error


def _line_at(document: YamlDocument, where: str) -> int:
    """The line of a field such as `groups[0].rules[1].expr`; of the nearest one around it if it does not exist."""
    place: YamlPosition = document.place
    for part in re.findall(r"[^.\[\]]+", where):
        children = place.children or {}
        inner = children.get(int(part) if part.isdigit() else part)
        if inner is None:
            break
        place = inner
    return place.line


# Conditions

_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}
_TOKEN = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_:][\w:]*)|(?P<text>\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')"
    r"|(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)(?P<unit>[a-zµ%]*(?:\d+[a-z]+)*)"
    r"|(?P<sign>=~|!~|!=|==|>=|<=|[=<>(){}\[\],]))",
    re.ASCII,
)


class _Token(NamedTuple):
    kind: str
    text: str
    unit: str
    column: int


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    place = 0
    end = len(text.rstrip())
    while place < end:
        match = _TOKEN.match(text, place)
        if match is None:
            column = place + len(text[place:]) - len(text[place:].lstrip()) + 1
            raise AlertingError(f"column {column}: unexpected {clean(text[column - 1 : column], 10)!r}")
        kind = next(name for name in ("name", "text", "number", "sign") if match[name] is not None)
        found.append(_Token(kind, match[kind], match["unit"] or "", match.start(kind) + 1))
        place = match.end()
    return [*found, _Token("end", "the end", "", end + 1)]


class _ConditionReader:
    """Reads a condition token by token. Mutable."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._next = 0

    def read(self) -> AlertCondition:
        name = self._take("name", "the name of a metric")
        window: Span | None = None
        if name.text == "increase" and self._peek().text == "(":
            self._sign("(")
            name = self._take("name", "the name of a counter")
            matchers = self._matchers()
            window = self._window()
            self._sign(")")
        else:
            matchers = self._matchers()
        comparison = self._peek()
        if comparison.text not in _COMPARISONS:
            self._refuse(comparison, f"one of {' '.join(_COMPARISONS)}")
        self._next += 1
        threshold = self._number()
        self._take("end", "the end: one comparison per rule")
        return AlertCondition(name.text, matchers, window, comparison.text, threshold)

    def _matchers(self) -> tuple[LabelMatcher, ...]:
        found: list[LabelMatcher] = []
        if self._peek().text != "{":
            return ()
        self._sign("{")
        while self._peek().text != "}":
            name = self._take("name", "the name of a label")
            sign = self._peek()
            if sign.text not in ("=", "!=", "=~", "!~"):
                self._refuse(sign, "one of = != =~ !~")
            self._next += 1
            value = self._take("text", "a value in quotes")
            unquoted = re.sub(r"\\(.)", r"\1", value.text[1:-1])
            if sign.text.endswith("~"):
                try:
                    re.compile(unquoted)
                except re.error as error:
                    raise AlertingError(f"column {value.column}: invalid regular expression: {error}") from error
            found.append(LabelMatcher(name.text, sign.text, unquoted))
            if self._peek().text != "}":
                self._sign(",")
        self._sign("}")
        return tuple(found)

    def _window(self) -> Span:
        self._sign("[")
        token = self._take("number", "a time, such as 1h")
        try:
            window = parse_span(token.text + token.unit)
        except ValueError as error:
            raise AlertingError(f"column {token.column}: {error}") from error
        if not MINUTE <= window <= LONGEST_WINDOW:
            raise AlertingError(f"column {token.column}: write a time from 1m to {format_span(LONGEST_WINDOW)}")
        self._sign("]")
        return window

    def _number(self) -> float:
        token = self._take("number", "a number, such as 8, 2h or 50%")
        if not token.unit:
            return float(token.text)
        if token.unit == "%":
            return float(token.text) / 100
        try:
            return parse_span(token.text + token.unit) / SECOND
        except ValueError as error:
            raise AlertingError(f"column {token.column}: {error}, a number, or 50%") from error

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self, kind: str, wanted: str) -> _Token:
        token = self._peek()
        if token.kind != kind:
            self._refuse(token, wanted)
        self._next += 1
        return token

    def _sign(self, text: str) -> None:
        if self._peek().text != text:
            self._refuse(self._peek(), repr(text))
        self._next += 1

    def _refuse(self, token: _Token, wanted: str) -> None:
        raise AlertingError(f"column {token.column}: expected {wanted}, found {clean(token.text, 40)}")


def parse_condition(text: str) -> AlertCondition:
    """Parse `METRIC{LABEL="VALUE", …} > NUMBER` or `increase(METRIC[1h]) > NUMBER`. Raises AlertingError.

    The comparison is one of > >= < <= == !=. A number may have a unit, which PromQL does not know: a time such as
    `2h` is in seconds, `50%` is 0.5.
    """
    return _ConditionReader(text).read()


# Templates

_TEMPLATE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_VARIABLE = re.compile(r"\s*\$(?:labels\.([A-Za-z_]\w*)|(value))(?:\s*\|\s*(\w+))?\s*")
_FORMS: Mapping[str, Callable[[float], str]] = {
    "": lambda value: f"{value:g}",
    "humanize": lambda value: f"{value:,.4g}",
    "humanizeDuration": _duration,
    "humanizePercentage": _percentage,
}


def _check_template(template: str) -> None:
    """Raises AlertingError for a part in braces that is not known."""
    for part in _TEMPLATE.findall(template):
        match = _VARIABLE.fullmatch(part)
        if match is None or (match[3] or "") not in _FORMS:
            forms = ", ".join(name for name in _FORMS if name)
            raise AlertingError(
                f"unknown template {clean('{{' + part + '}}', 60)}; use {{{{ $labels.NAME }}}} or {{{{ $value }}}},"
                f" which may be followed by | and one of {forms}"
            )


def _filled(template: str, labels: Mapping[str, str], value: float) -> str:
    def fill(match: re.Match[str]) -> str:
        variable = _VARIABLE.fullmatch(match[1])
        if variable is None:
            return match[0]
        return labels.get(variable[1], "") if variable[1] else _FORMS[variable[3] or ""](value)

    return clean(_TEMPLATE.sub(fill, template), LONGEST_TEXT)


# Evaluation


class AlertEvaluator:
    """Evaluates rules again and again, and keeps the state of each alert. Mutates."""

    def __init__(self, rules: Sequence[AlertingRule]) -> None:
        self.rules = tuple(rules)
        self._alerts: dict[tuple[int, str], ActiveAlert] = {}
        """(Number of the rule, fingerprint) → alert, in the order in which the conditions began to hold."""
        self._counters: dict[tuple[int, str], deque[tuple[Time, float]]] = {}
        self._has_run = False

    def evaluate(self, samples: Iterable[MetricSample], now: Time) -> tuple[ActiveAlert, ...]:
        """Return all alerts after the samples of `now`: firing, pending, and resolved in the last RESOLVED_KEPT."""
        by_name: dict[str, list[MetricSample]] = {rule.condition.metric: [] for rule in self.rules}
        for sample in samples:
            if sample.name in by_name:
                by_name[sample.name].append(sample)
        holding: dict[tuple[int, str], ActiveAlert] = {}
        found: Counter[int] = Counter()
        for number, rule in enumerate(self.rules):
            for labels, value in self._values(number, rule.condition, by_name[rule.condition.metric], now):
                if rule.condition.holds(value) and found[number] < MOST_ALERTS:
                    found[number] += 1
                    alert = _begun(number, rule, labels, value, now)
                    holding[alert.key] = _continued(self._alerts.get(alert.key), alert, rule.wait, now)
        for key, alert in self._alerts.items():
            if key not in holding and (ended := _ended(alert, now)) is not None:
                holding[key] = ended
        self._alerts = holding
        self._has_run = True
        return tuple(sorted(holding.values(), key=lambda alert: (_ORDER.index(alert.state), alert.since, alert.name)))

    def _values(
        self, number: int, condition: AlertCondition, samples: Iterable[MetricSample], now: Time
    ) -> Iterator[tuple[Mapping[str, str], float]]:
        seen: set[tuple[int, str]] = set()
        for sample in samples:
            if all(matcher.matches(sample.labels) for matcher in condition.matchers):
                if condition.window is None:
                    yield sample.labels, sample.value
                else:
                    key = number, fingerprint(sample.labels)
                    seen.add(key)
                    yield sample.labels, self._increase(key, sample.value, condition.window, now)
        for key in [key for key in self._counters if key[0] == number and key not in seen]:
            del self._counters[key]

    def _increase(self, key: tuple[int, str], value: float, window: Span, now: Time) -> float:
        """The increase of a counter in the window, or since it is known; a counter that begins counts from 0."""
        points = self._counters.setdefault(key, deque())
        if not points and self._has_run:
            points.append((now, 0.0))
        if points and value < points[-1][1]:
            points.clear()
            points.append((now, 0.0))
        while len(points) > 1 and points[1][0] <= now - window:
            points.popleft()
        if not points or now - points[-1][0] >= window // POINTS:
            points.append((now, value))
        return value - points[0][1]


_ORDER = (AlertState.FIRING, AlertState.PENDING, AlertState.RESOLVED)


def _begun(number: int, rule: AlertingRule, labels: Mapping[str, str], value: float, now: Time) -> ActiveAlert:
    added = {name: _filled(template, labels, value) for name, template in rule.labels.items()}
    named = {name: clean(text, LONGEST_TEXT) for name, text in {**labels, **added}.items()}
    return ActiveAlert(
        labels={"alertname": rule.name, **named},
        annotations={name: _filled(template, named, value) for name, template in rule.annotations.items()},
        state=AlertState.PENDING,
        value=value,
        metric=rule.condition.metric,
        rule=number,
        since=now,
    )


def _continued(known: ActiveAlert | None, alert: ActiveAlert, wait: Span, now: Time) -> ActiveAlert:
    """The alert as it goes on from the state in which it was."""
    if known is not None and known.state is not AlertState.RESOLVED:
        alert = msgspec.structs.replace(alert, since=known.since, fired=known.fired, state=known.state)
    if alert.state is AlertState.PENDING and now - alert.since >= wait:
        alert = msgspec.structs.replace(alert, state=AlertState.FIRING, fired=now)
    return alert


def _ended(alert: ActiveAlert, now: Time) -> ActiveAlert | None:
    """The alert after its condition no longer holds; None if it never fired, or was resolved long ago."""
    if alert.state is AlertState.FIRING:
        return msgspec.structs.replace(alert, state=AlertState.RESOLVED, ended=now)
    if alert.ended is not None and now - alert.ended < RESOLVED_KEPT:
        return alert
    return None


# Notifications


class AlertGroup(NamedTuple):
    """Alerts that are notified together: those with the same values of the labels that group them."""

    labels: Mapping[str, str]
    alerts: tuple[ActiveAlert, ...]

    @property
    def key(self) -> str:
        """Identifies the group, in Alertmanager's form."""
        return "{}:{" + ", ".join(f'{name}="{text}"' for name, text in self.labels.items()) + "}"


def grouped(alerts: Iterable[ActiveAlert], names: Sequence[str]) -> list[AlertGroup]:
    """Group the alerts that fire or were resolved by the values of these labels."""
    groups: dict[tuple[str, ...], list[ActiveAlert]] = {}
    for alert in alerts:
        if alert.state is not AlertState.PENDING:
            groups.setdefault(tuple(alert.labels.get(name, "") for name in names), []).append(alert)
    return [AlertGroup(dict(zip(names, values, strict=True)), tuple(found)) for values, found in groups.items()]


def notification(group: AlertGroup, source: str, format_time: Callable[[Time], str]) -> dict[str, Any]:
    """Return the JSON document of a group in the form of Alertmanager's webhook, version 4.

    `source` names the cluster. See https://prometheus.io/docs/alerting/latest/configuration/#webhook_config.
    """
    is_firing = any(alert.state is AlertState.FIRING for alert in group.alerts)
    return {
        "version": "4",
        "groupKey": group.key,
        "truncatedAlerts": 0,
        "status": "firing" if is_firing else "resolved",
        "receiver": "gpuconsole",
        "groupLabels": dict(group.labels),
        "commonLabels": _common([alert.labels for alert in group.alerts]),
        "commonAnnotations": _common([alert.annotations for alert in group.alerts]),
        "externalURL": "",
        "alerts": [
            {
                "status": str(alert.state),
                "labels": {**alert.labels, "cluster": clean(source)},
                "annotations": dict(alert.annotations),
                "startsAt": format_time(alert.since),
                "endsAt": format_time(alert.ended) if alert.ended is not None else "0001-01-01T00:00:00Z",
                "generatorURL": "",
                "fingerprint": alert.fingerprint,
            }
            for alert in group.alerts
        ],
    }


def _common(texts: Sequence[Mapping[str, str]]) -> dict[str, str]:
    first, *rest = texts
    return {name: text for name, text in first.items() if all(other.get(name) == text for other in rest)}
