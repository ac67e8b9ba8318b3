"""The metrics, dashboards and rules as a real Prometheus sees them, of a simulated cluster."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.live.api import until
from tests.live.processes import Program, free_ports
from tests.live.telemetry import Prometheus, prometheus_binary, promtool_binary

BINARY, PROMTOOL = prometheus_binary(), promtool_binary()
DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
DASHBOARDS = sorted((DEPLOY / "grafana").glob("*.json"))
RULES = DEPLOY / "prometheus" / "rules.yaml"
PATIENCE = 120.0
VARIABLES = {"$__rate_interval": "30s", "$queue": ".*", "$team": ".*", "[1h]": "[30s]"}
"""What Grafana puts in place of its variables; an hour is longer than the test."""
EMPTY = {
    "Forecasts that agreed with Kueue": "a simulation has nothing to forecast",
    "Estimated start (median)": "it takes minutes of computing; tests/services/test_metrics.py has them",
    "Preemption risk": "as the estimated starts",
}
"""Panels without a result for this simulation, and why."""
pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(BINARY is None or PROMTOOL is None, reason="there is no Prometheus here (Debian: prometheus)"),
]


def panels() -> Iterator[tuple[str, str, str]]:
    """Dashboard, title and query of every panel."""
    for file in DASHBOARDS:
        for panel in json.loads(file.read_text())["panels"]:
            for target in panel["targets"]:
                yield file.stem, panel["title"], target["expr"]


def filled_in(query: str) -> str:
    for variable, value in VARIABLES.items():
        query = query.replace(variable, value)
    return query


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that scrapes the metrics of a fast simulation, and evaluates the rules."""
    assert BINARY is not None
    folder = tmp_path_factory.mktemp("prometheus")
    (port,) = free_ports(1)
    state = f"GPUCONSOLE_STATE_DIR={folder / 'state'}"
    command = ["env", state, sys.executable, "-m", "gpuconsole", "metrics", "default"]
    options = ["--speed", "1200", "--budget", "llm=1", "--listen", f"127.0.0.1:{port}"]
    exporter = Program("metrics", [*command, *options], folder)
    config: dict[str, Any] = {
        "global": {"scrape_interval": "3s", "scrape_timeout": "3s", "evaluation_interval": "3s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [
            {
                "job_name": "gpuconsole",
                "honor_labels": True,
                "static_configs": [{"targets": [f"127.0.0.1:{port}"]}],
            }
        ],
    }
    exporter.start()
    try:
        with Prometheus(BINARY, folder, config=config) as prometheus:
            yield prometheus
    finally:
        exporter.kill()


def test_every_panel_of_every_dashboard_has_a_result(prometheus: Prometheus) -> None:
    missing = {(board, title): filled_in(query) for board, title, query in panels() if title not in EMPTY}
    assert len(missing) > 35
    deadline = time.monotonic() + PATIENCE
    # Some of it, such as a preemption loop or a loan, is there for a while only.
    while missing and time.monotonic() < deadline:
        missing = {place: query for place, query in missing.items() if not prometheus.query(query)}
        time.sleep(0.5)
    assert missing == {}


def test_no_query_is_refused(prometheus: Prometheus) -> None:
    for _, _, query in panels():
        prometheus.query(filled_in(query))


def test_scrapes_succeed_and_the_cost_of_the_cluster_adds_up(prometheus: Prometheus) -> None:
    until(lambda: prometheus.query("sum(training_job_cost_usd) > 1"), PATIENCE)
    assert [value for _, value in prometheus.query('up{job="gpuconsole"}')] == [1.0]
    assert [value for _, value in prometheus.query("sum(gpuconsole_scrape_errors_total)")] == [0.0]
    difference = prometheus.query("abs(sum(training_job_cost_usd) - sum(gpuconsole_team_cost_month_to_date_usd))")
    assert [value < 0.01 for _, value in difference] == [True]


def test_recording_rules_have_results_and_the_budget_alert_fires(prometheus: Prometheus) -> None:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    records = [rule["record"] for group in groups for rule in group["rules"] if "record" in rule]
    records.remove("gpuconsole:forecast_agreement:ratio1d")
    assert len(records) == 4
    # Recording rules are evaluated once a minute.
    for record in records:
        until(lambda record=record: prometheus.query(record), PATIENCE)  # type: ignore[misc]
    fires = 'ALERTS{alertname="GpuTeamBudgetExceeded",team="llm",alertstate="firing"}'
    until(lambda: prometheus.query(fires), PATIENCE)


