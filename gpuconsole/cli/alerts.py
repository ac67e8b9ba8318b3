"""`gpuconsole alerts`: lists the alerts that rules raise in a cluster now; and gives a running console its rules."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from gpuconsole import __version__
from gpuconsole.cli.answering import CommandAnswer, QuestionContext, answering, lines_of
from gpuconsole.cli.options import budgets_of
from gpuconsole.config import WEB_DRIVER, Config
from gpuconsole.errors import ConfigError, UsageError
from gpuconsole.insight.cost.allocation import CostHour
from gpuconsole.insight.forecast.backtest import ForecastDifferences
from gpuconsole.insight.health.alerting import ActiveAlert, AlertingError, AlertingRule, in_unit, read_rules
from gpuconsole.insight.preemption.history import Losses
from gpuconsole.insight.tables import counted, text_table
from gpuconsole.model.clock import HOUR, Time
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.prices import Prices
from gpuconsole.services.alerting import AlertService, AlertWebhook, WebhookTarget, notify_desktop
from gpuconsole.services.console import Console
from gpuconsole.services.metrics import ClusterCollector
from gpuconsole.services.status import ConsoleMode, ConsoleStatus
from gpuconsole.ui.names import called, named


def rules_of(path: Path) -> tuple[AlertingRule, ...]:
    """Read a rule file. Raises ConfigError with file, line and field."""
    try:
        return read_rules(path.read_text(encoding="utf-8"))
    except AlertingError as error:
        raise ConfigError(str(path), str(error)) from error
    except OSError as error:
        raise ConfigError(str(path), error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), f"not UTF-8 text: {error.reason}") from error


def evaluate_rules(console: Console, settings: Config) -> None:
    """Let a console evaluate the rules of the configuration from its start on. Raises ConfigError.

    Only the process that records a live cluster notifies others: each console beside it, each page of a browser and
    each simulation would do so once more.
    """
    chosen, status, in_browser = settings.alerts, console.status, WEB_DRIVER in os.environ
    notifies = status.mode is ConsoleMode.LIVE and not status.reads_history and not in_browser
    webhook = None
    if chosen.webhook and notifies:
        target = WebhookTarget(
            url=chosen.webhook,
            token_file=Path(chosen.webhook_token_file).expanduser() if chosen.webhook_token_file else None,
            group_by=chosen.group_by,
            repeat=round(chosen.repeat_hours * HOUR),
        )
        webhook = AlertWebhook(target, lambda: console.status.source)
    budgets = budgets_of((), settings.cost)
    collector = ClusterCollector(console, version=__version__, job_name=called, budgets=budgets)
    console.alerting = AlertService(
        collector.collect,
        rules_of(Path(chosen.rules).expanduser()),
        # While an earlier time is shown, the metrics are those of then.
        now=lambda: 0 if console.is_travelling else console.newest.time,
        silences=None if in_browser else settings.state / "silences.json",
        webhook=webhook,
        rings=chosen.bell,
    )
    if chosen.desktop and notifies:
        console.alerting.listen(notify_desktop)


class _ReadCluster:
    """A cluster as it was read or simulated, as a source of metrics."""

    event_counts: Mapping[tuple[HistoryEventKind, str, str], int] = {}
    """Empty: counters need a process that sees the events."""
    compared = ForecastDifferences()

    def __init__(self, asked: QuestionContext) -> None:
        self.snapshot = asked.standing().snapshot
        self.prices: Prices = asked.simulation.policy.prices
        self.status = ConsoleStatus(source=asked.source, time=self.snapshot.time)
        self._history = lines_of(asked)

    def cost_hours(self, since: Time, until: Time) -> Sequence[CostHour]:
        """Return nothing: costs need a recorded history."""
        return ()

    def losses(self) -> Losses:
        """Return nothing: losses need a recorded history."""
        return {}

    def preemptions(self, limit: int) -> tuple[HistoryEvent, ...]:
        """Return the newest preemptions, oldest first."""
        return tuple(event for event in self._history if event.what is HistoryEventKind.PREEMPTED)[-limit:]


@click.command()
@answering
@click.option(
    "--rules",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File of alerting rules (default: alerts.rules of the configuration).",
)
def command(asked: QuestionContext, rules: Path | None) -> CommandAnswer:
    """List the alerts that rules raise in a cluster now.

    Rules have the form of Prometheus' rule files, over the metrics of `gpuconsole metrics`. Every condition that holds
    is listed, without regard to the time of its rule (`for`). Rules on `increase`, on costs and on estimates need a
    console or a recorder that runs.
    """
    configured_file = asked.settings.alerts.rules
    file = rules or (Path(configured_file).expanduser() if configured_file else None)
    if file is None:
        raise UsageError("no rule file: use --rules FILE, or set alerts.rules in config.yaml")
    known = rules_of(file)
    source = _ReadCluster(asked)
    collector = ClusterCollector(source, version=__version__, job_name=called)
    service = AlertService(collector.collect, [replace(rule, wait=0) for rule in known], now=lambda: source.status.time)
    service.evaluate()
    skipped = _not_evaluated(service)
    body = {
        "rules": len(known),
        "alerts": [_document(alert) for alert in service.alerts],
        "not_evaluated": [{"name": name, "reason": reason} for name, reason in skipped],
    }
    lines = [
        *_lines(service.alerts, len(known) - len(skipped), len(known)),
        *(f"not evaluated: {name}: {reason}" for name, reason in skipped),
    ]
    return CommandAnswer(kind="Alerts", body=body, lines=lines)


def _not_evaluated(service: AlertService) -> list[tuple[str, str]]:
    """The rules that one look at a cluster cannot evaluate, each with the reason."""
    found = []
    for rule in service.rules:
        if rule.condition.window is not None:
            found.append((rule.name, "increase needs a console or a recorder that runs"))
        elif rule in service.without_metric:
            found.append((rule.name, f"this cluster has no metric {rule.condition.metric} now"))
    return found


def _document(alert: ActiveAlert) -> dict[str, Any]:
    return {
        "name": alert.name,
        "severity": alert.severity,
        "labels": alert.labels,
        "annotations": alert.annotations,
        "value": alert.value,
    }


def _lines(alerts: Sequence[ActiveAlert], evaluated: int, rules: int) -> list[str]:
    if not alerts:
        return [f"no alerts: {evaluated} of {counted(rules, 'rule')} evaluated"]
    heads = ("SEVERITY", "ALERT", "VALUE", "SUMMARY")
    return text_table(
        heads, [(one.severity, one.name, in_unit(one.metric, one.value), named(one.summary)) for one in alerts]
    )
