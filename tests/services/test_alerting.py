"""The alert service: a real HTTP receiver is told of each change once, and silences outlive the process."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from gpuconsole.errors import ConsoleError
from gpuconsole.insight.health.alerting import AlertingRule, AlertState, parse_condition
from gpuconsole.model.clock import HOUR, MINUTE, Time
from gpuconsole.services import alerting
from gpuconsole.services.alerting import AlertNews, AlertService, AlertWebhook, WebhookTarget

RULE = AlertingRule(
    name="Long", condition=parse_condition("wait_seconds > 60"), annotations={"summary": "{{ $labels.job }}"}
)


class Receiver:
    """An HTTP receiver of notifications. Mutates."""

    def __init__(self) -> None:
        self.received: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.status = 200


@contextmanager
def receiving() -> Iterator[tuple[Receiver, str]]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if receiver.status == 200:
                receiver.received.append(json.loads(body))
                receiver.headers.append(dict(self.headers))
            self.send_response(receiver.status)
            self.end_headers()
            self.wfile.write(b"overloaded")

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield receiver, f"http://127.0.0.1:{server.server_port}/hook"
    finally:
        server.shutdown()
        server.server_close()


class Cluster:
    """Metrics and clocks that a test sets. Mutates."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waits: dict[str, float] = {}
        self.now: Time = 100 * HOUR
        monkeypatch.setattr(alerting, "wall_time", lambda: self.now)

    def collect(self) -> list[Metric]:
        family = GaugeMetricFamily("wait_seconds", "", labels=["job"])
        for job, seconds in self.waits.items():
            family.add_metric([job], seconds)
        return [family]

    def service(self, silences: Path | None = None, webhook: AlertWebhook | None = None) -> AlertService:
        return AlertService(self.collect, [RULE], now=lambda: self.now, silences=silences, webhook=webhook)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def sent(receiver: Receiver) -> list[tuple[str, list[tuple[str, str]]]]:
    """Status of each notification, and the job and status of each of its alerts."""
    return [
        (one["status"], sorted((alert["labels"]["job"], alert["status"]) for alert in one["alerts"]))
        for one in receiver.received
    ]


def test_a_receiver_gets_each_change_once_and_what_still_fires_again_after_a_while(cluster: Cluster) -> None:
    with receiving() as (receiver, url):
        webhook = AlertWebhook(WebhookTarget(url=url, repeat=HOUR), lambda: "prod")
        service = cluster.service(webhook=webhook)
        for waits in ({"a": 10.0}, {"a": 100.0}, {"a": 130.0}, {"a": 160.0, "b": 61.0}, {"b": 90.0}, {"b": 95.0}):
            cluster.waits = waits
            service.evaluate()
            cluster.now += MINUTE
        firing = [
            ("firing", [("a", "firing")]),
            ("firing", [("a", "firing"), ("b", "firing")]),
            ("firing", [("a", "resolved"), ("b", "firing")]),
        ]
        assert sent(receiver) == firing
        cluster.now += 30 * MINUTE
        service.evaluate()
        assert sent(receiver) == firing, "that the resolved alert left the list is no news"
        cluster.now += 30 * MINUTE
        service.evaluate()
        assert sent(receiver) == [*firing, ("firing", [("b", "firing")])]
        cluster.waits = {}
        service.evaluate()
        assert sent(receiver)[4:] == [("resolved", [("b", "resolved")])]


def test_what_could_not_be_delivered_is_sent_at_the_next_evaluation(cluster: Cluster, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    with receiving() as (receiver, url):
        webhook = AlertWebhook(WebhookTarget(url=url, token_file=token), lambda: "prod")
        service = cluster.service(webhook=webhook)
        cluster.waits, receiver.status = {"a": 100.0}, 503
        service.evaluate()
        assert (service.webhook_problem, receiver.received) == ("HTTP 503: overloaded", [])
        receiver.status = 200
        service.evaluate()
        service.evaluate()
        assert (service.webhook_problem, sent(receiver)) == ("", [("firing", [("a", "firing")])])
        assert receiver.headers[0]["Authorization"] == "Bearer secret"
        assert receiver.received[0]["alerts"][0]["labels"]["cluster"] == "prod"


def test_without_a_receiver_the_problem_is_stated_and_the_rules_go_on(cluster: Cluster) -> None:
    webhook = AlertWebhook(WebhookTarget(url="http://127.0.0.1:1/hook"), lambda: "prod")
    service = cluster.service(webhook=webhook)
    cluster.waits = {"a": 100.0}
    assert [alert.labels["job"] for alert in service.evaluate().fired] == ["a"]
    assert service.webhook_problem.startswith("ConnectError")


def test_news_are_what_began_to_fire_and_what_was_resolved(cluster: Cluster) -> None:
    heard: list[AlertNews] = []
    service = cluster.service()
    service.listen(heard.append)
    for waits in ({"a": 100.0}, {"a": 100.0}, {}, {}):
        cluster.waits = waits
        service.evaluate()
    assert [([one.summary for one in news.fired], [one.summary for one in news.resolved]) for news in heard] == [
        (["a"], []),
        ([], ["a"]),
    ]


def test_a_silenced_alert_is_listed_and_not_notified_also_after_a_restart(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "state" / "silences.json"
    with receiving() as (receiver, url):
        webhook = AlertWebhook(WebhookTarget(url=url), lambda: "prod")
        service = cluster.service(file)
        cluster.waits = {"a": 100.0}
        service.evaluate()
        service.silence(service.alerts[0], HOUR)
        assert (file.stat().st_mode & 0o777, len(service.firing)) == (0o600, 0)
        again = cluster.service(file, webhook)
        assert again.evaluate() == AlertNews((), ())
        assert [one.state for one in again.alerts] == [AlertState.FIRING]
        assert receiver.received == []
        cluster.now += HOUR
        again.evaluate()
        assert sent(receiver) == [("firing", [("a", "firing")])]
        again.silence(again.alerts[0], HOUR)
        again.unsilence(again.alerts[0])
        assert len(again.firing) == 1


def test_silences_that_cannot_be_read_are_none_and_that_cannot_be_written_are_an_error(
    cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "silences.json").write_text("{")
    service = cluster.service(tmp_path / "silences.json")
    cluster.waits = {"a": 100.0}
    service.evaluate()
    assert len(service.firing) == 1
    blocked = cluster.service(tmp_path / "silences.json" / "below")
    blocked.evaluate()
    with pytest.raises(ConsoleError, match="cannot write the silences"):
        blocked.silence(blocked.alerts[0], HOUR)