RULE_TESTS = """
rule_files: [{rules}]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {{series: 'gpuconsole_build_info{{version="1"}}', values: '1x20 _x20'}}
      - {{series: 'gpuconsole_preemption_loops{{kind="queue"}}', values: '0x10 2x30'}}
      - {{series: 'gpuconsole_queue_oldest_pending_seconds{{cluster_queue="llm"}}', values: '21000+60x60'}}
      - {{series: 'gpuconsole_team_cost_month_to_date_usd{{team="llm",job="gpuconsole"}}', values: '90+1x60'}}
      - {{series: 'gpuconsole_team_budget_usd{{team="llm",job="gpuconsole"}}', values: '100x60'}}
      - {{series: 'gpuconsole_history_failing', values: '0x10 1x30'}}
    alert_rule_test:
      - {{eval_time: 5m, alertname: GpuTeamBudgetExceeded, exp_alerts: []}}
      - eval_time: 15m
        alertname: GpuTeamBudgetExceeded
        exp_alerts: [{{exp_labels: {{severity: warning, team: llm, job: gpuconsole}}, exp_annotations: {budget}}}]
      - {{eval_time: 10m, alertname: GpuPreemptionLoop, exp_alerts: []}}
      - eval_time: 17m
        alertname: GpuPreemptionLoop
        exp_alerts: [{{exp_labels: {{severity: warning, kind: queue}}, exp_annotations: {loop}}}]
      - {{eval_time: 10m, alertname: GpuWorkloadPendingTooLong, exp_alerts: []}}
      - eval_time: 30m
        alertname: GpuWorkloadPendingTooLong
        exp_alerts: [{{exp_labels: {{severity: warning, cluster_queue: llm}}, exp_annotations: {pending}}}]
      - {{eval_time: 20m, alertname: GpuconsoleRecorderDown, exp_alerts: []}}
      - eval_time: 35m
        alertname: GpuconsoleRecorderDown
        exp_alerts: [{{exp_labels: {{severity: critical}}, exp_annotations: {down}}}]
      - eval_time: 20m
        alertname: GpuconsoleHistoryFailing
        exp_alerts: [{{exp_labels: {{severity: critical}}, exp_annotations: {failing}}}]
"""


def test_the_alerts_fire_when_they_should_and_not_before(tmp_path: Path) -> None:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    rules = {rule["alert"]: rule for group in groups for rule in group["rules"] if "alert" in rule}

    def annotations(alert: str, **values: str) -> str:
        texts: dict[str, str] = dict(rules[alert]["annotations"])
        for name, text in texts.items():
            for template, value in values.items():
                text = text.replace(TEMPLATES[template], value)
            texts[name] = text
        return json.dumps(texts)

    test = RULE_TESTS.format(
        rules=RULES,
        budget=annotations("GpuTeamBudgetExceeded", team="llm", money="105.00"),
        loop=annotations("GpuPreemptionLoop", value="2", kind="queue"),
        pending=annotations("GpuWorkloadPendingTooLong", cluster_queue="llm", span="6h 20m 0s"),
        down=annotations("GpuconsoleRecorderDown"),
        failing=annotations("GpuconsoleHistoryFailing"),
    )
    file = tmp_path / "rules_test.yaml"
    file.write_text(test)
    done = subprocess.run([str(PROMTOOL), "test", "rules", str(file)], capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stdout + done.stderr


TEMPLATES = {
    "team": "{{ $labels.team }}",
    "kind": "{{ $labels.kind }}",
    "cluster_queue": "{{ $labels.cluster_queue }}",
    "value": "{{ $value }}",
    "money": '{{ $value | printf "%.2f" }}',
    "span": "{{ $value | humanizeDuration }}",
}
"""Templates of the annotations in rules.yaml."""


def test_promtool_accepts_the_rules() -> None:
    done = subprocess.run([str(PROMTOOL), "check", "rules", "--lint-fatal", str(RULES)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
