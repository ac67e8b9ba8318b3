"""Kueue's own metrics of one queue: four queries while somebody looks, and nothing that was not told is made up."""

from collections.abc import Mapping
from math import nan

import httpx
import pytest

from gpuconsole.backends.telemetry.kueue_metrics import AGAIN, RENEW, KueueMetrics, KueueQueries
from gpuconsole.backends.telemetry.prometheus import Prometheus
from gpuconsole.insight.index.queues import MetricComparison, QueueMetrics, counted
from gpuconsole.model.clock import HOUR, SECOND
from gpuconsole.model.resources import GPU
from tests.support.prometheus_answers import NOW, SCRAPED, FakePrometheus, vector
from tests.support.snapshots import ORG, waiting, world

Found = list[tuple[Mapping[str, str], str]]
GAUGES: Found = [
    ({"__name__": "kueue_pending_workloads", "status": "active"}, "8"),
    ({"__name__": "kueue_pending_workloads", "status": "inadmissible"}, "4"),
    ({"__name__": "kueue_reserving_active_workloads", "pod": "leader"}, "3"),
    ({"__name__": "kueue_reserving_active_workloads", "pod": "waits"}, "0"),
    ({"__name__": "kueue_admitted_active_workloads"}, "2"),
    ({"__name__": "kueue_cluster_queue_resource_usage", "flavor": "a100", "resource": GPU}, "12"),
    ({"__name__": "kueue_cluster_queue_resource_usage", "flavor": "a100", "resource": "cpu"}, "1.5"),
]


class Asked:
    """Kueue's metrics, asked for at chosen moments."""

    def __init__(self, **answers: Found) -> None:
        self.prometheus = FakePrometheus()
        self.answers: dict[str, Found] = {
            "__name__": GAUGES,
            "timestamp": [({}, str(SCRAPED))],
            "histogram": [({"quantile": "0.5"}, "12.5"), ({"quantile": "0.95"}, "180")],
            "evicted": [({"reason": "Preempted"}, "3.02"), ({"reason": "Rare\u001b[2J"}, "0.1")],
            **answers,
        }
        self.prometheus.instead = self.answer
        self.now = 0.0
        queries = KueueQueries(Prometheus(self.prometheus.http))
        self.metrics = KueueMetrics(queries, lambda: NOW, clock=lambda: self.now)

    def answer(self, query: str) -> httpx.Response:
        return vector(next(found for word, found in self.answers.items() if word in query))


def test_all_that_kueue_tells_of_a_queue() -> None:
    asked = Asked()
    assert asked.metrics.of("cq-a") == QueueMetrics(
        queue="cq-a",
        source="http://prometheus:9090",
        time=SCRAPED * SECOND,
        since=SCRAPED * SECOND - HOUR,
        pending=12,
        inadmissible=4,
        reserving=3,
        admitted=2,
        wait_median=12.5,
        wait_p95=180,
        evicted={"Preempted": 3},
        usage={("a100", GPU): 12, ("a100", "cpu"): 1.5},
    )
    assert len(asked.prometheus.queries) == 4


def test_what_nobody_measures_is_unknown_and_not_zero() -> None:
    asked = Asked(__name__=GAUGES[:1], histogram=[({"quantile": "0.5"}, str(nan))], evicted=[], timestamp=[])
    assert asked.metrics.of("q") == QueueMetrics(
        queue="q", source="http://prometheus:9090", time=NOW, since=NOW - HOUR, pending=8
    )


def test_an_answer_stands_for_a_while_and_only_for_its_queue() -> None:
    asked = Asked()
    first = asked.metrics.of("cq-a")
    asked.now = RENEW - 1
    assert asked.metrics.of("cq-a") is first
    assert len(asked.prometheus.queries) == 4
    asked.metrics.of("cq-b")
    asked.now = 2 * RENEW
    asked.metrics.of("cq-b")
    assert len(asked.prometheus.queries) == 12


def test_a_prometheus_without_kueue_is_said_and_left_alone() -> None:
    asked = Asked(__name__=[])
    why = "http://prometheus:9090: no Kueue metrics for cq-a; does this Prometheus scrape kueue-controller-manager?"
    assert asked.metrics.of("cq-a") == QueueMetrics(queue="cq-a", source="http://prometheus:9090", trouble=why)
    asked.now = AGAIN - 1
    asked.metrics.of("cq-a")
    assert len(asked.prometheus.queries) == 1


@pytest.mark.parametrize(("name", "quoted"), [("a", '"a"'), ('a"} or up{x="', r'"a\"} or up{x=\""')])
def test_a_name_cannot_end_the_selector(name: str, quoted: str) -> None:
    asked = Asked()
    asked.metrics.of(name)
    assert all(f"cluster_queue={quoted}" in query for query in asked.prometheus.queries)


def test_both_accounts_stand_side_by_side() -> None:
    snapshot = world([*ORG, waiting("next", "research/lq", 4)])
    told = QueueMetrics(queue="cq-research", pending=1, reserving=2, usage={("a100", GPU): 12.0, ("a100", "cpu"): 1.5})
    assert list(counted(told, snapshot)) == [
        MetricComparison("Pending", 1, 1),
        MetricComparison("Quota reserved", 2, 3),
        MetricComparison(f"a100 {GPU}", 12, 12),
    ]
    assert [one.same for one in counted(told, snapshot)] == [True, False, True]
