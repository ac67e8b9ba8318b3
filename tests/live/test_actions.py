"""Every action on a real API server: what was asked is done there, and what is refused is said and changes nothing."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from gpuconsole.model.commands import (
    Command,
    Cordon,
    Delete,
    Drain,
    MoveToQueue,
    Requeue,
    SetActive,
    SetPriority,
    SetStopPolicy,
    Submit,
)
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.queues import StopPolicy
from tests.live import stock
from tests.live.api import Api, Manifest, until
from tests.live.paths import CLUSTER_QUEUES, JOBS, LOCAL_QUEUES, PODS, WORKLOADS
from tests.live.seeing import Seeing

pytestmark = pytest.mark.live
NODE = "/api/v1/nodes/h100-0004"


def workload_of(cluster: Api, seeing: Seeing, job: str, ready: Callable[[Manifest], Any] = bool) -> str:
    """Name of a job's Workload, as soon as the console sees it and it is so on the server."""

    def found() -> str:
        for workload in cluster.items(WORKLOADS):
            if workload["metadata"]["ownerReferences"][0]["name"] == job and ready(workload):
                name: str = workload["metadata"]["name"]
                return name if f"team-a/{name}" in seeing.snapshot().workloads else ""
        return ""

    name: str = until(found)
    return name


def admitted(workload: Manifest) -> bool:
    conditions = workload.get("status", {}).get("conditions", ())
    return any(one["type"] == "Admitted" and one["status"] == "True" for one in conditions)


def pending(workload: Manifest) -> bool:
    conditions = workload.get("status", {}).get("conditions", ())
    return any(one["type"] == "QuotaReserved" and one["status"] == "False" for one in conditions)


class TestDone:
    """An operator's commands."""

    def do(self, seeing: Seeing, command: Command) -> None:
        """Ask, and wait until it is said to be done."""
        before = len(seeing.history)
        seeing.submit(command)
        ends = (HistoryEventKind.COMMAND_DONE, HistoryEventKind.COMMAND_REFUSED)
        (told,) = until(lambda: [line for line in seeing.history[before:] if line.what in ends])
        assert told.what is HistoryEventKind.COMMAND_DONE, told.message

    def test_a_manifest_is_submitted_and_runs(self, operator: Seeing, cluster: Api) -> None:
        document = msgspec.json.encode(stock.job("submitted", "lq-a", gpus=1)).decode()
        self.do(operator, Submit((), (document,)))
        workload_of(cluster, operator, "submitted", admitted)
        until(lambda: cluster.get(f"{JOBS}/submitted")["status"].get("ready") == 1)
        managers = [one["manager"] for one in cluster.get(f"{JOBS}/submitted")["metadata"]["managedFields"]]
        assert "gpuconsole" in managers

    def test_a_workload_is_stopped_and_resumed(self, operator: Seeing, cluster: Api) -> None:
        cluster.create(stock.job("paused", "lq-a", gpus=1))
        name = workload_of(cluster, operator, "paused", admitted)
        self.do(operator, SetActive(f"team-a/{name}", False))
        workload_of(cluster, operator, "paused", pending)
        until(lambda: cluster.get(f"{JOBS}/paused")["spec"]["suspend"])
        self.do(operator, SetActive(f"team-a/{name}", True))
        workload_of(cluster, operator, "paused", admitted)

    def test_a_workload_is_requeued(self, operator: Seeing, cluster: Api) -> None:
        cluster.create(stock.job("again", "lq-a", gpus=1))
        name = workload_of(cluster, operator, "again", admitted)
        self.do(operator, Requeue(f"team-a/{name}"))
        workload_of(cluster, operator, "again", admitted)
        conditions = {c["type"]: c for c in cluster.get(f"{WORKLOADS}/{name}")["status"]["conditions"]}
        assert conditions["Evicted"]["message"].startswith("Previously: ")

    def test_a_waiting_workload_gets_another_priority_and_queue(self, operator: Seeing, cluster: Api) -> None:
        cluster.create(stock.job("waiting", "lq-b", gpus=8, pods=4))
        name = workload_of(cluster, operator, "waiting", pending)
        self.do(operator, SetPriority(f"team-a/{name}", 500))
        assert cluster.get(f"{WORKLOADS}/{name}")["spec"]["priority"] == 500
        self.do(operator, MoveToQueue(f"team-a/{name}", "lq-a"))
        until(lambda: cluster.get(f"{WORKLOADS}/{name}")["spec"]["queueName"] == "lq-a")

    @pytest.mark.parametrize("policy", [StopPolicy.HOLD, StopPolicy.HOLD_AND_DRAIN, StopPolicy.NONE])
    def test_queues_are_held_drained_and_resumed(self, operator: Seeing, cluster: Api, policy: StopPolicy) -> None:
        self.do(operator, SetStopPolicy("cq-b", policy))
        self.do(operator, SetStopPolicy("team-a/lq-b", policy))
        assert cluster.get(f"{CLUSTER_QUEUES}/cq-b")["spec"]["stopPolicy"] == policy.value
        assert cluster.get(f"{LOCAL_QUEUES}/lq-b")["spec"]["stopPolicy"] == policy.value
        operator.until(lambda s: s.cluster_queues["cq-b"].stop_policy is policy)

    def test_a_node_is_cordoned_drained_and_uncordoned(self, operator: Seeing, cluster: Api) -> None:
        self.do(operator, Cordon("h100-0004", True))
        assert cluster.get(NODE)["spec"]["unschedulable"] is True
        self.do(operator, Cordon("h100-0004", False))
        assert "unschedulable" not in cluster.get(NODE)["spec"]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stays", "namespace": "team-a"}}
        spec = {**stock.pod_template(0)["spec"], "nodeName": "h100-0004"}
        cluster.create({**pod, "spec": spec})
        until(lambda: cluster.get(f"{PODS}/stays")["status"].get("phase") == "Running")
        self.do(operator, Drain("h100-0004"))
        until(lambda: not cluster.exists(f"{PODS}/stays"))
        assert cluster.get(NODE)["spec"]["unschedulable"] is True
        self.do(operator, Cordon("h100-0004", False))

    def test_a_workload_is_deleted_with_its_job(self, operator: Seeing, cluster: Api) -> None:
        cluster.create(stock.job("deleted", "lq-a", gpus=1))
        name = workload_of(cluster, operator, "deleted", admitted)
        self.do(operator, Delete("workloads", f"team-a/{name}"))
        until(lambda: not cluster.exists(f"{JOBS}/deleted"))
        operator.until(lambda s: f"team-a/{name}" not in s.workloads)


class TestRefused:
    """Somebody who may only read asks all the same."""

    @pytest.mark.parametrize(
        ("command", "path"),
        [
            (Cordon("h100-0004", True), NODE),
            (Drain("h100-0004"), NODE),
            (SetStopPolicy("cq-b", StopPolicy.HOLD), f"{CLUSTER_QUEUES}/cq-b"),
            (Delete("local_queues", "team-a/lq-b"), f"{LOCAL_QUEUES}/lq-b"),
        ],
        ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
    )
    def test_it_is_said_and_nothing_changes(self, reader: Seeing, cluster: Api, command: Command, path: str) -> None:
        before, lines = cluster.get(path)["spec"], len(reader.history)
        reader.submit(command)
        (told,) = until(
            lambda: [line for line in reader.history[lines:] if line.what is HistoryEventKind.COMMAND_REFUSED]
        )
        assert "forbidden" in told.message
        assert cluster.get(path)["spec"] == before
