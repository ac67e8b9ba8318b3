"""Alerts screen: the alerts of the user's rules, firing ones first, and their silences."""

from collections import Counter

from textual.app import ComposeResult

from gpuconsole.errors import ConsoleError
from gpuconsole.insight.health.alerting import ActiveAlert, AlertState, in_unit
from gpuconsole.insight.tables import counted
from gpuconsole.model.clock import HOUR, Span, format_span
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.services.alerting import AlertService
from gpuconsole.ui import format as fmt
from gpuconsole.ui.actions import Action, Handlers
from gpuconsole.ui.names import named
from gpuconsole.ui.paint import Cell, Painted
from gpuconsole.ui.screens.base import ConsoleScreen
from gpuconsole.ui.table_model import Column
from gpuconsole.ui.widgets.grid import Grid
from gpuconsole.ui.widgets.painter import Lines
from gpuconsole.ui.widgets.textpane import wrapped

SILENCE: Span = HOUR
"""How long a key press silences an alert."""
MARKS = {AlertState.FIRING: "⚠", AlertState.PENDING: "◐", AlertState.RESOLVED: "✓"}
ROLES = {AlertState.FIRING: "fault", AlertState.PENDING: "pending", AlertState.RESOLVED: "good"}
UNSHOWN = ("alertname", "severity")
NO_RULES = "No alerting rules; write a rule file and set alerts.rules in config.yaml."


class AlertsScreen(ConsoleScreen):
    """All alerts after the last evaluation of the rules."""

    def crumb(self) -> str:
        return "alerts"

    def body(self) -> ComposeResult:
        yield Lines(id="alert-rules")
        yield Grid(self._columns(), key=_key, fault=_is_firing, empty="No alerts.")
        yield Lines(id="alert-summary")

    def _columns(self) -> tuple[Column[ActiveAlert], ...]:
        return (
            Column("STATE", self._state, id="status", width=11, sort=lambda one: str(one.state)),
            Column("SEVERITY", lambda one: one.severity, width=8, rank=1),
            Column("ALERT", lambda one: one.name, id="name", width=18, flex=1),
            Column(
                "SINCE",
                lambda one: fmt.date_and_clock(one.since),
                id="age",
                width=18,
                sort=lambda one: one.since,
                down=True,
            ),
            Column("VALUE", _value, width=8, align="right", sort=lambda one: one.value, down=True),
            Column("LABELS", _labels, width=16, flex=2, rank=2),
            Column("SUMMARY", lambda one: named(one.summary), width=20, flex=3),
        )

    def _state(self, alert: ActiveAlert) -> Cell:
        service = self.console.alerting
        if service is not None and alert.state is AlertState.FIRING and service.is_silenced(alert):
            return (("⏸ silenced", "dim"),)
        return ((f"{MARKS[alert.state]} {alert.state}", ROLES[alert.state]),)

    def show(self, snapshot: Snapshot) -> None:
        service = self.console.alerting
        if self.grid is not None:
            self.grid.show(service.alerts if service is not None else ())
        self.query_one("#alert-rules", Lines).lines = tuple(wrapped(_about(service), self.size.width))
        self._tell()

    def picked(self, row: object) -> None:
        self._tell()

    def _tell(self) -> None:
        """Show the whole summary and labels of the selected alert below the table."""
        alert = self._selected
        text = (
            ((f"{alert.name}: {named(alert.summary)}", "strong"), (f" · {_named_labels(alert)}", "dim"))
            if alert
            else ()
        )
        self.query_one("#alert-summary", Lines).lines = tuple(wrapped(text, self.size.width)) if text else ()

    @property
    def _selected(self) -> ActiveAlert | None:
        row = self.grid.current if self.grid is not None else None
        return row if isinstance(row, ActiveAlert) else None

    def handlers(self) -> Handlers:
        return {**super().handlers(), "alert.silence": self._silence}

    def refusal(self, action: Action) -> str:
        if action.id == "alert.silence" and self._selected is None:
            return "no alert is selected"
        return super().refusal(action)

    def _silence(self) -> None:
        """Silence the selected alert for an hour; if it is silenced, end that."""
        service, alert = self.console.alerting, self._selected
        if service is None or alert is None:
            return
        try:
            if service.is_silenced(alert):
                service.unsilence(alert)
                self.flash(f"{alert.name}: no longer silenced")
            else:
                service.silence(alert, SILENCE)
                self.flash(f"{alert.name}: silenced for {format_span(SILENCE)}")
        except ConsoleError as error:
            self.flash(str(error), "error")
        self.redraw()


def _is_firing(alert: ActiveAlert) -> bool:
    return alert.state is AlertState.FIRING


def _key(alert: ActiveAlert) -> str:
    return f"{alert.rule} {alert.fingerprint}"


def _value(alert: ActiveAlert) -> str:
    return in_unit(alert.metric, alert.value)


def _labels(alert: ActiveAlert) -> Cell:
    return ((_named_labels(alert), "dim"),)


def _named_labels(alert: ActiveAlert) -> str:
    return " ".join(f"{name}={text}" for name, text in alert.labels.items() if name not in UNSHOWN)


def _about(service: AlertService | None) -> Painted:
    if service is None:
        return ((NO_RULES, "dim"),)
    firing = len(service.firing)
    states = Counter(str(alert.state) for alert in service.alerts)
    silenced = states[AlertState.FIRING] - firing
    pending, resolved = states[AlertState.PENDING], states[AlertState.RESOLVED]
    text = f"{firing} firing, {silenced} silenced, {pending} pending, {resolved} resolved"
    text += f" · {counted(len(service.rules), 'rule')}"
    if service.without_metric:
        text += (
            f" · no such metric here: {', '.join(sorted({rule.condition.metric for rule in service.without_metric}))}"
        )
    if service.webhook_problem:
        return ((text, ""), (f" · ⚠ webhook: {service.webhook_problem}", "fault"))
    return ((text, "fault" if firing else "dim"),)
