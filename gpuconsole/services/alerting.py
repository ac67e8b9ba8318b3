"""Evaluates alerting rules on the metrics of a console, and notifies: on the screen, and a webhook.

Rules are evaluated in a thread of its own, every `INTERVAL` seconds, by the time of the cluster. A group of alerts is
sent to the webhook when one of them begins to fire or is resolved, and again after the repeat interval, in the form of
Alertmanager's webhook; what cannot be delivered is sent at the next evaluation. Silences are kept in a file.
"""

import json
import logging
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import Struct

from gpuconsole.errors import ConsoleError
from gpuconsole.insight.health.alerting import (
    ActiveAlert,
    AlertEvaluator,
    AlertGroup,
    AlertingRule,
    AlertSilence,
    AlertState,
    MetricSample,
    grouped,
    notification,
)
from gpuconsole.model.clock import HOUR, Span, Time, format_time
from gpuconsole.model.text import clean
from gpuconsole.store.private import write_private

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

LOG = logging.getLogger(__name__)
INTERVAL = 15.0
"""Seconds between two evaluations of the rules."""
MOST_SHOWN = 5
"""Maximum desktop notifications of one evaluation."""
TIMEOUT = 10.0
"""Seconds that the webhook gets to respond."""
MOST_SILENCES = 1_000


class AlertNews(NamedTuple):
    """What changed in an evaluation."""

    fired: tuple[ActiveAlert, ...]
    resolved: tuple[ActiveAlert, ...]


class WebhookTarget(Struct, frozen=True, kw_only=True):
    """Where notifications are sent, and how."""

    url: str
    token_file: Path | None = None
    """A file with a bearer token, which is read for each request."""
    group_by: tuple[str, ...] = ("alertname",)
    repeat: Span = 4 * HOUR
    """Time after which a group that still fires is sent again."""


class SilenceFile:
    """The silences, kept in a file of the user. Mutates."""

    def __init__(self, path: Path | None) -> None:
        """Read the silences of earlier sessions; without a path they are forgotten at the end."""
        self._path = path
        self._read_at: tuple[int, int] | None = None
        """Time and size of the file as it was read last."""
        self.silences: tuple[AlertSilence, ...] = ()
        self.renew()

    def renew(self) -> None:
        """Read the file again if another process has changed it."""
        if self._path is None:
            return
        try:
            known = self._path.stat()
            if (known.st_mtime_ns, known.st_size) == self._read_at:
                return
            self._read_at = known.st_mtime_ns, known.st_size
            self.silences = tuple(msgspec.json.decode(self._path.read_bytes(), type=list[AlertSilence]))
        except FileNotFoundError:
            pass
        except (OSError, msgspec.MsgspecError) as error:
            LOG.warning("Silences of alerts cannot be read from %s: %s", self._path, error)

    def add(self, silence: AlertSilence, now: Time) -> None:
        """Add a silence; of the same labels it replaces the older one. Raises OSError if it cannot be written."""
        self.renew()
        others = [one for one in self.silences if one.labels != silence.labels and now < one.until]
        self._keep([*others, silence][-MOST_SILENCES:])

    def remove(self, alert: ActiveAlert, now: Time) -> None:
        """Remove all silences that cover an alert. Raises OSError."""
        self.renew()
        self._keep([one for one in self.silences if now < one.until and not one.covers(alert, now)])

    def _keep(self, silences: Sequence[AlertSilence]) -> None:
        if self._path is None:
            self.silences = tuple(silences)
            return
        write_private(self._path, msgspec.json.encode(list(silences)))
        self.renew()


def post(url: str, document: Mapping[str, object], headers: Mapping[str, str]) -> None:
    """Send a JSON document. Raises OSError with the reason if it is not accepted."""
    import httpx

    try:
        response = httpx.post(url, content=json.dumps(document), headers=dict(headers), timeout=TIMEOUT)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise OSError(clean(f"{type(error).__name__}: {error}")) from error
    if response.status_code >= 300:
        raise OSError(f"HTTP {response.status_code}: {clean(response.text, 200)}")


