"""Kueue's Deployment and metrics: not ready, scaled to 0, gone; nothing where that may not be read."""

from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from gpuconsole.backends.kube import kueue_config as kueue_health
from gpuconsole.backends.kube.kueue_config import AGAIN, INTERVAL, NO_METRICS, SOON, KueueHealth
from gpuconsole.backends.telemetry.kueue_metrics import KueueMetrics
from gpuconsole.errors import TelemetryError
from gpuconsole.insight.health.engines import KueueProblem
from gpuconsole.insight.index.queues import QueueMetrics
from gpuconsole.model.clock import Time
from tests.backends.kube.test_settings import DEPLOYMENTS, FORBIDDEN, USUAL, deployment
from tests.backends.kube.test_visibility import Kueue
from tests.backends.kube.test_watch import until

NAME = "kueue-system/kueue-controller-manager"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Kueue]:
    made = Kueue(tmp_path)
    yield made
    made.server.shutdown()
    made.server.server_close()


def replicas(ready: int | None, wanted: int = 1) -> Any:
    """The Deployment as the API server has it: of no ready replicas it says nothing."""
    made = deployment()
    made["spec"]["replicas"] = wanted
    if ready is not None:
        made["status"] = {"observedGeneration": 3, **({"readyReplicas": ready} if ready else {})}
    return 200, {"items": [made]}


def health(cluster: Kueue) -> KueueHealth:
    return KueueHealth(cluster.connection, None, lambda: "cq")


def after(looking: KueueHealth) -> list[KueueProblem]:
    """The problems after one more look."""
    looking.look()
    return list(looking.problems)


@pytest.mark.parametrize(
    ("answer", "mark"),
    [
        (replicas(1), None),
        (replicas(1, wanted=2), None),
        (replicas(None), None),
        (replicas(0), "Kueue is not ready"),
        (replicas(0, wanted=0), "Kueue is scaled to 0"),
        ((200, {"items": []}), None),
        ((500, {"code": 500}), None),
        ((200, {"items": "odd"}), None),
    ],
)
def test_a_deployment_without_a_ready_replica_is_a_problem(cluster: Kueue, answer: Any, mark: str | None) -> None:
    cluster.answers = {DEPLOYMENTS: answer}
    looking = health(cluster)
    assert [one.mark for one in after(looking)] == ([mark] if mark is not None else [])


def test_the_problem_names_the_deployment_and_ends_when_it_is_ready_again(cluster: Kueue) -> None:
    looking = health(cluster)
    cluster.answers = {DEPLOYMENTS: replicas(0, wanted=2)}
    text = f"Deployment {NAME} is not ready: 0 of 2 replicas; no workloads are admitted"
    assert after(looking) == [KueueProblem("Kueue is not ready", text)]
    cluster.answers = {DEPLOYMENTS: replicas(2, wanted=2)}
    assert after(looking) == []


def test_while_something_is_wrong_its_end_is_noticed_soon(cluster: Kueue, monkeypatch: pytest.MonkeyPatch) -> None:
    assert SOON < 10.0 < INTERVAL
    monkeypatch.setattr(kueue_health, "INTERVAL", 60.0)
    monkeypatch.setattr(kueue_health, "SOON", 0.05)
    looking = health(cluster)
    cluster.answers = {DEPLOYMENTS: replicas(0)}
    thread = Thread(target=looking.watch, daemon=True)
    thread.start()
    until(lambda: looking.problems)
    cluster.answers = {DEPLOYMENTS: replicas(1)}
    until(lambda: not looking.problems)
    looking.stop()
    thread.join(10)
    assert not thread.is_alive()


def test_a_deployment_that_was_there_and_is_deleted_is_gone(cluster: Kueue) -> None:
    looking = health(cluster)
    cluster.answers = {DEPLOYMENTS: replicas(1)}
    looking.look()
    cluster.answers = {DEPLOYMENTS: (200, {"items": []})}
    assert [one.mark for one in after(looking)] == ["Kueue was deleted"]


def test_a_deployment_that_is_known_is_read_by_its_name_and_nothing_is_listed(cluster: Kueue) -> None:
    looking = health(cluster)
    cluster.answers = {DEPLOYMENTS: replicas(1), USUAL: (200, replicas(0)[1]["items"][0])}
    assert after(looking) == []
    asked = len(cluster.asked)
    assert [one.mark for one in after(looking)] == ["Kueue is not ready"]
    assert [path.split("?")[0] for path in cluster.asked[asked:]] == [USUAL]


def test_a_cluster_without_a_deployment_is_asked_for_it_only_now_and_then(cluster: Kueue) -> None:
    looking = health(cluster)
    cluster.answers = {DEPLOYMENTS: (200, {"items": []})}
    for _ in range(AGAIN + 1):
        assert after(looking) == []
    assert len(cluster.asked) == 1


def test_a_deployment_that_may_not_be_read_is_no_problem(cluster: Kueue) -> None:
    looking = health(cluster)
    cluster.answers = {DEPLOYMENTS: replicas(1)}
    looking.look()
    cluster.answers = {DEPLOYMENTS: FORBIDDEN, USUAL: FORBIDDEN}
    assert after(looking) == []
    cluster.answers, asked = {DEPLOYMENTS: replicas(0)}, len(cluster.asked)
    assert [after(looking) for _ in range(AGAIN)] == [[]] * AGAIN
    assert len(cluster.asked) == asked, "it is not asked for again and again"
    assert [one.mark for one in after(looking)] == ["Kueue is not ready"]


class Knower:
    """Knows metrics until it does not."""

    address = "http://kueue"

    def __init__(self) -> None:
        self.gone = False

    def of(self, queue: str, now: Time) -> QueueMetrics:
        if self.gone:
            raise TelemetryError("http://kueue: connection refused")
        return QueueMetrics(queue=queue)


def test_metrics_that_were_there_and_are_gone_are_a_problem(cluster: Kueue) -> None:
    knower = Knower()
    looking = KueueHealth(cluster.connection, KueueMetrics(knower, lambda: 0), lambda: "cq")
    assert after(looking) == []
    knower.gone = True
    text = f"{NO_METRICS}: http://kueue: connection refused"
    assert after(looking) == [KueueProblem(NO_METRICS, text)]
    knower.gone = False
    assert after(looking) == []


def test_metrics_that_were_never_there_are_no_problem(cluster: Kueue) -> None:
    knower = Knower()
    knower.gone = True
    looking = KueueHealth(cluster.connection, KueueMetrics(knower, lambda: 0), lambda: "cq")
    assert after(looking) == []
