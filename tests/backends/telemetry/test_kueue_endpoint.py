"""Kueue's manager asked itself: one text about all queues, of which one is read, counted since the manager started."""

from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest

from gpuconsole.backends.telemetry.http import Http, HttpAccess
from gpuconsole.backends.telemetry.kueue_metrics import KueueEndpoint, quantile
from gpuconsole.backends.telemetry.prometheus import Series
from gpuconsole.errors import TelemetryError
from gpuconsole.insight.index.queues import QueueMetrics
from gpuconsole.model.clock import SECOND
from gpuconsole.model.resources import GPU
from tests.support.prometheus_answers import NOW

STARTED = 1_759_900_000
TEXT = f"""\
# HELP kueue_pending_workloads The number of pending workloads, per 'cluster_queue' and 'status'.
# TYPE kueue_pending_workloads gauge
kueue_pending_workloads{{cluster_queue="cq-a",replica_role="leader",status="active"}} 8
kueue_pending_workloads{{cluster_queue="cq-a",replica_role="leader",status="inadmissible"}} 4
kueue_pending_workloads{{cluster_queue="cq-a-2",replica_role="leader",status="active"}} 99
kueue_reserving_active_workloads{{cluster_queue="cq-a"}} 3
kueue_admitted_active_workloads{{cluster_queue="cq-a"}} 2
kueue_cluster_queue_resource_usage{{cluster_queue="cq-a",cohort="c",flavor="a100",resource="{GPU}"}} 12
kueue_cluster_queue_resource_usage{{cluster_queue="cq-a",cohort="c",flavor="a100",resource="cpu"}} 1.5
kueue_evicted_workloads_total{{cluster_queue="cq-a",reason="Preempted",underlying_cause=""}} 2
kueue_evicted_workloads_total{{cluster_queue="cq-a",reason="Preempted",underlying_cause="Other"}} 1
kueue_evicted_workloads_total{{cluster_queue="cq-a",reason="PodsReadyTimeout",underlying_cause=""}} 0
kueue_admission_wait_time_seconds_bucket{{cluster_queue="cq-a",le="10"}} 10
kueue_admission_wait_time_seconds_bucket{{cluster_queue="cq-a",le="100"}} 20
kueue_admission_wait_time_seconds_bucket{{cluster_queue="cq-a",le="+Inf"}} 20
kueue_admission_wait_time_seconds_count{{cluster_queue="cq-a"}} 20
process_start_time_seconds {STARTED}e+00
"""


def endpoint(text: str = TEXT, status: int = 200, access: HttpAccess | None = None) -> KueueEndpoint:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(status if request.url.path == "/metrics" else 404, text=text)

    return KueueEndpoint(Http("https://kueue:8443", access, httpx.MockTransport(answer)))


def test_all_that_kueue_tells_of_a_queue() -> None:
    assert endpoint().of("cq-a", NOW) == QueueMetrics(
        queue="cq-a",
        source="https://kueue:8443",
        time=NOW,
        since=STARTED * SECOND,
        pending=12,
        inadmissible=4,
        reserving=3,
        admitted=2,
        wait_median=10,
        wait_p95=91,
        evicted={"Preempted": 3},
        usage={("a100", GPU): 12, ("a100", "cpu"): 1.5},
    )


def test_what_is_not_told_is_unknown_and_not_zero() -> None:
    told = endpoint('kueue_admitted_active_workloads{cluster_queue="q"} 0\n').of("q", NOW)
    assert told == QueueMetrics(queue="q", source="https://kueue:8443", time=NOW, admitted=0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (TEXT, "https://kueue:8443: no Kueue metrics for cq-b; is this the leader replica?"),
        ("go_goroutines 5\n", "https://kueue:8443: no Kueue metrics (kueue_…) at this address"),
    ],
)
def test_an_endpoint_that_does_not_know_the_queue_says_so(text: str, why: str) -> None:
    with pytest.raises(TelemetryError) as raised:
        endpoint(text).of("cq-b", NOW)
    assert str(raised.value) == why


def test_whoever_is_not_let_in_is_told_which_setting_would_help(tmp_path: Path) -> None:
    access = HttpAccess(settings="live.telemetry.kueue", insecure=True)
    with pytest.raises(TelemetryError) as raised:
        endpoint("Unauthorized", 401, access).of("cq-a", NOW)
    why = "HTTP 401 Unauthorized; set live.telemetry.kueue.token_file to a file with a bearer token"
    assert str(raised.value) == f"https://kueue:8443/metrics: {why}"


@pytest.mark.parametrize(
    ("buckets", "median"),
    [
        ({"1": 0, "2": 4, "+Inf": 4}, 1.5),
        ({"1": 4, "+Inf": 4}, 0.5),
        ({"1": 1, "+Inf": 4}, 1.0),
        ({"1": 0, "+Inf": 0}, None),
        ({"1": 5}, None),
        ({"+Inf": 5}, None),
        ({"one": 1, "2": 4, "+Inf": 4}, 1.0),
        ({}, None),
    ],
)
def test_a_quantile_is_what_promql_makes_of_it(buckets: Mapping[str, float], median: float | None) -> None:
    told = [Series({"le": bound}, (0.0, str(count))) for bound, count in buckets.items()]
    assert quantile(0.5, told) == median


def test_counts_of_several_kinds_of_work_are_put_together() -> None:
    told = [Series({"le": le, "priority_class": name}, (0.0, "3")) for le in ("4", "+Inf") for name in ("a", "b")]
    assert quantile(0.5, told) == 2.0