Post = Callable[[str, Mapping[str, object], Mapping[str, str]], None]


class AlertWebhook:
    """Sends groups of alerts to a webhook. Mutates."""

    def __init__(self, target: WebhookTarget, source: Callable[[], str], send: Post = post) -> None:
        """`source` names the cluster."""
        self._target = target
        self._source = source
        self._send = send
        self._sent: dict[str, tuple[frozenset[tuple[str, AlertState]], Time]] = {}
        """Key of a group → its alerts as last sent, and when."""
        self.failed = ""
        """Why the last notification could not be delivered; empty if it was."""

    def notify(self, alerts: Iterable[ActiveAlert], now: Time) -> None:
        """Send each group that changed, or that still fires after the repeat interval. Blocks; never raises."""
        groups = {group.key: group for group in grouped(alerts, self._target.group_by)}
        for key in [key for key in self._sent if key not in groups]:
            del self._sent[key]
        for key, group in groups.items():
            now_is = frozenset((alert.fingerprint, alert.state) for alert in group.alerts)
            fires = any(alert.state is AlertState.FIRING for alert in group.alerts)
            known, when = self._sent.get(key, (frozenset(), now))
            # Resolved alerts leave the list after a while, which is no news.
            is_new = not now_is <= known if known else fires
            if is_new or (fires and known and now - when >= self._target.repeat):
                if not self._deliver(group, now_is, now):
                    # A receiver that does not respond would hold the evaluation for each group.
                    return
            elif known:
                # Who resolves unseen, because of a silence, is news when it fires again.
                self._sent[key] = known & now_is, when

    def _deliver(self, group: AlertGroup, state: frozenset[tuple[str, AlertState]], now: Time) -> bool:
        """Send a group; returns whether it was accepted."""
        target = self._target
        headers = {"Content-Type": "application/json", "User-Agent": "gpuconsole"}
        try:
            if target.token_file is not None:
                headers["Authorization"] = f"Bearer {target.token_file.read_text().strip()}"
            self._send(target.url, notification(group, self._source(), format_time), headers)
        except (OSError, ValueError) as error:
            if not self.failed:
                LOG.warning("Alerts cannot be sent to the webhook: %s", error)
            self.failed = clean(str(error), 200)
            return False
        self.failed = ""
        self._sent[group.key] = state, now
        return True


