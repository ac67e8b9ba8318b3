"""What is foreseen from watches alone is what the stand-in for Kueue does; what differs is recorded and named."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from gpuconsole.backends.kube.backend import KubeBackend
from gpuconsole.backends.kube.target import RequestedCluster
from gpuconsole.insight.forecast.backtest import DifferenceCause, ForecastDifferences
from gpuconsole.insight.forecast.forecast import ForecastAction
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.services.console import Console
from gpuconsole.store import queries
from gpuconsole.store.recorder import Opening, Recorder
from gpuconsole.store.schema import open_for_reading
from tests.live import stock
from tests.live.api import PATIENCE, Api, Manifest, until
from tests.live.controlplane import ControlPlane
from tests.live.identities import KUEUE, NODELESS, READER, Identity
from tests.live.kueue.controllers import KueueStandIn
from tests.live.paths import CLUSTER_QUEUES, WORKLOADS
from tests.live.seeing import BRISK
from tests.live.test_kueue import wait_for

pytestmark = pytest.mark.live
QUEUE = f"{CLUSTER_QUEUES}/cq-b"


class Watching:
    """The console beside a live cluster; looks come by hand."""

    def __init__(self, plane: ControlPlane, who: Identity, history: Path) -> None:
        target = RequestedCluster(kubeconfig=str(plane.kubeconfig(who)))
        self.recorder = Recorder(history, Opening(version="test"), wall=lambda: 0)
        self.console = Console(KubeBackend(target, pace=BRISK), recorder=self.recorder)

    def tick(self, seconds: float = 0.2) -> Snapshot:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.console.tick(0.04)
            time.sleep(0.04)
        return self.console.snapshot

    def until(self, what: str) -> None:
        """Look ahead until Kueue has done this to some workload."""
        patience = time.monotonic() + PATIENCE
        while not any(what in workload.name or workload.is_true(what) for workload in self.tick().workloads.all()):
            assert time.monotonic() < patience, f"nothing is {what}"
            self.look()
        self.look()

    def look(self) -> None:
        assert self.console.forecaster is not None
        self.console.forecaster.look()

    def recorded(self) -> ForecastDifferences:
        self.recorder.flush()
        with closing(open_for_reading(self.recorder.path)) as db:
            return queries.compared(db, 100)


@contextmanager
def watching(plane: ControlPlane, history: Path, who: Identity = READER) -> Iterator[Watching]:
    made = Watching(plane, who, history)
    try:
        until(lambda: not (made.tick() is None or made.console.status.loading))
        made.look()
        yield made
    finally:
        made.console.stop()


@pytest.fixture
def api(plane: ControlPlane) -> Iterator[Api]:
    """Two ClusterQueues of a cohort, cq-a with 16 GPUs and cq-b with 8; Kueue is not at work yet."""
    with stock.queues(plane.api()) as api:
        yield api


def test_the_stand_in_does_what_was_foreseen(plane: ControlPlane, api: Api, tmp_path: Path) -> None:
    with watching(plane, tmp_path / "history.db") as watched, KueueStandIn(plane.api(KUEUE)):
        api.create(stock.job("borrows", "lq-b", gpus=8, pods=3))
        watched.until("PodsReady")
        api.create(stock.job("huge", "lq-b", gpus=8, pods=4))
        watched.until("job-huge")
        api.create(stock.job("owner", "lq-a", gpus=8))
        wait_for(api, "borrows", "Evicted")
        wait_for(api, "owner", "PodsReady")
        watched.tick(1.0)
        watched.look()
        said = watched.console.compared
        [huge] = [one for one in watched.console.forecast.prospects.values() if "huge" in one.workload]
    assert (huge.fate, "maximum capacity (24)" in huge.message) == (ForecastAction.WAITS, True)
    assert said.decisions >= 3, "borrows and owner were admitted, borrows had to make room"
    assert said.agreement == 1.0, said.differences


def test_what_was_foreseen_before_kueue_is_there_comes_true(plane: ControlPlane, api: Api, tmp_path: Path) -> None:
    for priority, (name, pods) in enumerate((("third", 3), ("second", 1), ("first", 2))):
        api.create(waiting(name, pods, priority=priority))
    with watching(plane, tmp_path / "history.db") as watched:
        foreseen = watched.console.forecast
        fates = {key.rpartition("/")[2]: (one.fate, one.flavors) for key, one in foreseen.prospects.items()}
        assert fates == {
            "first": (ForecastAction.ADMITTED, ("h100",)),
            "second": (ForecastAction.ADMITTED, ("h100",)),
            "third": (ForecastAction.WAITS, ()),
        }
        with KueueStandIn(plane.api(KUEUE)):
            until(lambda: sum(one.reserved for one in watched.tick().workloads.all()) == 2)
            watched.look()
        assert watched.console.compared == ForecastDifferences(decisions=2, agreed=2)


def test_what_kueue_does_otherwise_is_recorded_with_its_cause(plane: ControlPlane, api: Api, tmp_path: Path) -> None:
    api.patch(QUEUE, {"spec": {"stopPolicy": "Hold"}})
    api.create(waiting("planted", 1, queue="lq-b"))
    with watching(plane, tmp_path / "history.db") as watched:
        assert watched.console.forecast.prospects["team-a/planted"].fate is ForecastAction.WAITS
        admit(api, "planted", "cq-b")
        until(lambda: watched.tick().workloads["team-a/planted"].reserved)
        watched.look()
        [difference] = watched.recorded().differences
        assert (difference.workload, difference.cause) == ("team-a/planted", DifferenceCause.DISAGREEMENT)
        assert difference.forecast.startswith("pending: ClusterQueue cq-b is")
        assert difference.fact == "admitted: main×1 cpu=h100,memory=h100,nvidia.com/gpu=h100"


def test_who_may_not_see_nodes_is_not_told_of_disagreement(plane: ControlPlane, api: Api, tmp_path: Path) -> None:
    api.patch(QUEUE, {"spec": {"stopPolicy": "Hold"}})
    api.create(waiting("planted", 1, queue="lq-b"))
    with watching(plane, tmp_path / "history.db", NODELESS) as watched:
        assert any("nodes" in text for text in watched.console.forecast.assumed)
        admit(api, "planted", "cq-b")
        until(lambda: watched.tick().workloads["team-a/planted"].reserved)
        watched.look()
        assert [one.cause for one in watched.console.compared.differences] == [DifferenceCause.UNSEEN]


def test_the_command_line_looks_on_and_prints_the_agreement(plane: ControlPlane, api: Api, tmp_path: Path) -> None:
    asked = [sys.executable, "-m", "gpuconsole", "forecast", "--live", "--kubeconfig", str(plane.kubeconfig(READER))]
    environment = {**os.environ, "GPUCONSOLE_STATE_DIR": str(tmp_path)}
    api.create(waiting("first", 2))
    now = subprocess.run(asked, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert "team-a/first  cq-a     16         0  admitted in cycle 1 on h100" in now.stdout
    assert (
        "Kueue's Configuration is assumed to be the default: ConfigMap kueue-system/kueue-manager-config" in now.stdout
    )
    checking = subprocess.Popen(
        [*asked, "--check", "--for", "10s", "--every", "500ms", "-o", "json"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert checking.stderr is not None
    assert "watching for 10s" in checking.stderr.readline()
    with KueueStandIn(plane.api(KUEUE)):
        until(lambda: api.get(f"{WORKLOADS}/first").get("status", {}).get("admission"))
        api.create(waiting("second", 1, queue="lq-b"))
        until(lambda: api.get(f"{WORKLOADS}/second").get("status", {}).get("admission"))
        out, _ = checking.communicate(timeout=60)
    agreement = json.loads(out)["answer"]["agreement"]
    assert (checking.returncode, agreement["decisions"], agreement["part"]) == (0, 2, 1.0)


def waiting(name: str, pods: int, queue: str = "lq-a", priority: int = 0) -> Manifest:
    """A Workload without a job."""
    made = stock.workload(name, queue, namespace="team-a", gpus=8, priority=priority)
    made["spec"]["podSets"][0]["count"] = pods
    return {**made, "metadata": {"name": name, "namespace": "team-a"}, "status": {}}


def admit(api: Api, name: str, queue: str) -> None:
    """Say as Kueue that a workload is let in."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    status = stock.workload(name, "", namespace="team-a", gpus=8, admitted=(queue, "h100"))["status"]
    for condition in status["conditions"]:
        condition["lastTransitionTime"] = now
    api.patch(f"{WORKLOADS}/{name}/status", {"status": status})