def notify_desktop(news: AlertNews) -> None:
    """Show the alerts that began to fire on the desktop, by notify-send; nothing happens where it is not installed."""
    for alert in news.fired[:MOST_SHOWN]:
        try:
            subprocess.run(
                ["notify-send", "--app-name=gpuconsole", "--", alert.name, alert.summary],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=TIMEOUT,
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as error:
            LOG.info("No desktop notification: %s", error)


class AlertService:
    """Evaluates the rules of a cluster, and keeps the alerts. Mutates; thread-safe."""

    def __init__(
        self,
        collect: "Callable[[], Iterable[Metric]]",
        rules: Sequence[AlertingRule],
        *,
        now: Callable[[], Time],
        silences: Path | None = None,
        webhook: AlertWebhook | None = None,
        rings: bool = False,
        interval: float = INTERVAL,
    ) -> None:
        """`collect` returns the metrics, `now` the time of the cluster; 0 while nothing may be evaluated."""
        self.rings = rings
        """Whether a screen rings its bell when an alert begins to fire."""
        self._collect = collect
        self._evaluator = AlertEvaluator(rules)
        self._now = now
        self._silences = SilenceFile(silences)
        self._webhook = webhook
        self._interval = interval
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._listeners: list[Callable[[AlertNews], None]] = []
        self.alerts: tuple[ActiveAlert, ...] = ()
        """All alerts after the last evaluation: firing, pending, then recently resolved ones."""
        self.without_metric: tuple[AlertingRule, ...] = ()
        """Rules whose metric did not exist in the last evaluation: a misspelt one, or one that this cluster lacks."""

    @property
    def rules(self) -> tuple[AlertingRule, ...]:
        return self._evaluator.rules

    @property
    def firing(self) -> tuple[ActiveAlert, ...]:
        """The firing alerts that are not silenced."""
        return tuple(one for one in self.alerts if one.state is AlertState.FIRING and not self.is_silenced(one))

    @property
    def webhook_problem(self) -> str:
        """Why the last notification could not be delivered; empty if it was, and without a webhook."""
        return self._webhook.failed if self._webhook is not None else ""

    def listen(self, listener: Callable[[AlertNews], None]) -> None:
        """Call a function, from the thread of the evaluation, when alerts begin to fire or are resolved."""
        self._listeners.append(listener)

    def start(self) -> None:
        """Evaluate the rules in a separate thread, until `stop`."""
        threading.Thread(target=self._run, name="alerts", daemon=True).start()

    def stop(self) -> None:
        """Stop, without waiting for a running evaluation."""
        self._stopped.set()

    def is_silenced(self, alert: ActiveAlert) -> bool:
        """Whether notifications of an alert are suppressed."""
        now = wall_time()
        return any(silence.covers(alert, now) for silence in self._silences.silences)

    def silence(self, alert: ActiveAlert, span: Span) -> None:
        """Suppress the notifications of an alert for a time of the wall clock. Raises ConsoleError."""
        now = wall_time()
        self._change(lambda: self._silences.add(AlertSilence(dict(alert.labels), now + span), now))

    def unsilence(self, alert: ActiveAlert) -> None:
        """Notify of an alert again. Raises ConsoleError."""
        self._change(lambda: self._silences.remove(alert, wall_time()))

    def _change(self, change: Callable[[], None]) -> None:
        try:
            with self._lock:
                change()
        except OSError as error:
            raise ConsoleError(f"cannot write the silences: {error.strerror or error}") from error

    def evaluate(self) -> AlertNews:
        """Evaluate all rules once, notify, and return what changed. Blocks while the webhook responds."""
        now = self._now()
        if not now:
            return AlertNews((), ())
        before = {one.key: one.state for one in self.alerts}
        metrics = list(self._collect())
        # The name of a counter's family is without `_total`.
        known = {name for metric in metrics for name in (metric.name, f"{metric.name}_total")}
        self.without_metric = tuple(rule for rule in self.rules if rule.condition.metric not in known)
        self.alerts = self._evaluator.evaluate(_samples(metrics), now)
        with self._lock:
            self._silences.renew()
        audible = [one for one in self.alerts if not self.is_silenced(one)]
        news = AlertNews(
            tuple(one for one in audible if _is_news(before, one, AlertState.FIRING)),
            tuple(one for one in audible if _is_news(before, one, AlertState.RESOLVED)),
        )
        if news.fired or news.resolved:
            for listener in self._listeners:
                listener(news)
        if self._webhook is not None:
            self._webhook.notify(audible, wall_time())
        return news

    def _run(self) -> None:
        while not self._stopped.wait(self._interval):
            try:
                self.evaluate()
            except Exception:
                LOG.exception("Alerting rules cannot be evaluated")


def _is_news(before: Mapping[tuple[int, str], AlertState], alert: ActiveAlert, state: AlertState) -> bool:
    return alert.state is state and before.get(alert.key) is not state


def _samples(metrics: "Iterable[Metric]") -> Iterable[MetricSample]:
    for metric in metrics:
        for sample in metric.samples:
            yield MetricSample(sample.name, sample.labels, float(sample.value))


def wall_time() -> Time:
    """The time of this machine: silences and repeated notifications are for people, also in a fast simulation."""
    return time.time_ns() // 1_000
